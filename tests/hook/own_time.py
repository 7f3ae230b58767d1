"""Time for the hook, on a machine that may stand still: its own, or as much as a node can give it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from hook.config import LARGEST_BUDGET_MS
from hook.installation import record
from hook.installation.places import Places

_SINCE_BOOT = 50_000.0


class OwnTime:
    """For `time` in the hook's modules: pauses move it, and so does a question, by what that `costs`."""

    CLOCK_BOOTTIME = time.CLOCK_BOOTTIME

    def __init__(self) -> None:
        self.now = 1000.0
        self.costs = 0.0
        self.asked: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        """Seconds; `asked` is called."""
        self.now += self.costs
        self.asked()
        return self.now

    def clock_gettime(self, clock: int) -> float:
        """Seconds since the boot."""
        assert clock == self.CLOCK_BOOTTIME
        return self.now + _SINCE_BOOT

    def sleep(self, seconds: float) -> None:
        """Let this many seconds pass."""
        self.now += seconds


@contextlib.contextmanager
def largest_budget(places: Places) -> Iterator[None]:
    """The administrator's settings give the hook all the time there is, for the block."""
    missing = record.missing_folders(places.config.parent)
    places.config.parent.mkdir(parents=True, exist_ok=True)
    with places.config.open("x") as file:
        file.write(f"budget-ms {LARGEST_BUDGET_MS}\n")
    places.config.chmod(0o600)
    try:
        yield
    finally:
        places.config.unlink()
        for folder in reversed(missing):
            folder.rmdir()
