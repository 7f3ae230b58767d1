"""Python's garbage collector, and a cluster that is listed: what comes in lives as long as the process.

A full collection walks over all objects there are. While 150,000 pods were listed there were 32 of them, of
up to a quarter of a second each, in which nothing is answered.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

_USUAL: Final = gc.get_threshold()
_YOUNG: Final = (5_000, 5, 2**31 - 1)
"""Only young objects are looked at: in a few milliseconds, once in 5,000 that were made and not freed."""


@contextlib.contextmanager
def only_young() -> Iterator[None]:
    """No full collection inside; what is there at the end is never looked at again."""
    gc.freeze()
    gc.set_threshold(*_YOUNG)
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*_USUAL)
