"""All or nothing, in an order that the kernel takes: against a model of the kernel's rules (v1, the strict).

What the model refuses, and how cpu.idle resets shares, was measured on real hierarchies (test_v1.py does it).
"""

from __future__ import annotations

import errno

from hypothesis import given, settings
from hypothesis import strategies as st

from kernel import values
from kernel.apply import Entry, Outcome, apply
from kernel.refused import Refused

FILES = (
    "cpu.idle",
    "cpu.shares",
    "cpu.cfs_quota_us",
    "cpu.cfs_burst_us",
    "memory.limit_in_bytes",
    "memory.memsw.limit_in_bytes",
    "cpuset.cpus",
)
IDLE_SHARES, DEFAULT_SHARES = "3", "1024"
LEVELS = 3

State = dict[tuple[int, str], str]


class Kernel:
    """A chain of cgroups, level 0 the lowest, that takes writes as the kernel does. Plays the target, too."""

    cgroup = "/2/1/0"

    def __init__(self, state: State) -> None:
        self.state = dict(state)
        self.writes = 0
        self.faults: dict[int, str] = {}
        self.groups = [Group(self, level) for level in range(LEVELS)]

    def group(self, file: str, level: int) -> Group:
        return self.groups[level]


class Group:
    def __init__(self, kernel: Kernel, level: int) -> None:
        self.kernel = kernel
        self.level = level
        self.name = "/level" + str(level)

    def has(self, file: str) -> bool:
        return (self.level, file) in self.kernel.state

    def read(self, file: str) -> str:
        return self.kernel.state[self.level, file] + "\n"

    def write(self, file: str, value: str) -> None:
        kernel = self.kernel
        fault = kernel.faults.get(kernel.writes, "")
        kernel.writes += 1
        if fault == "refuse":
            raise Refused("no", self.name, file, value, errno.EINVAL)
        changed = {**kernel.state, (self.level, file): value}
        if file == "cpu.idle" and value != kernel.state[self.level, file]:
            changed[self.level, "cpu.shares"] = IDLE_SHARES if value == "1" else DEFAULT_SHARES
        if file == "cpu.shares" and kernel.state[self.level, "cpu.idle"] == "1":
            raise Refused("idle", self.name, file, value, errno.EINVAL)
        why = broken(changed)
        if why:
            raise Refused(why, self.name, file, value, errno.EINVAL)
        if fault == "others":  # they raise what we have raised, and then this write is refused
            kernel.state[1, "memory.limit_in_bytes"] = "12288"
            raise Refused("no", self.name, file, value, errno.EINVAL)
        if fault == "exceed":  # somebody without our lock was there, too
            changed[self.level, file] = str(int(value) + 4096)
        if fault != "ignore":
            kernel.state = changed


def number(text: str) -> int:
    return 1 << 62 if text == "-1" else int(text)


def bits(text: str) -> int:
    return values.parse("cpuset.cpus", text)[1][0]


def broken(state: State) -> str:
    """The first rule of the kernel that a state breaks."""
    for level in range(LEVELS):
        if number(state[level, "memory.limit_in_bytes"]) > number(
            state[level, "memory.memsw.limit_in_bytes"]
        ):
            return "limit above memsw"
        if number(state[level, "cpu.cfs_burst_us"]) > number(state[level, "cpu.cfs_quota_us"]):
            return "burst above quota"
        if level + 1 < LEVELS:
            quotas = [number(state[place, "cpu.cfs_quota_us"]) for place in (level, level + 1)]
            if quotas[0] != number("-1") and quotas[0] > quotas[1]:
                return "quota above the parent's"
            if bits(state[level, "cpuset.cpus"]) & ~bits(state[level + 1, "cpuset.cpus"]):
                return "CPUs that the parent does not have"
    return ""


@st.composite
def states(draw: st.DrawFn) -> State:
    """A chain of settings that the kernel would show."""
    state: State = {}
    quota, cpus = 1 << 62, 0b111111
    for level in reversed(range(LEVELS)):
        idle = draw(st.sampled_from("001"))
        limit = draw(st.integers(1, 6))
        memsw = limit + draw(st.integers(0, 3))
        own = min(quota, draw(st.integers(1, 6)) * 1000)
        unlimited = draw(st.booleans())
        quota = quota if unlimited else own
        cpus = (cpus & draw(st.integers(1, 63))) or cpus
        for file, value in {
            "cpu.idle": idle,
            "cpu.shares": IDLE_SHARES if idle == "1" else str(draw(st.integers(2, 5))),
            "cpu.cfs_quota_us": "-1" if unlimited else str(own),
            "cpu.cfs_burst_us": str(
                draw(st.integers(0, 6)) * 1000 if unlimited else draw(st.integers(0, own))
            ),
            "memory.limit_in_bytes": str(limit * 4096),
            "memory.memsw.limit_in_bytes": str(memsw * 4096),
            "cpuset.cpus": values.render("cpuset.cpus", ("", (cpus,))),
        }.items():
            state[level, file] = value
    return state


def plain_state() -> State:
    """One state, for the tests of single steps."""
    values_there = ("0", "77", "-1", "0", "4096", "40960", "0")
    return {
        (level, file): value
        for level in range(LEVELS)
        for file, value in zip(FILES, values_there, strict=True)
    }


def wanted(state: State) -> list[Entry]:
    """All settings of a state; an idle cgroup has no shares to plan."""
    return [
        (level, "set", file, value)
        for (level, file), value in state.items()
        if file != "cpu.shares" or state[level, "cpu.idle"] == "0"
    ]


def run(kernel: Kernel, entries: list[Entry]) -> Outcome:
    return apply(kernel, entries)  # type: ignore[arg-type]


