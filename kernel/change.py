"""One setting under way: what the file held, what it shall hold, and the way back."""

from kernel import values
from kernel.allowed import ALLOWED, IN_USE
from kernel.files import Group
from kernel.numbers import Form
from kernel.refused import Refused

SET = "set"
RAISE = "raise"
"""The modes of an entry (qos.plan.settings): exactly the value; at least the value, in a shared cgroup."""

GATE = "cpu.idle"
WEIGHTS = ("cpu.weight", "cpu.shares")
"""cpu.idle resets these: 1 to the weight of an idle cgroup, which cannot be changed, 0 to the default."""


class Change:
    """A setting of one open cgroup. All methods raise Refused.

    `value`: what is written; `before`: what would restore the present value. After look(): `direction` from
    the present value to the wanted one, as in kernel/values.py. `order`: of the file in kernel/allowed.py.
    `later`: it is not written now, because the kernel would reclaim within the write.
    """

    __slots__ = (
        *("_after", "_have", "_weight", "before", "direction", "file"),
        *("group", "later", "level", "mode", "order", "value", "want"),
    )

    def __init__(self, group: Group, level: int, mode: str, file: str, value: str) -> None:
        self.group = group
        self.level = level
        self.mode = mode
        self.file = file
        self.value = value
        try:
            self.want = values.parse(file, value)
        except ValueError as error:
            raise Refused(str(error), group.name, file, value) from None
        self.order = ALLOWED[file][4]
        self.before = ""
        self.direction = values.SAME
        self.later = False
        self._have: Form = self.want
        self._after: Form | None = None
        self._weight = ("", "")

    @property
    def closes(self) -> bool:
        """It makes a cgroup idle: nothing can be done to its weight afterwards."""
        return self.file == GATE and self.want[1] != (0,)

    def look(self) -> None:
        """Read the present value and compare."""
        self._have = self._present()
        self.before = values.render(self.file, self._have)
        if self.mode == RAISE:
            joined = values.joined(self.file, self._have, self.want)
            if joined != self.want:
                self.want, self.value = joined, values.render(self.file, joined)
        self.direction = values.compare(self.file, self._have, self.want)

    def reclaims(self) -> bool:
        """Whether the kernel would reclaim within the write: it lowers a limit below what is in use.

        What is in use and cannot be read may be anything.
        """
        if self.direction != values.LOWERS or self.file not in IN_USE:
            return False
        try:
            return int(self.group.read(IN_USE[self.file])) > self.want[1][0]
        except (Refused, ValueError):
            return True

    def widened(self) -> "Change | None":
        """For CPU lists neither of which contains the other: first their union, so that no child leaves its
        parent's.
        """
        if ALLOWED[self.file][1] != "cpus":
            return None
        both = values.joined(self.file, self._have, self.want)
        step = Change(self.group, self.level, self.mode, self.file, values.render(self.file, both))
        step._have, step.before = self._have, self.before
        self._have, self.before = both, step.value
        return step

    def write(self) -> None:
        """Write, and read back: what the kernel changed without a word is a refusal with errno 0.

        It is no refusal where others have raised the file further meanwhile.
        """
        if self.closes:
            self._weight = self.present_weight()
        self.group.write(self.file, self.value)
        self._after = self._present()
        direction = values.compare(self.file, self._after, self.want)
        if direction != values.SAME and not (self.mode == RAISE and direction == values.LOWERS):
            kept = values.render(self.file, self._after)
            raise Refused("the kernel made it " + kept, self.group.name, self.file, self.value)

    def put_back(self) -> None:
        """Restore the value before, unless a file of a shared cgroup was raised by others meanwhile."""
        now = self._present()
        if self._same(now, self._have):
            return
        if self.mode == RAISE and self._after is not None and not self._same(now, self._after):
            return
        self.group.write(self.file, self.before)
        if self._weight[0]:
            self.group.write(*self._weight)
        now = self._present()
        if not self._same(now, self._have):
            kept = values.render(self.file, now)
            raise Refused("the kernel made it " + kept, self.group.name, self.file, self.before)

    def present_weight(self) -> "tuple[str, str]":
        """(file, value) of the cgroup's weight, which closing the gate resets; ("", ""): it has none."""
        for file in WEIGHTS:
            if self.group.has(file):
                return file, self.group.read(file).strip()
        return "", ""

    def _same(self, have: Form, want: Form) -> bool:
        return values.compare(self.file, have, want) == values.SAME

    def _present(self) -> Form:
        text = self.group.read(self.file)
        try:
            return values.present(self.file, text, self.want)
        except ValueError as error:
            found = text[:80].strip()
            raise Refused("it reads " + repr(found) + ": " + str(error), self.group.name, self.file) from None
