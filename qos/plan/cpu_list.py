"""Lists of CPUs as the kernel writes them: 0-3,8. Pure."""

from __future__ import annotations


def cpu_count(cpus: str) -> int:
    """How many CPUs a list names; "" names none. ValueError: it is no list."""
    return sum(_length(part) for part in cpus.split(",")) if cpus.strip() else 0


def _length(part: str) -> int:
    first, _, last = part.partition("-")
    length = int(last or first) - int(first) + 1
    if length < 1:
        raise ValueError(f"CPUs {part}: the last is below the first")
    return length
