"""Python's garbage collector, and a cluster that is listed: what comes in lives as long as its pod.

A full collection walks over all objects there are. While 150,000 pods were listed there were 32 of them, of
up to a quarter of a second each, in which nothing is answered; and as pods come and go there would be more.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

_USUAL: Final = gc.get_threshold()
_YOUNG: Final = (5_000, 5, 2**31 - 1)
"""Only young objects are looked at: in a few milliseconds, once in 5,000 that were made and not freed."""


def keep() -> None:
    """Collect what has come since the last call, and never look again at what lives.

    Called often enough it takes a few milliseconds. Objects are freed as before when nothing refers to them;
    only a ring of them that outlives a call stays, and what lives long here makes no rings.
    """
    gc.collect()
    gc.freeze()


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
