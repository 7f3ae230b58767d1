"""The verbs' port: what is answered when, mutual TLS, keep-alive, and how it stops."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import ssl
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from adapters.api import NODES, PODS, POLICIES
from adapters.memory import MemoryAPI
from adapters.serving.addresses import listen
from adapters.serving.readiness import Readiness
from extender.metrics import Metrics
from extender.server import VerbsApp
from extender.verbs import Reply
from lab import ports
from ledger.decisions import Filtered

pytestmark = pytest.mark.program

POD = {"metadata": {"uid": "u", "name": "web", "namespace": "default"}, "spec": {"containers": []}}
FILTER = json.dumps({"Pod": POD, "Nodes": None, "NodeNames": ["n1"]}).encode()


class Stub:
    """A ledger that passes all, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def filter(self, _pod: Any, names: Any, *_: Any, **__: Any) -> Filtered:
        if self.error:
            raise self.error
        return Filtered(list(names))


class Unbound:
    """A binder with a bug."""

    async def bind(self, args: Any) -> str:
        raise RuntimeError("no API server")


def verbs_app(ledger: Any = None, *, ready: bool = True) -> VerbsApp:
    readiness = Readiness({}, lambda: 0.0)
    if ready:
        readiness.open()
    return VerbsApp(ledger or Stub(), Unbound(), readiness, Metrics(), lambda: 0.0)


async def ask(app: VerbsApp, path: str, body: bytes, method: str = "POST") -> tuple[int, Any]:
    """One request."""
    found = app.answer(method, path, body)
    reply = found if isinstance(found, Reply) else await found
    return reply.status, json.loads(reply.body)


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [("/nonsense", "POST", 404), ("/filter", "GET", 405), ("/", "POST", 404), ("/filter/", "POST", 404)],
)
async def test_nothing_but_posted_verbs(path, method, status):
    assert (await ask(verbs_app(), path, FILTER, method=method))[0] == status


@pytest.mark.parametrize("path", ["/filter", "/prioritize", "/preempt", "/bind"])
async def test_t05_every_verb_refuses_until_every_list_has_synced(path):
    status, answer = await ask(verbs_app(ready=False), path, FILTER)
    assert status == 503
    assert "not ready" in answer["Error"]


async def test_a_bug_costs_one_attempt_not_the_process():
    status, answer = await ask(verbs_app(Stub(RuntimeError("a bug"))), "/filter", FILTER)
    assert (status, answer["Error"]) == (500, "RuntimeError: a bug")


async def test_a_bug_in_bind_costs_one_attempt_too():
    bind = json.dumps({"PodUID": "u", "PodName": "p", "PodNamespace": "n", "Node": "x"}).encode()
    status, answer = await ask(verbs_app(), "/bind", bind)
    assert (status, answer["Error"]) == (500, "RuntimeError: no API server")


def test_an_address_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match=f"cannot listen on {address}"):
            listen(address)


# --- mutual TLS ---


class Certificates:
    """An authority, the extender's certificate, a client's, and a stranger's from another authority."""

    def __init__(self, folder: Path) -> None:
        self.authority, self.stranger = trustme.CA(), trustme.CA()
        own = self.authority.issue_cert("127.0.0.1")
        self.files = {
            "cert_file": folder / "cert.pem",
            "key_file": folder / "key.pem",
            "client_ca_file": folder / "ca.pem",
        }
        own.cert_chain_pems[0].write_to_path(self.files["cert_file"])
        own.private_key_pem.write_to_path(self.files["key_file"])
        self.authority.cert_pem.write_to_path(self.files["client_ca_file"])

    def client(self, issuer: trustme.CA | None) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if issuer is not None:
            issuer.issue_cert("kube-scheduler").configure_cert(context)
        return context


@pytest.fixture
def certificates(tmp_path) -> Certificates:
    return Certificates(tmp_path)


async def test_only_clients_of_the_authority_may_call_the_verbs(running, certificates):
    async with running(MemoryAPI(), tls=certificates.files) as program:
        url = f"https://{program.config.verbs_address}/filter"
        async with httpx.AsyncClient(verify=certificates.client(certificates.authority)) as known:
            assert (await known.post(url, content=FILTER)).status_code == 200
        for issuer in (None, certificates.stranger):
            async with httpx.AsyncClient(verify=certificates.client(issuer)) as unknown:
                with pytest.raises(httpx.TransportError):
                    await unknown.post(url, content=FILTER)
        async with httpx.AsyncClient() as plain:
            with pytest.raises(httpx.TransportError):
                await plain.post(url.replace("https", "http"), content=FILTER)


# --- the two ports together ---


async def test_verbs_and_the_rest_are_on_two_ports(running, make_node):
    api = MemoryAPI()
    api.put(NODES, make_node("n1"))
    async with running(api) as program, httpx.AsyncClient() as client:
        verbs, others = (f"http://{a}" for a in (program.config.verbs_address, program.config.address))
        answer = await client.post(f"{verbs}/filter", content=FILTER)
        assert answer.json()["NodeNames"] == ["n1"]
        assert (await client.post(f"{others}/filter", content=FILTER)).status_code == 404
        assert (await client.get(f"{verbs}/metrics")).status_code == 404
        assert (await client.get(f"{others}/readyz")).json() == {"status": "ok"}


