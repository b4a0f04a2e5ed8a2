"""The hub: what the processes of one program know of each other.

A state machine without sockets, threads or a clock of its own: it is told what was heard, and says whom to tell what
(`wire` carries it, `watchdog` is the other end, `processes` states the failure model).  A *group* is the process ids
that share a mesh, as "0,1,3"; each process counts the programs that it started in each group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

Message = dict[str, Any]
Letters = list[tuple[int, Message]]  # to which process, what

PATIENCE = 0.75  # of the timeout: then the error is known; the rest of it is for the process to raise it
LEAVING = 1.0  # seconds: who waits for a process that ended its program is told so after this


@dataclass
class Member:
    """One process, as it was last heard of."""

    name: str  # where it runs: its host and process id
    heard: float
    counts: dict[str, int] = field(default_factory=dict)  # programs started, per group
    doing: dict[str, str] = field(default_factory=dict)  # the last of them, in words
    waiting: str = ""  # the group that it waits for
    waited: float = 0.0
    idle: float = 0.0  # seconds since it started or awaited anything
    left: bool = False

    def at(self, group: str) -> tuple[int, str]:
        """Its last program of the group: which one it was, and what it did."""
        return self.counts.get(group, 0), self.doing.get(group, "")


@dataclass
class Check:
    """What the members of a group say that their next program is."""

    said: dict[int, tuple[str, str]] = field(default_factory=dict)  # process: digest, words


class Hub:
    """Who is there, who waits for whom, and who failed first.

    1. Nobody starts until all `count` have enrolled.
    2. The first failure is the failure: it is told to everybody once, and nothing is judged after it.
    3. A check is answered when all of its group have said theirs, or can't any more.
    4. When all have left, all are told.
    """

    def __init__(self, count: int, timeout: float, clock: Callable[[], float] = monotonic):
        self.count, self.timeout, self.clock = count, timeout, clock
        self.members: dict[int, Member] = {}
        self.checks: dict[tuple[str, int], Check] = {}
        self.failure: Message | None = None
        self.opened = clock()

    @property
    def patience(self) -> float:
        return PATIENCE * self.timeout

    def enroll(self, rank: int, count: int, name: str) -> str | None:
        """A process says who it is.  Returns why it can't be, if so."""
        if count != self.count:
            return f"process {rank} was started as one of {count} processes, process 0 as one of {self.count}"
        if not 0 <= rank < self.count:
            return f"there is no process {rank} of {self.count}"
        if rank in self.members:
            return f"two processes say that they are process {rank}: {self.members[rank].name} and {name}"
        self.members[rank] = Member(name, self.clock())
        return None

    @property
    def missing(self) -> list[int]:
        return [rank for rank in range(self.count) if rank not in self.members]

    def fail(self, rank: int, text: str, kind: str) -> Letters:
        """Invariant 2."""
        if self.failure is not None:
            return []
        self.failure = {"kind": "failed", "rank": rank, "text": text, "how": kind}
        return [
            (other, self.failure) for other in self.members if other != rank or kind in ("silent", "behind", "parted")
        ]

    def lost(self, rank: int) -> Letters:
        """A connection closed: the process died, unless it had said that it would go."""
        member = self.members[rank]
        if member.left or self.failure is not None:
            member.left = True
            return []
        member.left = True
        return self.fail(rank, f"process {rank} ({member.name}) died", "died")

    def hear(self, rank: int, message: Message) -> Letters:
        member = self.members[rank]
        member.heard = self.clock()
        match message["kind"]:
            case "beat":
                for group, (count, words) in message["groups"].items():
                    member.counts[group], member.doing[group] = count, words
                member.waiting, member.waited, member.idle = message["waiting"], message["waited"], message["idle"]
                return [(rank, {"kind": "heard"})]
            case "failed":
                return self.fail(rank, message["text"], "raised")
            case "check":
                return self._check(rank, message)
            case "left":
                member.left = True
                if all(other.left for other in self.members.values()):  # invariant 4
                    return [(other, {"kind": "all left"}) for other in self.members]
                return []
        raise ValueError(f"process {rank} said {message!r}")

    # -- agreement ----------------------------------------------------------------------------------------------------

    def _check(self, rank: int, message: Message) -> Letters:
        key = message["group"], message["number"]
        check = self.checks.setdefault(key, Check())
        check.said[rank] = message["digest"], message["words"]
        if other := self._crossed(rank, key):
            both = self.checks.pop(other).said | self.checks.pop(key).said
            return _differ(both)
        if len(check.said) < len(ranks_of(key[0])):
            return []
        del self.checks[key]
        if len({digest for digest, _ in check.said.values()}) > 1:
            return _differ(check.said)
        return [(one, {"kind": "agreed"}) for one in check.said]

    def _crossed(self, rank: int, key: tuple[str, int]) -> tuple[str, int] | None:
        """A check that this one waits for, and that waits for this one: neither can ever be complete."""
        for other, check in self.checks.items():
            if other != key and rank in ranks_of(other[0]) and set(check.said) & set(ranks_of(key[0])):
                return other
        return None

    # -- time passes --------------------------------------------------------------------------------------------------

    def tick(self) -> Letters:
        """Looks for who is silent, and for who lets others wait."""
        if self.failure is not None or self.missing:
            return []
        now = self.clock()
        for rank, member in self.members.items():
            if not member.left and (silent := now - member.heard) > self.patience:
                text = (
                    f"process {rank} ({member.name}) has not been heard of for {silent:.0f} s: stopped, or out of reach"
                )
                return self.fail(rank, text, "silent")
        for rank, member in self.members.items():
            if member.waiting and not member.left:
                for culprit, text, how in self._blamed(rank, member):
                    return self.fail(culprit, text, how)
        return []

    def _blamed(self, rank: int, member: Member) -> Iterator[tuple[int, str, str]]:
        """Who lets a waiting process wait, and why that will not end by itself."""
        group, long = member.waiting, member.waited > self.patience
        mine = f"{member.doing.get(group, 'a result')} (its program {member.counts.get(group, 0)} with {group})"
        awaited = f"process {rank} has waited {member.waited:.0f} s for {mine}"
        for other in ranks_of(group):
            peer = self.members[other]
            fewer = peer.counts.get(group, 0) < member.counts.get(group, 0)
            last = f"its last was {peer.doing[group]}" if group in peer.doing else "it never came to one"
            if other == rank:
                continue
            if peer.left and fewer and member.waited > LEAVING:
                yield other, f"process {other} ended its program, while {awaited}; {last}", "behind"
            if peer.left or not long:
                continue
            if not peer.waiting and (fewer or peer.idle > self.patience):
                yield other, f"process {other} ({peer.name}) doesn't come, while {awaited}; {last}", "behind"
            if peer.waiting and peer.waited > self.patience:
                same = peer.waiting == group and peer.at(group) == member.at(group)
                theirs = f"{peer.doing.get(peer.waiting, 'a result')} (its program {peer.counts.get(peer.waiting, 0)}"
                if not same:
                    yield other, f"{awaited}, process {other} for {theirs} with {peer.waiting})", "parted"


def ranks_of(group: str) -> tuple[int, ...]:
    return tuple(map(int, group.split(",")))


def group_of(ranks: tuple[int, ...]) -> str:
    return ",".join(map(str, ranks))


def _differ(said: dict[int, tuple[str, str]]) -> Letters:
    """Every side is told all sides: who runs what."""
    sides: dict[str, list[int]] = {}
    for rank, (_, words) in sorted(said.items()):
        sides.setdefault(words, []).append(rank)
    told = [[ranks, words] for words, ranks in sides.items()]
    return [(rank, {"kind": "differ", "sides": told}) for rank in said]
