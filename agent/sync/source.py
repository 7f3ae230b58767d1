"""Where pods and rules come from: an API server, or a folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

Kind: TypeAlias = Literal["pods", "rules"]
Changed: TypeAlias = Callable[[Kind, str], None]
"""What is called on the loop after Known was changed: which part, and the key in it."""


class Source(Protocol):
    """Changes Known in place, on the loop, then calls `changed`. Nothing is dropped for lack of data.

    spoken: set once the source has reported everything there is, rules included. Until then what is not in
    Known may well exist, and nothing may be taken away because it is absent.
    """

    spoken: asyncio.Event

    async def run(self) -> None:
        """Until cancelled."""
        ...

    def problem(self) -> str:
        """Why what is known may be old, for people; "": it is not."""
        ...
