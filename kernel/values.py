"""What may be written into a kernel file, and how two values of it compare. Pure.

The kinds are those of kernel/allowed.py; those of several parts (CPU lists, lines a device) are in
kernel/lists.py, which is imported only where there are some. A Form is a value taken apart, as in
kernel/numbers.py.
"""

from kernel.allowed import ALLOWED
from kernel.numbers import UNLIMITED, Form, integer, limit, limit_text, two, within

SAME = 0
RAISES = 1
LOWERS = -1
MIXED = 2
"""Neither: CPU lists of which none contains the other, device limits of which one goes up and one down."""

_V1_UNLIMITED = 0x7FFFFFFFFFFF0000
"""memory.*_in_bytes without a limit: LONG_MAX in whole pages; this is it for the largest pages (64 KiB)."""
_PERIODS = (1000, 1000000)
_LONGEST = 4096
_LISTS = ("cpus", "device-limit", "device-limits")


def valid(file: str, value: str) -> str:
    """Why the value cannot be written into the file; "" if it can."""
    try:
        parse(file, value)
    except ValueError as error:
        return str(error)
    return ""


def equal(file: str, have: str, want: str) -> bool:
    """Whether the file, which reads `have`, already holds `want`. Rounded by the kernel is not equal."""
    return higher(file, have, want) == SAME


def higher(file: str, have: str, want: str) -> int:
    """RAISES if `want` is higher than what the file reads, LOWERS, SAME or MIXED. Raises ValueError."""
    form = parse(file, want)
    return compare(file, present(file, have, form), form)


def parse(file: str, value: str) -> Form:
    """A value to be written, taken apart. Raises ValueError with the reason."""
    if file not in ALLOWED:
        raise ValueError("not a file that we write")
    if len(value) > _LONGEST:
        raise ValueError("longer than " + str(_LONGEST) + " characters")
    _, kind, low, high, _ = ALLOWED[file]
    if kind == "integer":
        return "", (within(integer(value), low, high),)
    if kind == "integer-or-max":
        return "", (limit(value, low, high),)
    if kind == "signed":
        number = -1 if value == "-1" else within(integer(value), max(low, 0), high)
        return "", (UNLIMITED if number < 0 or number >= _V1_UNLIMITED else number,)
    if kind == "quota":
        quota, period = two(value, " ")
        return "", (limit(quota, low, high), within(integer(period), *_PERIODS))
    if kind == "weight":
        return "", (within(integer(value[8:] if value.startswith("default ") else value), low, high),)
    from kernel import lists

    return lists.parse(kind, value, low, high)


def present(file: str, text: str, want: Form) -> Form:
    """What the kernel's text says of what `want` is about (its device). Raises ValueError for garbage."""
    kind = ALLOWED[file][1]
    if kind in _LISTS:
        from kernel import lists

        return lists.present(kind, text, want[0])
    line = text.partition("\n")[0]
    if kind == "quota":
        quota, period = two(line, " ")
        return "", (UNLIMITED if quota == "max" else integer(quota), integer(period))
    if kind == "weight" and line.startswith("default "):
        line = line[8:]
    number = UNLIMITED if line == "max" else integer(line)
    if kind == "signed" and (number < 0 or number >= _V1_UNLIMITED):
        number = UNLIMITED
    return "", (number,)


def render(file: str, form: Form) -> str:
    """The form as text to write: present() of what the kernel makes of it is the form again."""
    kind = ALLOWED[file][1]
    if kind in _LISTS:
        from kernel import lists

        return lists.render(kind, form)
    if kind == "signed" and form[1][0] == UNLIMITED:
        return "-1"
    return " ".join([limit_text(number) for number in form[1]])


def compare(file: str, have: Form, want: Form) -> int:
    """RAISES if `want` is the higher one, LOWERS, SAME or MIXED."""
    if have == want:
        return SAME
    kind = ALLOWED[file][1]
    if kind in _LISTS:
        from kernel import lists

        up, down = lists.differ(kind, have, want)
        if up and down:
            return MIXED
        return RAISES if up else LOWERS if down else SAME
    if kind == "quota":
        return RAISES if _share(want) > _share(have) else LOWERS
    return RAISES if want > have else LOWERS


def joined(file: str, have: Form, want: Form) -> Form:
    """The least value that is lower than neither: what a shared cgroup gets."""
    kind = ALLOWED[file][1]
    if kind in _LISTS:
        from kernel import lists

        return lists.joined(kind, have, want)
    return want if compare(file, have, want) == RAISES else have


def _share(form: Form) -> "tuple[int, int]":
    """Orders quotas: CPU time a period; of equal ones the longer quota is the higher."""
    quota, period = form[1]
    return (UNLIMITED, period) if quota == UNLIMITED else (quota * 1000000 // period, quota)
