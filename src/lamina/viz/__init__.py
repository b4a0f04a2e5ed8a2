"""Layouts and plans for the eye: which device holds what, and what a route costs.

Text only.  `rich` is imported when a table is made, and nothing here needs JAX.
"""

from lamina.viz.drawing import picture
from lamina.viz.tables import explanation_table, plan_table

__all__ = ["explanation_table", "picture", "plan_table"]
