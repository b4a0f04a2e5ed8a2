"""How to get from one layout to another: steps, their costs, the search, and a numpy interpreter.

Pure Python; only `simulate` uses numpy, when called.
"""

from lamina.planning.plan import Plan
from lamina.planning.search import plan
from lamina.planning.steps import AllGather, AllReduce, AllToAll, Permute, ReduceScatter, Slice, Step, Unreduce

__all__ = [
    "AllGather",
    "AllReduce",
    "AllToAll",
    "Permute",
    "Plan",
    "ReduceScatter",
    "Slice",
    "Step",
    "Unreduce",
    "plan",
]