def settled(state: State) -> State:
    return {key: values.render(key[1], values.parse(key[1], value)) for key, value in state.items()}


@given(states(), states(), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_from_any_state_to_any_other(have: State, want: State, chance: object) -> None:
    """Whatever goes up and whatever goes down, in whatever order it is listed."""
    kernel, entries = Kernel(have), wanted(want)
    chance.shuffle(entries)  # type: ignore[attr-defined]
    outcome = run(kernel, entries)
    assert [str(refusal) for refusal in outcome.refusals] == []
    assert settled(kernel.state) == settled(want)
    writes = kernel.writes
    again = run(kernel, entries)
    assert (again.kept, again.written, kernel.writes) == (len(entries), [], writes)


@given(states(), states(), st.data())
@settings(max_examples=100, deadline=None)
def test_after_a_refusal_everything_is_as_before(have: State, want: State, data: st.DataObject) -> None:
    """One write is refused, or ignored without a word; the others work."""
    kernel = Kernel(have)
    kernel.faults = {data.draw(st.integers(0, 20)): data.draw(st.sampled_from(["refuse", "ignore"]))}
    outcome = run(kernel, wanted(want))
    if outcome.applied:
        assert settled(kernel.state) == settled(want)
    else:
        assert (settled(kernel.state), outcome.written) == (settled(have), [])
        assert outcome.refusals[0].errno == (errno.EINVAL if "refuse" in kernel.faults.values() else 0)


def test_weights_that_cpu_idle_reset_come_back() -> None:
    """The lower cgroup is idle already when the upper one is refused: 0 again would leave the default."""
    have = plain_state()
    kernel = Kernel(have)
    kernel.faults = {1: "refuse"}
    outcome = run(kernel, [(0, "set", "cpu.idle", "1"), (1, "set", "cpu.idle", "1")])
    assert not outcome.applied
    assert kernel.writes == 4  # cpu.idle twice, then cpu.idle and the shares again
    assert kernel.state == have


@given(states(), states(), st.data())
@settings(max_examples=60, deadline=None)
def test_part_of_a_plan_applies_or_leaves_no_trace(have: State, want: State, data: st.DataObject) -> None:
    """What is not planned stays as it is, and can make the rest impossible."""
    entries = wanted(want)
    chosen = data.draw(st.lists(st.sampled_from(entries), unique=True))
    kernel = Kernel(have)
    outcome = run(kernel, chosen)
    if not outcome.applied:
        assert (settled(kernel.state), outcome.written) == (settled(have), [])
        return
    for level, _, file, value in chosen:
        assert values.equal(file, kernel.state[level, file], value)


@given(states(), states(), st.integers(0, 12), st.sampled_from(["refuse", "ignore"]))
@settings(max_examples=100, deadline=None)
def test_what_cannot_be_put_back_is_told(have: State, want: State, first: int, fault: str) -> None:
    """From some write on the kernel takes nothing: the outcome names exactly what has stayed."""
    kernel = Kernel(have)
    kernel.faults = dict.fromkeys(range(first, 200), fault)
    outcome = run(kernel, wanted(want))
    if outcome.applied:
        return
    changed = {key for key in have if settled(kernel.state)[key] != settled(have)[key]}
    told = {(int(group[-1]), file) for group, file, _, _ in outcome.written}
    reset = {(level, "cpu.shares") for level in range(LEVELS)}  # by cpu.idle: changed, or changed back by it
    assert told - reset == changed - reset
    assert len(outcome.refusals) == 1 + len(outcome.written)
    assert all("not put back" in str(refusal) for refusal in outcome.refusals[1:])


@given(
    states(), st.lists(st.tuples(st.integers(0, 2), st.sampled_from(FILES), st.integers(2, 9)), max_size=6)
)
@settings(max_examples=60, deadline=None)
def test_raise_never_lowers(have: State, raises: list[tuple[int, str, int]]) -> None:
    entries = [
        (level, "raise", file, str(4096 * count if file.startswith("memory") else count))
        for level, file, count in {
            (level, file): (level, file, count) for level, file, count in raises
        }.values()
        if file in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "cpu.shares")
    ]
    kernel = Kernel(have)
    outcome = run(kernel, entries)
    for key, value in have.items():
        assert values.higher(key[1], value, kernel.state[key]) in (values.SAME, values.RAISES)
    if outcome.applied:
        for level, _, file, value in entries:
            assert values.higher(file, value, kernel.state[level, file]) in (values.SAME, values.RAISES)


def test_a_raise_that_others_exceed_is_none_to_take_back() -> None:
    have = plain_state()
    entry: Entry = (1, "raise", "memory.limit_in_bytes", "8192")
    kernel = Kernel(have)
    kernel.faults = {0: "exceed"}
    assert run(kernel, [entry]).applied
    assert kernel.state[1, "memory.limit_in_bytes"] == "12288"
    kernel = Kernel(have)
    kernel.faults = {0: "exceed"}
    refused = run(kernel, [(1, "set", "memory.limit_in_bytes", "8192")])
    assert "the kernel made it 12288" in str(refused.refusals[0])
    assert kernel.state == have


def test_what_others_raised_further_is_not_put_back() -> None:
    have = plain_state()
    for mode, left in (("raise", "12288"), ("set", "4096")):
        kernel = Kernel(have)
        kernel.faults = {1: "others"}
        outcome = run(kernel, [(1, mode, "memory.limit_in_bytes", "8192"), (0, "set", "cpu.shares", "99")])
        assert [refusal.file for refusal in outcome.refusals] == ["cpu.shares"]
        assert kernel.state == {**have, (1, "memory.limit_in_bytes"): left}
