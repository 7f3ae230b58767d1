"""Applies a container's settings: all of them, or none.

Order: first cpu.idle 1 -> 0 (an idle cgroup refuses weights); then what raises, parents before children; then
what lowers, children before parents; last cpu.idle 0 -> 1. Within a cgroup by the order of kernel/allowed.py,
reversed when lowering. Everything is checked and read before anything is written; each write is read back,
because kernels round and clamp without a word. After a refusal what was written is put back, last first.
"""

import time

from kernel.allowed import IN_USE
from kernel.change import GATE, RAISE, SET, WEIGHTS, Change
from kernel.refused import Gone, Refused
from kernel.target import Target
from kernel.values import LOWERS, MIXED, RAISES, SAME

TYPE_CHECKING = False  # typing's own would be an import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Entry = tuple[int, str, str, str]
"""(level, mode, file, value), as qos.plan.settings.Entry."""


class Refusal:
    """One setting that is not in effect, or could not be put back. `errno` 0: not the kernel's refusal."""

    __slots__ = ("errno", "file", "group", "text", "value")

    def __init__(self, group: str, file: str, value: str, errno: int, text: str) -> None:
        self.group = group
        self.file = file
        self.value = value
        self.errno = errno
        self.text = text

    def __str__(self) -> str:
        return str(Refused(self.text, self.group, self.file, self.value, self.errno))


class Outcome:
    """What became of a container's settings.

    `written`: (cgroup's path, file, value before, value) of each write that is in effect now, in order; after
    a refusal only what could not be put back. `kept`: how many settings needed no write. `refusals`: empty if
    all settings are in effect; the first is the cause, failures to put something back come last. `partly`: of
    settings that not all of the container's processes have; apply() sets the first one's alone. `gone`: the
    process or its cgroup ended meanwhile, so that nothing is left to keep a floor for. `later`: what was put
    off, in the order in which it is to be written.
    """

    __slots__ = ("gone", "kept", "later", "partly", "refusals", "written")

    def __init__(self) -> None:
        self.written: list[tuple[str, str, str, str]] = []
        self.kept = 0
        self.refusals: list[Refusal] = []
        self.partly: list[Refusal] = []
        self.gone = False
        self.later: list[Change] = []

    @property
    def applied(self) -> bool:
        """All settings are in effect."""
        return not self.refusals

    def refuse(self, why: Refused) -> None:
        """Add a refusal."""
        self.gone = self.gone or isinstance(why, Gone)
        self.refusals.append(Refusal(why.group, why.file, why.value, why.errno, why.text))


def apply(
    target: Target,
    entries: "list[Entry]",
    deadline: float = 0.0,
    looked: "Callable[[list[Change]], None] | None" = None,
    put_off: bool = False,
) -> Outcome:
    """Apply all entries, or none. `deadline`: on time.monotonic(); past it nothing more is written; 0: none.

    looked: called with what was read, after all was read and before anything is written; it raises nothing.
    put_off: what would make the kernel reclaim within the write is not written, and in the outcome's `later`.
    Raises nothing: refusals are in the outcome. The caller holds the lock of shared cgroups if an entry is
    RAISE: between reading and writing another process must not raise the same file.
    """
    outcome = Outcome()
    changes = _checked(target, entries, outcome)
    if outcome.refusals:
        return outcome
    later = _put_off(changes) if put_off else []
    if looked is not None:
        looked(changes)
    done: list[Change] = []
    try:
        for step in _steps(changes, outcome):
            if deadline and time.monotonic() > deadline:
                raise Refused("the time budget is used up", step.group.name, step.file, step.value)
            done.append(step)
            step.write()
    except Refused as refused:
        outcome.kept = 0
        outcome.refuse(refused)
        done = _put_back(done, outcome)
    else:
        outcome.later = later
    outcome.written = [(step.group.name, step.file, step.before, step.value) for step in done]
    return outcome


def _put_off(changes: "list[Change]") -> "list[Change]":
    """What would reclaim, and the limits of its cgroup that follow: one may have to be below another."""
    later: list[Change] = []
    lowering = [change for change in changes if change.file in IN_USE and change.direction == LOWERS]
    for change in sorted(lowering, key=_top_down, reverse=True):
        change.later = change.reclaims() or any(one.group is change.group for one in later)
        if change.later:
            later.append(change)
    return later


def _checked(target: Target, entries: "list[Entry]", outcome: Outcome) -> "list[Change]":
    """The entries with their cgroups open and read; what cannot be is refused, before anything is written."""
    changes: list[Change] = []
    seen: set[tuple[int, str, str]] = set()
    for level, mode, file, value in entries:
        try:
            if mode not in (SET, RAISE):
                raise Refused("the mode is neither set nor raise: " + mode, target.cgroup, file, value)
            change = Change(target.group(file, level), level, mode, file, value)
            key = (level, file, change.want[0])
            if key in seen:
                raise Refused("there are two settings of this", change.group.name, file, value)
            seen.add(key)
            change.look()
            changes.append(change)
        except Refused as refused:
            outcome.refuse(refused)
    for change in changes:
        if change.closes and any((change.level, weight, "") in seen for weight in WEIGHTS):
            outcome.refuse(
                Refused("an idle cgroup has no weight", change.group.name, change.file, change.value)
            )
    return changes


def _steps(changes: "list[Change]", outcome: Outcome) -> "Iterator[Change]":
    """The writes, in order. What comes after a write is decided after it: cpu.idle resets weights."""
    gates = [change for change in changes if change.file == GATE and change.direction != SAME]
    opened = [gate for gate in gates if not gate.closes]
    yield from sorted(opened, key=_top_down)
    for change in changes:
        if change.file in WEIGHTS and any(change.group is gate.group for gate in opened):
            change.look()
    rest = [one for one in changes if one.file != GATE and one.direction != SAME and not one.later]
    outcome.kept = sum(change.direction == SAME for change in changes)
    widened = [change.widened() for change in rest if change.direction == MIXED and change.level > 0]
    raising = [change for change in rest if change.direction == RAISES]
    yield from sorted(raising + [step for step in widened if step is not None], key=_top_down)
    lowering = [change for change in rest if change.direction in (LOWERS, MIXED)]
    yield from sorted(lowering, key=_top_down, reverse=True)
    yield from sorted([gate for gate in gates if gate.closes], key=_top_down, reverse=True)


def _top_down(change: Change) -> "tuple[int, int]":
    return -change.level, change.order


def _put_back(done: "list[Change]", outcome: Outcome) -> "list[Change]":
    """Undo in reverse; what fails is refused and stays in the list that is returned."""
    left = []
    for step in reversed(done):
        try:
            step.put_back()
        except Gone:
            outcome.gone = True
        except Refused as refused:
            refused.text = "not put back: " + refused.text
            outcome.refuse(refused)
            left.append(step)
    return left[::-1]
