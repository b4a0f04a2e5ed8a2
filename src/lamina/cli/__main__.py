"""`python -m lamina.cli`: the same as the `lamina` command."""

import sys

from lamina.cli import main

sys.exit(main())
