"""The table of ops: every op that computes has a row here, and the tests beside this file are generated from the rows.

To add an op, add a `Row` to the file of its module, `rows_<module>.py`: its name, operands (shapes, dtypes, ranges),
and, where `jnp.<name>` isn't already the oracle, a function of plain arrays that is.  A new module of ops is a new file
here and a line below.  `test_table.py` fails while an op has no row.
"""

from __future__ import annotations

from tests.ops import rows_elementwise, rows_linalg, rows_movement, rows_nn, rows_reduction, rows_scans
from tests.ops.rows import Row

TABLE: tuple[Row, ...] = (
    *rows_elementwise.ROWS,
    *rows_linalg.ROWS,
    *rows_movement.ROWS,
    *rows_nn.ROWS,
    *rows_reduction.ROWS,
    *rows_scans.ROWS,
)
