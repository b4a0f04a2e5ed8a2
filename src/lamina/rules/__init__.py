"""What an op does to layouts: `Factors` says how dims depend on each other, `ways` lists the layouts an op can run on.

Standard library only.  A rule knows neither data nor costs: `lamina.planning.choice` weighs the ways, the engine runs
one.
"""

from lamina.rules.factors import Factors, Passing
from lamina.rules.ways import Lying, Pieces, Sketch, Way, sketches, ways

__all__ = ["Factors", "Lying", "Passing", "Pieces", "Sketch", "Way", "sketches", "ways"]
