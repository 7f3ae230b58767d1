"""Strangers who hold connections to the agent open, on the loop that it runs on and on the standard one."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop
from prometheus_client import CollectorRegistry

from adapters.kubernetes.reviews import Access
from adapters.own_certificate import server_context
from agent import admission
from agent.admission import MOST, listening
from agent.serving import serving, serving_metrics

UNVERIFIED = ssl._create_unverified_context()
Runs = Callable[[Coroutine[Any, Any, None]], None]
LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run])


async def refused(*_: str) -> Access:
    return Access.REFUSED


@contextlib.asynccontextmanager
async def served(folder: Path, *, https: bool) -> AsyncIterator[tuple[str, int]]:
    registry, anywhere = CollectorRegistry(), ("127.0.0.1", 0)
    if not https:
        async with serving(anywhere, registry, lambda: "", lambda: "") as address:
            yield address
        return
    tls = server_context("n1", "127.0.0.1", folder)
    async with serving_metrics(anywhere, registry, tls, refused) as address:
        yield address


async def is_heard(address: tuple[str, int], *, https: bool) -> bool:
    host, port = address
    async with (
        aiohttp.ClientSession(f"http{'s' * https}://{host}:{port}") as session,
        session.get("/metrics", ssl=UNVERIFIED) as answer,
    ):
        return answer.status == (403 if https else 200)


async def still_open(connections: list[socket.socket]) -> int:
    """How many of these the other side has not ended."""

    def is_open(one: socket.socket) -> bool:
        one.settimeout(0.05)
        try:
            return one.recv(1) != b""
        except TimeoutError:
            return True
        except OSError:
            return False

    return await asyncio.to_thread(lambda: sum(map(is_open, connections)))


@LOOPS
@pytest.mark.parametrize("https", [False, True])
def test_who_says_nothing_is_bounded_and_keeps_nobody_out(tmp_path: Path, run: Runs, https: bool) -> None:
    async def scene() -> None:
        async with served(tmp_path, https=https) as address:
            connect = socket.create_connection
            silent = [await asyncio.to_thread(connect, address, 5) for _ in range(2 * MOST)]
            assert await is_heard(address, https=https)
            assert await still_open(silent) <= MOST
            for one in silent:
                one.close()

    run(scene())


@LOOPS
def test_a_handshake_that_never_comes_ends(
    tmp_path: Path, run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "HANDSHAKE_SECONDS", 0.1)

    async def scene() -> None:
        async with served(tmp_path, https=True) as address:
            reader, writer = await asyncio.open_connection(*address)
            async with asyncio.timeout(10):
                assert await reader.read() == b""
            writer.close()

    run(scene())


@LOOPS
def test_nothing_is_left_when_it_ends(tmp_path: Path, run: Runs) -> None:
    async def scene() -> None:
        async with served(tmp_path, https=True) as address:
            silent = await asyncio.to_thread(socket.create_connection, address, 5)
            assert await is_heard(address, https=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert await still_open([silent]) == 0
        silent.close()

    run(scene())


async def test_every_address_is_listened_on() -> None:
    registry = CollectorRegistry()
    async with serving(("", 0), registry, lambda: "", lambda: "") as (host, port):
        assert host in ("0.0.0.0", "::")
        assert await is_heard(("127.0.0.1" if host == "0.0.0.0" else "[::1]", port), https=False)


async def test_an_address_that_is_taken_is_named() -> None:
    async with listening(("127.0.0.1", 0), asyncio.Protocol, None) as (host, port):
        with pytest.raises(OSError, match=f"cannot listen on {host}:{port}"):
            async with listening((host, port), asyncio.Protocol, None):
                pass
