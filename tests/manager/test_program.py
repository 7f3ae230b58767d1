"""The manager as a whole: its port, its lease, and how it stops."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from adapters.api import LEASES, PODS, POLICIES
from adapters.memory import MemoryAPI
from adapters.serving.addresses import listen
from lab import ports
from manager.commands import app
from manager.config import ManagerConfig
from manager.program import Program

pytestmark = pytest.mark.program


async def test_it_leads_looks_and_shows_what_it_found(make_policy, make_pod, eventually):
    api = MemoryAPI()
    api.put(POLICIES, make_policy())
    api.put(PODS, make_pod("a"))
    opened = listen("127.0.0.1:0")
    url = f"http://127.0.0.1:{opened.getsockname()[1]}"
    program = Program(ManagerConfig(identity="m1"), api)
    stop = asyncio.Event()
    task = asyncio.create_task(program.run(stop, opened))
    try:
        await eventually(lambda: program.below_floor.counts)
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"{url}/readyz")).json() == {"status": "ok"}
            shown = (await client.get(f"{url}/metrics")).text
        assert 'j10ce_pods_below_floor{namespace="shop",policy="checkout"} 1.0' in shown
        assert "j10ce_manager_leader 1.0" in shown
        lease = api.get_object(LEASES, "j10ce-system", "j10ce-manager")
        assert lease["spec"]["holderIdentity"] == "m1"
    finally:
        stop.set()
        await task
    assert api.get_object(LEASES, "j10ce-system", "j10ce-manager")["spec"]["holderIdentity"] == ""


async def test_a_standby_does_nothing_until_the_leader_stops(make_policy, make_pod, eventually):
    api = MemoryAPI()
    api.put(POLICIES, make_policy())
    api.put(PODS, make_pod("a"))
    stops, tasks, programs = [], [], []
    for name in ("m1", "m2"):
        programs.append(Program(ManagerConfig(identity=name), api))
        stops.append(asyncio.Event())
        tasks.append(asyncio.create_task(programs[-1].run(stops[-1], listen("127.0.0.1:0"))))
        await eventually(lambda: programs[0].below_floor.counts)
    await eventually(lambda: programs[1].elector.holder == "m1")
    assert programs[1].below_floor.counts == {}
    stops[0].set()
    await tasks[0]
    await eventually(lambda: programs[1].below_floor.counts)
    stops[1].set()
    await tasks[1]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The program with an API server that is away, and its URL."""
    (port,) = ports.reserve(tmp_path, 1)
    cluster = {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "none"}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(document))
    argv = [sys.executable, "-P", "-c", "from manager.commands import main; main()"]
    argv += ["--kubeconfig", str(tmp_path / "kubeconfig"), "--address", f"127.0.0.1:{port}"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as started:
        yield started, f"http://127.0.0.1:{port}"
        started.kill()


def test_without_an_api_server_it_is_not_ready_but_lives_and_stops_when_asked_to(process):
    manager, url = process
    assert any("serving" in line for line in manager.stderr)
    with httpx.Client(transport=httpx.HTTPTransport(retries=20), timeout=60) as client:
        assert client.get(f"{url}/healthz").status_code == 200
        unready = client.get(f"{url}/readyz")
    assert unready.status_code == 503
    assert unready.json()["status"].startswith("not listed yet: ")
    manager.send_signal(signal.SIGTERM)
    started = time.monotonic()
    rest = manager.stderr.read()
    assert manager.wait(60) == 0, rest
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lease", "one"], "lease"),
        (["--address", "here"], "address"),
        (["--log-level", "loud"], "loud"),
        (["--kubeconfig", "/nonexistent/kubeconfig"], "kubeconfig: /nonexistent/kubeconfig is not a file"),
    ],
)
def test_bad_flags_end_the_program_with_a_message(arguments, words):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code != 0
    assert words in result.output
