"""How to get from one layout to another: steps, their costs, the search, and a numpy interpreter.

Pure Python; only `simulate` uses numpy, when called.
"""

from lamina.planning.crossing import homes_between, plan_across
from lamina.planning.explanation import Explanation
from lamina.planning.plan import Plan
from lamina.planning.search import plan
from lamina.planning.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Exchange,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    Transfer,
    Unreduce,
)
from lamina.planning.topology import Link, Topology, topology

__all__ = [
    "AllGather",
    "AllReduce",
    "AllToAll",
    "Exchange",
    "Explanation",
    "Link",
    "Permute",
    "Plan",
    "ReduceScatter",
    "Slice",
    "Step",
    "Topology",
    "Transfer",
    "Unreduce",
    "homes_between",
    "plan",
    "plan_across",
    "topology",
]
