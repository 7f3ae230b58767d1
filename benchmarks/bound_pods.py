"""What a watch of pods says: how many of a flood are bound, or nothing that anybody looks at."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

import aiohttp

from adapters.kubernetes.credentials import Endpoint
from adapters.kubernetes.protobuf import events as protobuf
from adapters.kubernetes.watching import Stream

_ADDED: Final = b"\n\x05ADDED"
"""WatchEvent's first field."""
_UNLIMITED: Final = aiohttp.ClientTimeout(total=None)
_IN_PROTOBUF: Final = {"Accept": protobuf.ONLY}


async def watch(endpoint: Endpoint, label: str, namespace: str = "default") -> AsyncGenerator[int, None]:
    """How many pods of the label are bound, whenever there are more.

    Watched in protobuf, as kube-scheduler does: the API server writes each event once for both. It ends
    the watch of a client that is late, and begins the next one with what is there.
    """
    query = {"watch": "true", "fieldSelector": "spec.nodeName!=", "labelSelector": f"flood={label}"}
    url = f"{endpoint.server}/api/v1/namespaces/{namespace}/pods"
    async with aiohttp.ClientSession(timeout=_UNLIMITED, headers=_IN_PROTOBUF) as session:
        while True:
            async with session.get(url, params=query, ssl=endpoint.tls or True) as answer:
                answer.raise_for_status()
                async for count in added(answer.content):
                    yield count


async def drain(endpoint: Endpoint) -> None:
    """Read what changes of all pods, in protobuf as the extender does, and drop it; until cancelled."""
    url = f"{endpoint.server}/api/v1/pods"
    async with (
        aiohttp.ClientSession(timeout=_UNLIMITED, headers=_IN_PROTOBUF) as session,
        session.get(url, params={"watch": "true"}, ssl=endpoint.tls or True) as answer,
    ):
        answer.raise_for_status()
        async for _chunk in answer.content.iter_any():
            pass


async def added(stream: Stream) -> AsyncIterator[int]:
    """How many objects a watch has added so far."""
    count = 0
    async for message in protobuf.messages(stream):
        if message.startswith(_ADDED):
            count += 1
            yield count
