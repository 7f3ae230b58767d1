"""Values of several parts: CPU lists (cpuset(7): 0-3,8), and limits a device (8:0 rbps=1 wbps=2). Pure.

A CPU list is one number, a bit a CPU. device-limits (io.max) has four numbers, device-limit
(blkio.throttle.*) one, where the kernel's 0 is UNLIMITED. Reached through kernel/values.py.
"""

from kernel.numbers import UNLIMITED, UNSAID, Form, integer, limit, limit_text, two, within

_KEYS = ("rbps", "wbps", "riops", "wiops")
_HIGHEST_CPU = 65535


def parse(kind: str, value: str, low: int, high: int) -> Form:
    """A value to be written, each number from low to high. Raises ValueError with the reason."""
    if kind == "cpus":
        mask = _cpus(value, high)
        if not mask or mask & ((1 << low) - 1):
            raise ValueError("not a list of CPUs from " + str(low) + " to " + str(high) + ", such as 0-3,8")
        return "", (mask,)
    device, rest = two(value, " ")
    _check_device(device)
    if kind == "device-limit":
        return device, (within(integer(rest), low, high) or UNLIMITED,)
    limits: dict[str, int] = {}
    for pair in rest.split(" "):
        key, number = two(pair, "=")
        if key not in _KEYS or key in limits:
            raise ValueError("not each of rbps, wbps, riops, wiops at most once")
        limits[key] = limit(number, low, high)
    return device, tuple([limits.get(key, UNSAID) for key in _KEYS])


def present(kind: str, text: str, device: str) -> Form:
    """What the kernel's text says of a device (nothing: no limit), or which CPUs. Raises ValueError."""
    if kind == "cpus":
        return "", (_cpus(text.strip(), _HIGHEST_CPU),)
    for line in text.split("\n"):
        name, _, rest = line.partition(" ")
        if name == device and kind == "device-limit":
            return device, (integer(rest) or UNLIMITED,)
        if name == device:
            limits = dict([two(pair, "=") for pair in rest.split(" ")])
            return device, tuple([limit(limits.get(key, "max"), 0, UNLIMITED) for key in _KEYS])
    return device, (UNLIMITED,) * (1 if kind == "device-limit" else len(_KEYS))


def render(kind: str, form: Form) -> str:
    """The form as text to write."""
    device, numbers = form
    if kind == "cpus":
        return _cpu_list(numbers[0])
    if kind == "device-limit":
        return device + " " + ("0" if numbers[0] == UNLIMITED else str(numbers[0]))
    pairs = [_KEYS[i] + "=" + limit_text(number) for i, number in enumerate(numbers) if number != UNSAID]
    return device + " " + " ".join(pairs)


def differ(kind: str, have: Form, want: Form) -> "tuple[bool, bool]":
    """Whether something in `want` is higher than in `have`, and whether something is lower."""
    if kind == "cpus":
        mine, other = have[1][0], want[1][0]
        return bool(other & ~mine), bool(mine & ~other)
    pairs = [(mine, want[1][i]) for i, mine in enumerate(have[1]) if want[1][i] != UNSAID]
    return any(other > mine for mine, other in pairs), any(other < mine for mine, other in pairs)


def joined(kind: str, have: Form, want: Form) -> Form:
    """The least value that is lower than neither; of what `want` does not say, nothing."""
    if kind == "cpus":
        return "", (have[1][0] | want[1][0],)
    numbers = [UNSAID if want[1][i] == UNSAID else max(mine, want[1][i]) for i, mine in enumerate(have[1])]
    return want[0], tuple(numbers)


def _check_device(text: str) -> None:
    major, minor = two(text, ":")
    within(integer(major), 0, 4095)
    within(integer(minor), 0, 1048575)


def _cpus(text: str, high: int) -> int:
    mask = 0
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        low = integer(first)
        top = integer(last) if dash else low
        if not 0 <= low <= top <= high:
            raise ValueError("not a list of CPUs up to " + str(high) + ", such as 0-3,8")
        mask |= (1 << (top + 1)) - (1 << low)
    return mask


def _cpu_list(mask: int) -> str:
    parts = []
    cpu = 0
    while mask >> cpu:
        if mask >> cpu & 1:
            first = cpu
            while mask >> (cpu + 1) & 1:
                cpu += 1
            parts.append(str(first) if first == cpu else str(first) + "-" + str(cpu))
        cpu += 1
    return ",".join(parts)
