"""Slots that are used up, or outlive their pods: killed at any step, nothing is lost and nothing doubled."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qos.cluster.remembered import MOST, NOTHING, Life, Outliving, Remembered, advance

ONCE = Life(2, once=True)
LASTING = Life(2, once=True, delay=60.0)
SHRUNK = Life(1, delay=60.0)


def step(was: Remembered, life: Life, *owners: str, now: float = 0.0, ended: str = "") -> Remembered:
    return advance(was, life, dict.fromkeys(owners, "n1"), ended.split(), now)


def filled(*uids: str, gone: int = 0, **until: float) -> Remembered:
    outliving = tuple(Outliving(uid, "n1", when) for uid, when in until.items())
    return Remembered(gone, dict.fromkeys(uids, "n1"), outliving)


@pytest.mark.parametrize(
    ("was", "life", "owners", "ended", "now", "becomes"),
    [
        (NOTHING, ONCE, ["a"], "", 0, filled("a")),
        (NOTHING, ONCE, ["a", "b", "c"], "", 0, filled("a", "b")),
        (filled("a"), ONCE, [], "", 0, filled("a")),  # nobody has seen it end
        (filled("a"), ONCE, [], "a", 0, filled(gone=1)),
        (filled("a"), ONCE, ["b"], "a", 0, filled("b", gone=1)),
        (filled("b", gone=1), ONCE, ["b", "c"], "", 0, filled("b", gone=1)),
        (filled("b", gone=1), ONCE, ["c"], "b", 0, filled(gone=2)),
        (filled("a"), LASTING, [], "a", 0.5, filled(a=61.0)),
        (filled(a=61.0), LASTING, [], "", 60.9, filled(a=61.0)),
        (filled(a=61.0), LASTING, [], "", 61.0, filled(gone=1)),
        (filled(a=99.0), LASTING, [], "", 0.5, filled(a=61.0)),  # a clock was set back, or the delay is less
        (filled(a=1e18), LASTING, [], "", 0.5, filled(a=61.0)),
        (filled(a=61.0), ONCE, [], "", 10.5, filled(a=11.0)),  # there is no delay any more
        (filled(a=61.0), LASTING, ["b"], "", 10, filled("b")),  # takes it over: no other is used up
        (filled(a=61.0), LASTING, ["b"], "", 99, filled("b")),  # what is written outlives, however late
        (filled(a=61.0), LASTING, ["b", "c", "d"], "", 10, filled("b", "c")),
        (filled(a=61.0), LASTING, ["a"], "", 10, filled("a")),
        (filled("a"), LASTING, ["b"], "a", 0, filled("b", a=60.0)),  # not written yet: nobody's
        (filled("a", "b"), SHRUNK, ["b"], "a", 0, filled("b", a=60.0)),
        (filled("b", a=60.0), SHRUNK, ["b"], "", 60, filled("b")),
        (filled("b", a=60.0), SHRUNK, ["b", "c"], "", 10, filled("b", "c")),
        (filled("a", "b"), Life(2, delay=60.0), ["b", "c"], "a", 0, filled("b", "c")),  # has its slot again
        (filled("a", "b"), Life(1), ["b"], "a", 0, filled("b")),
        (filled("b", gone=3), Life(2), ["b"], "", 0, filled("b")),  # no longer Once
    ],
)
def test_what_is_written_next(was, life, owners, ended, now, becomes):
    assert advance(was, life, dict.fromkeys(owners, "n1"), ended.split(), now) == becomes


def test_a_pod_takes_the_slot_on_its_node_before_others():
    was = Remembered(0, {}, (Outliving("a", "n1", 50.0), Outliving("b", "n2", 60.0)))
    assert advance(was, LASTING, {"c": "n2"}, (), 1.0).outliving == (Outliving("a", "n1", 50.0),)
    assert advance(was, LASTING, {"c": "n3"}, (), 1.0).outliving == (Outliving("b", "n2", 60.0),)


def test_a_status_stays_bounded():
    owners = {f"p{number}": "n1" for number in range(2 * MOST)}
    known = advance(NOTHING, Life(2 * MOST, delay=60.0), owners, (), 0.0)
    assert len(known.fillers) == MOST
    assert len(advance(known, Life(0, delay=60.0), {}, owners, 0.0).outliving) == MOST


@pytest.mark.parametrize(
    ("known", "asked", "desired", "seats"),
    [
        (NOTHING, 3, 3, 3),
        (filled("a", gone=1), 3, 2, 2),
        (filled(gone=3), 3, 0, 0),
        (filled("a", b=1.0, gone=1), 3, 2, 2),
        (filled("a", "b", c=1.0), 1, 3, 2),  # a scale-down: the first has a seat, and who comes for c's
        (filled("a", gone=3), 2, 1, 0),  # fewer slots than were used: it has its capacity, and no floor
    ],
)
def test_what_is_held_follows_what_is_written(known, asked, desired, seats):
    assert (known.desired(asked), known.seats(asked)) == (desired, seats)


@dataclass
class World:
    """The API server's pods and status, and an extender that is killed between any two effects.

    `told`: every pod that a status told of, and when it ended.
    """

    life: Life
    now: float = 0.0
    alive: dict[str, str] = field(default_factory=dict)
    status: Remembered = NOTHING
    seen: set[str] = field(default_factory=set)
    told: dict[str, float] = field(default_factory=dict)
    number: int = 0

    def bind(self) -> None:
        """A pod comes where something is held, as the ledger follows the status."""
        if self.status.desired(self.life.asked) > len(self.alive):
            self.number += 1
            self.alive[f"p{self.number}"] = "n1"

    def end(self) -> None:
        if self.alive:
            uid = min(self.alive)
            del self.alive[uid]
            self.seen.add(uid)
            if uid in self.told:
                self.told[uid] = self.now

    def kill(self) -> None:
        self.seen.clear()

    def write(self, asks: bool) -> None:
        """The leader writes; of whom it has not seen end it asks the API server, or cannot."""
        ended = {uid for uid in self.status.fillers if uid not in self.alive}
        before = self.status
        self.status = advance(before, self.life, self.alive, ended if asks else ended & self.seen, self.now)
        assert self.status.consumed >= before.consumed or not self.life.once
        for uid in self.status.fillers.keys() & self.alive.keys():
            self.told.setdefault(uid, float("inf"))

    def take(self, step: str) -> None:
        match step:
            case "write" | "blind":
                self.write(asks=step == "write")
            case "wait" | "wait long":
                self.now += 5.0 if step == "wait" else 25.0
            case _:
                getattr(self, step)()

    def held(self) -> int:
        return max(0, self.status.desired(self.life.asked) - len(self.alive))


STEPS = st.lists(
    st.sampled_from(["bind", "bind", "end", "kill", "write", "blind", "wait", "wait long"]), max_size=60
)


@settings(max_examples=400, deadline=None)
@given(STEPS, st.integers(1, 4), st.sampled_from([0.0, 20.0]))
def test_killed_at_any_step_a_used_slot_is_neither_lost_nor_doubled(steps, asked, delay):
    world = World(Life(asked, once=True, delay=delay))
    for name in steps:
        world.take(name)
        used = [uid for uid, end in world.told.items() if uid in world.alive or end != float("inf")]
        assert world.status.consumed <= asked
        # Not lost: a slot that no pod has had is held, or a pod is in it whom no status has told of yet.
        assert world.held() + len(world.alive) >= asked - len(used)
        # Not let go early: a slot whose pod ended is held until its delay is over, or another pod has it.
        recent = [uid for uid in used if uid not in world.alive and world.now < world.told[uid] + delay]
        assert world.held() + len(world.alive) >= min(len(recent), asked - world.status.gone)
    for _ in range(3):
        world.now += 30.0
        world.write(asks=True)
    # Not doubled: every pod that a status told of has used a slot up, or taken one over while it was held.
    if not delay:
        assert world.status.consumed == min(asked, len(world.told))
    assert world.held() == max(0, asked - world.status.consumed)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.integers(0, 3), st.integers(0, 3))
def test_killed_at_any_step_a_scale_down_keeps_no_slot_for_ever(steps, asked, later):
    world = World(Life(asked, delay=20.0))
    for place, name in enumerate(steps):
        if place == len(steps) // 2:
            world.life = Life(later, delay=20.0)
        world.take(name)
        assert world.status.desired(world.life.asked) <= max(asked, later)
        assert world.held() + len(world.alive) >= world.life.asked
    for _ in range(3):
        world.now += 30.0
        world.write(asks=True)
    assert not world.status.outliving
    assert world.held() == max(0, world.life.asked - len(world.alive))
