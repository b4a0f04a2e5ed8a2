"""The hub alone, with a clock of its own: who is blamed, when, and what everybody is told."""

from __future__ import annotations

from typing import Any

import pytest

from lamina.engine.hub import Hub

TIMEOUT = 40.0  # so that patience is 30


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hub(clock: Clock) -> Hub:
    hub = Hub(3, TIMEOUT, clock)
    for rank in range(3):
        assert hub.enroll(rank, 3, f"pid {rank}") is None
    return hub


def beat(waiting: str = "", waited: float = 0.0, idle: float = 0.0, **groups: tuple[int, str]) -> dict[str, Any]:
    named = {name.strip("_").replace("_", ","): at for name, at in groups.items()}
    return {"kind": "beat", "groups": named, "waiting": waiting, "waited": waited, "idle": idle}


def all_beat(hub: Hub, *beats: dict[str, Any]) -> None:
    for rank, message in enumerate(beats):
        assert hub.hear(rank, message) == [(rank, {"kind": "heard"})]


def failure(letters: list) -> tuple[list[int], int, str]:
    """Who is told, whose failure it is, and what is said."""
    assert letters
    message = letters[0][1]
    assert message["kind"] == "failed" and all(other == message for _, other in letters)
    return [rank for rank, _ in letters], message["rank"], message["text"]


def test_enrolling():
    hub = Hub(2, TIMEOUT)
    assert hub.missing == [0, 1]
    assert hub.enroll(2, 2, "a") == "there is no process 2 of 2"
    assert hub.enroll(0, 3, "a") == "process 0 was started as one of 3 processes, process 0 as one of 2"
    assert hub.enroll(1, 2, "a") is None
    assert hub.enroll(1, 2, "b") == "two processes say that they are process 1: a and b"
    assert hub.missing == [0]


def test_a_lost_connection_is_a_death(hub):
    assert failure(hub.lost(1)) == ([0, 2], 1, "process 1 (pid 1) died")
    assert hub.lost(2) == []  # the first failure is the failure
    assert hub.hear(0, {"kind": "failed", "text": "process 0 raised"}) == []


def test_who_left_did_not_die(hub):
    assert hub.hear(1, {"kind": "left"}) == []
    assert hub.lost(1) == []
    assert hub.hear(0, {"kind": "left"}) == []
    assert hub.hear(2, {"kind": "left"}) == [(rank, {"kind": "all left"}) for rank in range(3)]


def test_an_error_is_told_to_the_others(hub):
    assert failure(hub.hear(2, {"kind": "failed", "text": "process 2 raised"})) == ([0, 1], 2, "process 2 raised")


def test_silence(hub, clock):
    clock.now = 25
    hub.hear(0, beat())
    hub.hear(2, beat())
    assert hub.tick() == []
    clock.now = 31
    text = "process 1 (pid 1) has not been heard of for 31 s: stopped, or out of reach"
    assert failure(hub.tick()) == ([0, 1, 2], 1, text)
    assert hub.tick() == []


def test_nobody_is_judged_before_all_are_there(clock):
    hub = Hub(2, TIMEOUT, clock)
    hub.enroll(0, 2, "a")
    clock.now = 1000
    assert hub.tick() == []


G = "0,1,2"


def test_who_waits_long_for_one_that_is_behind(hub):
    here, behind = {"_0_1_2": (5, "a gather")}, {"_0_1_2": (4, "a sum")}
    all_beat(hub, beat(G, 29, **here), beat("", 0, 3, **behind), beat(G, 29, **here))
    assert hub.tick() == []  # not yet
    all_beat(hub, beat(G, 31, **here), beat("", 0, 3, **behind), beat(G, 31, **here))
    told, culprit, text = failure(hub.tick())
    assert (told, culprit) == ([0, 1, 2], 1)
    assert text == (
        "process 1 (pid 1) doesn't come, while process 0 has waited 31 s for a gather (its program 5 with 0,1,2); "
        "its last was a sum"
    )


def test_who_started_all_and_is_busy_is_not_to_blame(hub):
    here = {"_0_1_2": (5, "a gather")}
    all_beat(hub, beat(G, 100, **here), beat("", 0, 29, **here), beat(G, 100, **here))
    assert hub.tick() == []
    all_beat(hub, beat(G, 100, **here), beat("", 0, 31, **here), beat(G, 100, **here))
    assert failure(hub.tick())[1] == 1  # it does nothing of Lamina's any more


def test_a_long_program_is_nobodys_fault(hub):
    here = {"_0_1_2": (5, "a gather")}
    all_beat(hub, *[beat(G, 1000, **here)] * 3)
    assert hub.tick() == []


def test_all_wait_but_for_different_programs(hub):
    all_beat(
        hub,
        beat(G, 31, _0_1_2=(5, "a gather")),
        beat(G, 31, _0_1_2=(5, "a sum")),
        beat(G, 31, _0_1_2=(5, "a gather")),
    )
    assert failure(hub.tick())[2] == (
        "process 0 has waited 31 s for a gather (its program 5 with 0,1,2), "
        "process 1 for a sum (its program 5 with 0,1,2)"
    )


def test_who_left_and_is_waited_for(hub):
    all_beat(hub, beat(G, 2, _0_1_2=(5, "a gather")), beat(_0_1_2=(4, "a sum")), beat())
    hub.hear(1, {"kind": "left"})
    assert failure(hub.tick())[2].startswith("process 1 ended its program, while process 0 has waited 2 s for a gather")


def test_who_left_after_the_same_program_is_not_waited_for(hub):
    all_beat(
        hub, beat(G, 100, _0_1_2=(5, "a gather")), beat(_0_1_2=(5, "a gather")), beat(G, 9, _0_1_2=(5, "a gather"))
    )
    hub.hear(1, {"kind": "left"})
    assert hub.tick() == []


def check(group: str, digest: str, number: int = 1) -> dict[str, Any]:
    return {"kind": "check", "group": group, "number": number, "digest": digest, "words": f"op {digest}"}


def test_agreement(hub):
    assert hub.hear(0, check(G, "a")) == []
    assert hub.hear(2, check(G, "a")) == []
    assert hub.hear(1, check(G, "a")) == [(rank, {"kind": "agreed"}) for rank in (0, 2, 1)]
    assert not hub.checks


def test_difference_is_told_to_every_side(hub):
    hub.hear(0, check(G, "a"))
    hub.hear(2, check(G, "a"))
    sides = [[[0, 2], "op a"], [[1], "op b"]]
    assert hub.hear(1, check(G, "b")) == [(rank, {"kind": "differ", "sides": sides}) for rank in (0, 2, 1)]


def test_groups_that_wait_for_each_other(hub):
    hub.hear(0, check(G, "a"))
    sides = [[[0], "op a"], [[1], "op b"]]
    assert sorted(hub.hear(1, check("0,1", "b"))) == [(rank, {"kind": "differ", "sides": sides}) for rank in (0, 1)]


def test_groups_that_can_both_be_complete(hub):
    assert hub.hear(0, check(G, "a")) == []
    assert hub.hear(1, check("1,2", "b")) == []  # 2 will come to it, and then all to the first
    assert [rank for rank, _ in hub.hear(2, check("1,2", "b"))] == [1, 2]
    assert hub.hear(1, check(G, "a")) == []
    assert len(hub.hear(2, check(G, "a"))) == 3
