"""The agent's HTTP, for real."""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from prometheus_client import CollectorRegistry, Gauge, Metric
from prometheus_client.registry import Collector

from adapters.kubernetes.reviews import Access
from adapters.own_certificate import server_context
from agent.serving import _is_loopback, serving, serving_metrics

UNVERIFIED = ssl._create_unverified_context()


def registry_of_three() -> CollectorRegistry:
    registry = CollectorRegistry()
    Gauge("j10ce_agent_test", "A test.", registry=registry).set(3)
    return registry


async def test_metrics_health_and_readiness() -> None:
    problem = "the first pass is not done"
    async with (
        serving(("127.0.0.1", 0), registry_of_three(), lambda: "", lambda: problem) as (host, port),
        aiohttp.ClientSession(f"http://{host}:{port}") as session,
    ):
        async with session.get("/metrics") as answer:
            assert answer.status == 200
            assert "j10ce_agent_test 3.0" in await answer.text()
        async with session.get("/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
        async with session.get("/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "the first pass is not done\n")
        problem = ""
        async with session.get("/readyz") as answer:
            assert answer.status == 200


async def test_what_takes_a_while_to_read_is_read_before_each_page() -> None:
    """And holds up nobody else meanwhile."""
    registry, reading, done = CollectorRegistry(), asyncio.Event(), asyncio.Event()
    shown = Gauge("j10ce_agent_test", "A test.", registry=registry)

    async def refresh() -> None:
        reading.set()
        await done.wait()
        shown.inc()

    async with (
        serving(("127.0.0.1", 0), registry, lambda: "", lambda: "", refresh) as (host, port),
        aiohttp.ClientSession(f"http://{host}:{port}") as session,
    ):
        scraped = asyncio.create_task(session.get("/metrics"))
        await reading.wait()
        async with session.get("/healthz") as answer:
            assert answer.status == 200
        done.set()
        assert "j10ce_agent_test 1.0" in await (await scraped).text()
        async with session.get("/metrics") as answer:
            assert "j10ce_agent_test 2.0" in await answer.text(), "as it is now"


async def test_metrics_are_collected_on_the_loop_and_written_in_a_thread() -> None:
    collected_by: list[int] = []
    written_by: list[int] = []

    class Slow(Metric):
        def __getattribute__(self, name: str) -> object:
            if name == "samples":
                written_by.append(threading.get_ident())
            return super().__getattribute__(name)

    class Collects(Collector):
        def collect(self) -> list[Metric]:
            collected_by.append(threading.get_ident())
            metric = Slow("j10ce_agent_slow", "A test.", "gauge")
            metric.add_sample("j10ce_agent_slow", {}, 7)
            written_by.clear()
            return [metric]

    registry = CollectorRegistry()
    registry.register(Collects())
    async with (
        serving(("127.0.0.1", 0), registry, lambda: "", lambda: "") as (host, port),
        aiohttp.ClientSession(f"http://{host}:{port}") as session,
        session.get("/metrics") as answer,
    ):
        assert "j10ce_agent_slow 7.0" in await answer.text()
    assert set(collected_by) == {threading.get_ident()}
    assert written_by
    assert threading.get_ident() not in written_by


@pytest.mark.parametrize(
    ("peer", "is_one"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.7", False),
        ("::ffff:10.0.0.7", False),
        ("fe80::1%eth0", False),
        (None, False),
    ],
)
def test_who_is_on_the_loopback(peer: str | None, is_one: bool) -> None:
    assert _is_loopback(peer) is is_one


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Bearer good", 200),
        ("bearer good", 200),
        ("Bearer other", 403),
        ("Bearer guessed", 401),
        ("Basic good", 401),
        ("", 401),
        ("good", 401),
    ],
)
async def test_by_https_metrics_need_a_token(tmp_path: Path, header: str, status: int) -> None:
    async def asks(token: str, _: str) -> Access:
        return {"good": Access.ALLOWED, "other": Access.REFUSED}.get(token, Access.UNKNOWN)

    tls = server_context("node-1", "127.0.0.1", tmp_path)
    assert os.listdir(tmp_path) == [], "the key is in memory only"  # noqa: PTH208
    async with (
        serving_metrics(("127.0.0.1", 0), registry_of_three(), tls, asks) as (host, port),
        aiohttp.ClientSession(f"https://{host}:{port}") as session,
    ):
        headers = {"Authorization": header} if header else {}
        async with session.get("/metrics", headers=headers, ssl=UNVERIFIED) as answer:
            assert answer.status == status
            assert ("j10ce_agent_test 3.0" in await answer.text()) == (status == 200)
            assert ("WWW-Authenticate" in answer.headers) == (status == 401)


async def test_the_certificate_names_the_node_and_its_address(tmp_path: Path) -> None:
    async def asks(*_: str) -> Access:
        return Access.UNKNOWN

    tls = server_context("node-1.example", "127.0.0.1", tmp_path)
    async with serving_metrics(("127.0.0.1", 0), registry_of_three(), tls, asks) as served:
        pem = await asyncio.to_thread(ssl.get_server_certificate, served)
    names = x509.load_pem_x509_certificate(pem.encode()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == ["node-1.example"]
    assert [str(one) for one in names.value.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
