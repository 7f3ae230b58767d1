"""Python's garbage collector where a cluster or a node is listed: what comes in lives as long as its pod.

A full collection walks over all objects there are. While 150,000 pods were listed there were 32 of them, of
up to a quarter of a second each, in which nothing is answered; and as pods come and go there would be more.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator
from typing import Final

_USUAL: Final = gc.get_threshold()
_YOUNG: Final = (2_000, 5, 2**31 - 1)
"""Only young objects are looked at: in a few milliseconds, once in 2,000 that were made and not freed."""


_SMALL: Final = 400_000
"""Blocks of memory of as many objects as a full collection walks over in about 10 ms."""


class Keeper:
    """Collects what has come since its last call, and does not look again at what lives.

    Called often enough a call takes a few milliseconds. Objects are freed as before when nothing refers to
    them. A ring of them that outlives a call stays until twice as many blocks of memory are in use as after
    the last full collection: then there is another one, of some 100 ms with 150,000 pods. Blocks, because
    Python counts what it has frozen one by one: 20 ms with as many pods.
    """

    def __init__(self, small: int = _SMALL) -> None:
        self._small = small
        self._least: int | None = None

    def keep(self) -> None:
        """Collect what is young, or all when there is reason to."""
        gc.collect()
        gc.freeze()
        kept = sys.getallocatedblocks()
        self._least = kept if self._least is None else min(self._least, kept)
        if kept > 2 * max(self._least, self._small):
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._least = sys.getallocatedblocks()


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
