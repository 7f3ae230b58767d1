"""Calls to the API server that are made three times before they count as failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from adapters.api import APIError, NotFound, Unreachable

RETRY_SECONDS: Final = 0.5
_TRIES: Final = 3
_REFUSED: Final = frozenset({400, 403, 422})
"""What the API server will answer again: a right is missing, or admission is against it."""


def refused(error: Exception) -> bool:
    """Whether the API server would answer the same again."""
    return isinstance(error, APIError) and error.status in _REFUSED


async def repeated(call: Callable[[], Awaitable[object]]) -> None:
    """Its last error is raised, NotFound and what is refused at once: APIError, Unreachable.

    A patch meets a conflict where others change the object all the time, or where it is another one.
    """
    for tried in range(1, _TRIES + 1):
        try:
            await call()
            return
        except NotFound:
            raise
        except (APIError, Unreachable) as error:
            if tried == _TRIES or refused(error):
                raise
            await asyncio.sleep(RETRY_SECONDS)
