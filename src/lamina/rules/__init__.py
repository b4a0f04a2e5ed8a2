"""What an op does to layouts: `Factors` says how dims depend on each other, `ways` lists the layouts an op can run on.

Standard library only.  A rule knows neither data nor costs: `lamina.planning.choice` weighs the ways, the engine runs
one.
"""

from lamina.rules.factors import Factors, Passing
from lamina.rules.ways import Way, ways

__all__ = ["Factors", "Passing", "Way", "ways"]