async def test_a_bind_under_way_is_finished_when_it_stops(running, make_node, make_pod, eventually):
    api = MemoryAPI()
    api.put(NODES, make_node("n1"))
    pod = api.put(PODS, make_pod("web"))
    async with httpx.AsyncClient(timeout=60) as client:
        async with running(api, bind_deadline_seconds=60) as program:
            await eventually(lambda: program.ledger.known(pod["metadata"]["uid"]))
            gate = api.hang("bind")
            body = {
                "PodName": "web",
                "PodNamespace": "default",
                "PodUID": pod["metadata"]["uid"],
                "Node": "n1",
            }
            request = asyncio.create_task(
                client.post(f"http://{program.config.verbs_address}/bind", json=body)
            )
            await eventually(lambda: any(verb == "bind" for verb, _, _ in api.calls))
            finished = asyncio.create_task(finish(program, gate, eventually))
        answer = await request
        await finished
    assert answer.json() == {"Error": ""}
    assert api.get_object(PODS, "default", "web")["spec"]["nodeName"] == "n1"


async def finish(program: Any, gate: asyncio.Event, eventually: Any) -> None:
    """Open the gate once the program stops."""
    await eventually(lambda: program.readiness.report() == "shutting down")
    gate.set()


class Ahead:
    """The steady clock, moved ahead by this many seconds."""

    seconds = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.seconds


async def test_t05_a_stale_watch_makes_the_verbs_refuse_until_it_is_back(running, make_node, eventually):
    api, clock = MemoryAPI(), Ahead()
    api.put(NODES, make_node("n1"))
    async with running(api, clock=clock) as program, httpx.AsyncClient() as client:
        url = f"http://{program.config.verbs_address}/filter"
        clock.seconds = program.config.stale_seconds + 1
        refused = await client.post(url, content=FILTER)
        assert refused.status_code == 503
        assert "no contact with the API server" in refused.json()["Error"]
        api.bookmark()
        await eventually(lambda: not program.readiness.problem())
        assert (await client.post(url, content=FILTER)).status_code == 200


async def test_policies_reach_the_ledger_and_the_answer(running, make_node, make_policy, eventually):
    api = MemoryAPI()
    for name in ("n1", "n2"):
        api.put(NODES, make_node(name, cpu="4"))
    api.put(POLICIES, make_policy(count=4, cpu="2"))
    async with running(api, warmup_seconds=0.0) as program, httpx.AsyncClient() as client:
        url = f"http://{program.config.verbs_address}/filter"
        body = {"Pod": POD | {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}}
        refused = (await client.post(url, json=body | {"NodeNames": ["n1", "n2"]})).json()
        message = "holds of default/checkout are in the way"
        assert refused["FailedAndUnresolvableNodes"] == {"n1": message, "n2": message}
        owner = {"metadata": POD["metadata"] | {"labels": {"app": "checkout"}}, "spec": body["Pod"]["spec"]}
        passed = (await client.post(url, json={"Pod": owner, "NodeNames": ["n1", "n2"]})).json()
        assert len(passed["NodeNames"]) == 1
        status = lambda: api.get_object(POLICIES, "default", "checkout").get("status")  # noqa: E731
        await eventually(status)
        slots = status()["slots"]
        assert {name: count for name, count in slots.items() if count} == {"desired": 4, "held": 4}


# --- the process ---


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address that refuses connections, and is nobody else's."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
def kubeconfig(tmp_path: Path, nobody: str) -> Path:
    """The kubeconfig of an API server that is away."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {"name": "c", "cluster": {"server": f"https://{nobody}", "insecure-skip-tls-verify": True}}
        ],
        "users": [{"name": "u", "user": {"token": "none"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def process(tmp_path: Path, kubeconfig: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The program, and the URL of its second port."""
    verbs, other = ports.reserve(tmp_path, 2)
    argv = [
        sys.executable,
        Path(sysconfig.get_path("scripts")) / "j10ce-extender",
        "--kubeconfig",
        kubeconfig,
    ]
    argv += ["--verbs-address", f"127.0.0.1:{verbs}", "--address", f"127.0.0.1:{other}"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as started:
        yield started, f"http://127.0.0.1:{other}"
        started.kill()


def test_sigterm_ends_the_process_with_success(process):
    """Without an API server it is not ready, but it lives, says so, and stops when asked to."""
    extender, url = process
    assert any("serving" in line for line in extender.stderr)
    assert get(f"{url}/healthz") == (200, {"status": "ok"})
    status, answer = get(f"{url}/readyz")
    assert status == 503
    assert answer["status"].startswith("not listed yet: ")
    extender.send_signal(signal.SIGTERM)
    rest = extender.stderr.read()
    assert extender.wait(60) == 0, rest


def get(url: str) -> tuple[int, Any]:
    """GET, tried until the server accepts connections."""
    transport = httpx.HTTPTransport(retries=20)
    with httpx.Client(transport=transport, timeout=60) as client:
        answer = client.get(url)
        return answer.status_code, answer.json()
