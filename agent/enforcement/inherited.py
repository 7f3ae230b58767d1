"""Which of a container's processes get what is planned for its first one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agent.enforcement.originals import Record


def due(want: str, record: Record | None, before: Iterable[str] = ()) -> Callable[[str], bool]:
    """Whether a process with this value is to get `want`.

    record: what is known of the first process; before: what that one had until now. A process that asks to be
    killed sooner than planned does so for itself, and stays; one that has what the first one had inherited
    it.
    """
    inherited = {value for value in before if value != want}
    if record is not None:
        inherited |= {value for value in record if value not in (None, "", want)}
    planned = int(want)

    def is_due(value: str) -> bool:
        return value in inherited or int(value) < planned

    return is_due
