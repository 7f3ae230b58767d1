"""The client against a real HTTP server that says what a test wants said."""

import asyncio
import contextlib
import gc
import json
import socket
import ssl
import weakref

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapters.api import (
    LEASES,
    NODES,
    PODS,
    POLICIES,
    APIError,
    Conflict,
    Ended,
    Gone,
    NotFound,
    NotTaken,
    Unreachable,
)
from adapters.kubernetes import calls, lanes
from adapters.kubernetes import client as client_module
from adapters.kubernetes.client import KubernetesAPI, Timeouts
from adapters.kubernetes.credentials import Endpoint
from tests.waiting import eventually

LONG = 30.0
SHORT = 0.3


class Script:
    """Answers in turn with what was put in `answers`, the last one for ever; remembers the requests."""

    def __init__(self):
        self.answers = []
        self.requests = []
        self.connections = set()

    async def handle(self, request):
        body = await request.read()
        self.requests.append((request.method, request.path, dict(request.query), dict(request.headers), body))
        self.connections.add(id(request.transport))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request) if callable(answer) else web.json_response(answer[1], status=answer[0])


@pytest.fixture
async def script():
    return Script()


@pytest.fixture
async def server(script):
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.handle)
    async with TestServer(app) as running:
        yield running


@pytest.fixture
async def connect(server):
    made = []

    def make(timeouts=None, authorization=None):
        endpoint = Endpoint(str(server.make_url("")), authorization=authorization)
        made.append(KubernetesAPI(endpoint, timeouts or Timeouts(LONG, LONG, LONG, LONG)))
        return made[-1]

    yield make
    for api in made:
        await api.aclose()


def status(code, reason="Reason", message="why"):
    return code, {"kind": "Status", "code": code, "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("code", "error"),
    [(404, NotFound), (409, Conflict), (410, Gone), (403, APIError), (422, APIError), (302, APIError)],
)
async def test_answers_that_settle_the_outcome(connect, script, code, error):
    script.answers = [status(code)]
    with pytest.raises(
        error, match=f"{code} Reason: POST /api/v1/namespaces/shop/pods/web-1/binding: why"
    ) as e:
        await connect().bind("shop", "web-1", "u1", "n1", {})
    assert (type(e.value), e.value.status, e.value.reason) == (error, code, "Reason")


@pytest.mark.parametrize(("code", "kind"), [(500, Ended), (502, Ended), (503, Ended), (504, Unreachable)])
async def test_answers_that_leave_the_outcome_open(connect, script, code, kind):
    script.answers = [status(code)]
    with pytest.raises(Unreachable, match=f"{code} Reason: why") as error:
        await connect().bind("shop", "web-1", "u1", "n1", {})
    assert type(error.value) is kind, "after a timeout the server may still be at work"
    assert len(script.requests) == 1


async def test_an_error_of_a_proxy_says_nothing_of_the_request(connect, script):
    async def proxy(request):
        return web.Response(status=503, text="<html>no backend</html>")

    script.answers = [proxy]
    with pytest.raises(Unreachable) as error:
        await connect().bind("shop", "web-1", "u1", "n1", {})
    assert type(error.value) is Unreachable


async def test_an_error_that_is_no_status_object(connect, script):
    async def plain(request):
        return web.Response(status=403, text="a proxy says no")

    script.answers = [plain]
    with pytest.raises(APIError, match="a proxy says no"):
        await connect().get(PODS, "shop", "web-1")


async def test_no_answer_in_time(connect, script):
    async def hang(request):
        await asyncio.Event().wait()

    script.answers = [hang]
    with pytest.raises(Unreachable, match="TimeoutError"):
        await connect(Timeouts(request=SHORT)).get(PODS, "shop", "web-1")


async def test_a_connection_cut_before_and_within_the_answer(connect, script):
    async def cut(request):
        request.transport.abort()
        return web.Response()

    async def cut_within(request):
        answer = web.StreamResponse(headers={"Content-Length": "1000"})
        await answer.prepare(request)
        await answer.write(b"{")
        request.transport.abort()
        return answer

    for how in (cut, cut_within):
        script.answers = [how]
        with pytest.raises(Unreachable):
            await connect().bind("shop", "web-1", "u1", "n1", {})


async def test_nobody_listens():
    async with KubernetesAPI(Endpoint("http://127.0.0.1:1")) as api:
        with pytest.raises(NotTaken, match="NotSentError"):
            await api.get(PODS, "shop", "web-1")


def busy(seconds):
    async def answer(request):
        return web.json_response({"message": "busy"}, status=429, headers={"Retry-After": seconds})

    return answer


async def test_a_flood_of_binds_opens_few_connections(connect, script):
    go = asyncio.Event()

    async def wait(request):
        await go.wait()
        return web.json_response({})

    script.answers = [wait]
    api = connect()
    api._calls._lanes = lanes.Lanes(patience=LONG)
    binds = [asyncio.create_task(api.bind("shop", f"web-{n}", "u1", "n1", {})) for n in range(3 * lanes.FEW)]
    await eventually(lambda: len(script.requests) == lanes.FEW)
    go.set()
    await asyncio.gather(*binds)
    assert len(script.requests) == 3 * lanes.FEW
    assert len(script.connections) == lanes.FEW


async def test_a_connection_that_the_server_ends_is_not_used_again(connect, script):
    async def last(request):
        return web.json_response({}, headers={"Connection": "close"})

    script.answers = [last, (200, {})]
    api = connect()
    await api.get(PODS, "shop", "web-1")
    await api.get(PODS, "shop", "web-1")
    [kept] = api._calls._idle
    kept._transport.abort()
    await api.get(PODS, "shop", "web-1")
    assert len(script.requests) == 3
    assert api._calls._idle != [kept]


@pytest.mark.parametrize("deadline", ["the call's", "its caller's"])
async def test_one_call_without_an_answer_costs_no_other_the_same(connect, script, monkeypatch, deadline):
    """A machine before the API server is gone: connections that were idle are dead, and nothing says so."""
    dead, several = set(), asyncio.Event()

    async def answer(request):
        if id(request.transport) in dead:
            await asyncio.Event().wait()
        if len(script.connections) > 1:
            several.set()
        await several.wait()
        return web.json_response({})

    script.answers = [answer]
    api = connect()
    await asyncio.gather(*(api.get(PODS, "shop", f"web-{n}") for n in range(5)))
    dead |= script.connections
    api._timeouts = Timeouts(request=SHORT)
    if deadline == "the call's":
        with pytest.raises(Unreachable, match="TimeoutError"):
            await api.get(PODS, "shop", "web-1")
    else:  # such as an election's
        monkeypatch.setattr(calls, "PATIENCE_SECONDS", SHORT / 2)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SHORT * 0.9):
                await api.get(PODS, "shop", "web-1")
    await api.get(PODS, "shop", "web-1")


async def test_an_answer_that_nobody_waits_for_is_nobody_elses(connect, script):
    late = asyncio.Event()

    async def hang(request):
        await late.wait()
        return web.json_response({"of": "the first"})

    script.answers = [hang, (200, {"of": "the second"})]
    api = connect()
    first = asyncio.create_task(api.get(PODS, "shop", "web-1"))
    await eventually(lambda: script.requests)
    first.cancel()
    await asyncio.wait({first})
    late.set()
    assert await api.get(PODS, "shop", "web-1") == b'{"of": "the second"}'


async def test_what_follows_an_answer_unasked_is_not_the_next_answer(connect, script):
    async def two_answers(request):
        text = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nX-Begun: "
        request.transport.write(text)
        await asyncio.Event().wait()

    script.answers = [two_answers, (200, {"of": "the second"})]
    api = connect()
    assert await api.get(PODS, "shop", "web-1") == b"{}"
    assert not api._calls._idle
    assert await api.get(PODS, "shop", "web-1") == b'{"of": "the second"}'


async def test_a_failure_goes_when_it_was_dealt_with(connect, script):
    """The program's collector never looks again at what lives for some seconds: a ring would stay."""

    async def cut(request):
        request.transport.abort()
        return web.Response()

    async def left_by_failure(api):
        try:
            await api.get(PODS, "shop", "web-1")
        except Unreachable as error:
            return weakref.ref(error.__cause__)

    script.answers = [cut]
    refused = KubernetesAPI(Endpoint("http://127.0.0.1:1"))
    gc.disable()
    try:
        for api in (connect(), refused):
            left = await left_by_failure(api)
            await eventually(lambda ref=left: ref() is None)
    finally:
        gc.enable()


async def test_a_connection_that_is_closed_goes(connect, script):
    """Likewise."""
    script.answers = [(200, {})]
    api = connect()
    await api.get(PODS, "shop", "web-1")
    gc.disable()
    try:
        left = weakref.ref(api._calls._idle[0])
        await api.aclose()
        await eventually(lambda: left() is None)
    finally:
        gc.enable()


class Opening:
    """Connections that stand when they are told to."""

    def __init__(self, calls, monkeypatch):
        self.begun, self.go = 0, asyncio.Event()
        self._connect = calls._connect
        monkeypatch.setattr(calls, "_connect", self)

    async def __call__(self, tls):
        self.begun += 1
        await self.go.wait()
        return await self._connect(tls)


async def test_a_connection_that_came_too_late_serves_the_next_call(connect, script, monkeypatch):
    api = connect(Timeouts(request=SHORT))
    opening = Opening(api._calls, monkeypatch)
    with pytest.raises(NotTaken):
        await api.get(PODS, "shop", "web-1")
    script.answers = [(200, {})]
    opening.go.set()
    await eventually(lambda: api._calls._idle)
    await api.get(PODS, "shop", "web-1")
    assert opening.begun == 1


async def test_few_connections_are_opened_at_once_and_one_that_comes_free_is_taken(
    connect, script, monkeypatch
):
    script.answers = [(200, {})]
    api = connect()
    await api.get(PODS, "shop", "web-1")
    opening = Opening(api._calls, monkeypatch)
    await asyncio.gather(*(api.get(PODS, "shop", f"web-{n}") for n in range(10)))
    assert opening.begun == calls.OPENED_AT_ONCE
    assert len(script.connections) == 1
    opening.go.set()


async def test_a_call_that_waits_takes_a_connection_with_a_newer_certificate(connect, script, monkeypatch):
    own = connect()._calls
    opening = Opening(own, monkeypatch)
    script.answers = [(200, {})]
    contexts = [ssl.create_default_context() for _ in range(2)]
    asked = [
        asyncio.create_task(own.call("GET", "/", {}, None, tls=tls, seconds=LONG))
        for tls in (*contexts, contexts[1])
    ]
    await eventually(lambda: len(own._wanting) == len(asked))
    opening.go.set()
    await asyncio.gather(*asked)
    assert opening.begun <= len(asked) + 1
    own.close()


@pytest.fixture
def silent():
    """Makes an address where nothing is refused and nothing accepted."""
    with contextlib.ExitStack() as stack:

        def make(port):
            listening = stack.enter_context(socket.socket())
            listening.bind(("127.0.0.2", port))
            listening.listen(0)
            for _ in range(3):  # its queue is full
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(listening.getsockname())
            return listening.getsockname()[0]

        yield make


async def test_of_several_addresses_one_that_answers_is_enough(server, script, silent, monkeypatch):
    dead = silent(server.port)

    async def addresses(host, port, **_):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in (dead, server.host)]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", addresses)
    script.answers = [(200, {})]
    async with KubernetesAPI(Endpoint(f"http://several.test:{server.port}")) as api:
        assert await api.get(PODS, "shop", "web-1") == b"{}"


async def test_each_failure_to_connect_is_one_calls(connect, script, monkeypatch):
    api = connect()
    connect_really, tried = api._calls._connect, 0

    async def refused_twice(tls):
        nonlocal tried
        tried += 1
        if tried <= 2:
            raise ConnectionRefusedError
        return await connect_really(tls)

    monkeypatch.setattr(api._calls, "_connect", refused_twice)
    script.answers = [(200, {})]
    found = await asyncio.gather(
        *(api.get(PODS, "shop", f"web-{n}") for n in range(6)), return_exceptions=True
    )
    assert [type(one) for one in found] == [NotTaken] * 2 + [bytes] * 4


async def test_closing_leaves_nobody_waiting(connect, script, monkeypatch):
    api = connect()
    opening = Opening(api._calls, monkeypatch)
    call = asyncio.create_task(api.get(PODS, "shop", "web-1"))
    await eventually(lambda: opening.begun)
    await api.aclose()
    with pytest.raises(NotTaken):
        await call
    await eventually(lambda: not api._calls._opening)


async def test_what_waits_for_a_lane_to_its_deadline_was_not_taken(connect, script):
    async def hang(request):
        await asyncio.Event().wait()

    script.answers = [hang]
    api = connect(Timeouts(request=SHORT))
    api._calls._lanes = lanes.Lanes(few=1, patience=LONG)
    both = [api.get(PODS, "shop", "web-1") for _ in range(2)]
    first, second = await asyncio.gather(*both, return_exceptions=True)
    assert (type(first), type(second)) == (Unreachable, NotTaken)


async def test_a_call_waits_for_its_turn_only_as_long_as_there_is_time_for_an_answer(connect, script):
    """Sent later it would be cut off, and its connection with it: nobody behind it would fare better."""
    given_up = asyncio.Event()

    async def answer_then(request):
        await given_up.wait()
        return web.json_response({})

    script.answers = [answer_then]
    api = connect(Timeouts(request=2.0))
    api._calls._lanes = lanes.Lanes(few=1, patience=LONG)
    first = asyncio.create_task(api.get(PODS, "shop", "web-1"))
    await eventually(lambda: script.requests)
    with pytest.raises(NotTaken):
        await api.get(PODS, "shop", "web-2")
    given_up.set()
    assert await first == b"{}"
    assert len(script.requests) == 1


async def test_more_connections_are_opened_at_once_where_many_stand(connect, script, monkeypatch):
    everyone = asyncio.Event()

    async def wait(request):
        await everyone.wait()
        return web.json_response({})

    script.answers = [wait]
    api = connect()
    api._calls._lanes = lanes.Lanes(few=100)
    first = [asyncio.create_task(api.get(PODS, "shop", f"web-{n}")) for n in range(12)]
    await eventually(lambda: len(script.requests) == len(first))
    opening = Opening(api._calls, monkeypatch)
    more = [asyncio.create_task(api.get(PODS, "shop", f"more-{n}")) for n in range(12)]
    await eventually(lambda: opening.begun == len(first) // 2)
    everyone.set()
    await asyncio.gather(*first, *more)
    opening.go.set()


async def test_a_lease_waits_behind_no_other_call(connect, script):
    release = asyncio.Event()

    async def answer(request):
        if "leases" not in request.path:
            await release.wait()
        return web.json_response({})

    script.answers = [answer]
    api = connect()
    binds = [asyncio.create_task(api.get(PODS, "shop", f"web-{n}")) for n in range(lanes.MOST + 1)]
    assert await api.get(LEASES, "kube-system", "j10ce-extender") == b"{}"
    assert not any(bind.done() for bind in binds)
    release.set()
    await asyncio.gather(*binds)


async def test_a_head_without_end_is_no_answer(connect, script):
    async def talk(request):
        request.transport.write(b"HTTP/1.1 200 OK\r\n" + b"X-More: and more\r\n" * 10_000)
        await asyncio.Event().wait()

    script.answers = [talk]
    with pytest.raises(Unreachable, match="headers are too large"):
        await connect().get(PODS, "shop", "web-1")


async def test_what_is_said_on_the_way_is_no_answer(connect, script):
    async def process(request):
        request.transport.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        return web.json_response({"ok": True})

    script.answers = [process]
    assert await connect().get(PODS, "shop", "web-1") == b'{"ok": true}'


async def test_429_is_waited_out(connect, script):
    script.answers = [busy("0"), busy("0"), (200, {"ok": True})]
    assert await connect().get(PODS, "shop", "web-1") == b'{"ok": true}'
    assert len(script.requests) == 3


async def test_429_beyond_the_deadline_is_not_waited_for(connect, script):
    script.answers = [busy("3600")]
    with pytest.raises(NotTaken, match="429 : busy"):
        await connect().get(PODS, "shop", "web-1")
    assert len(script.requests) == 1


async def test_what_the_calls_look_like(connect, script):
    script.answers = [(200, {"metadata": {}})]
    api = connect()
    await api.get(NODES, "", "n1")
    await api.create(LEASES, "kube-system", {"a": 1})
    await api.replace(LEASES, "kube-system", "l", {"a": 2})
    await api.patch(POLICIES, "shop", "p", {"a": None}, subresource="status")
    await api.bind("shop", "web-1", "u1", "n1", {"k": "v"})
    await api.delete(PODS, "shop", "web-1", uid="u1", grace_seconds=0)
    assert [(method, path) for method, path, *_ in script.requests] == [
        ("GET", "/api/v1/nodes/n1"),
        ("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l"),
        ("PATCH", "/apis/j10ce.io/v1alpha1/namespaces/shop/minimalreservationpolicies/p/status"),
        ("POST", "/api/v1/namespaces/shop/pods/web-1/binding"),
        ("DELETE", "/api/v1/namespaces/shop/pods/web-1"),
    ]
    assert [json.loads(body or b"null") for *_, body in script.requests[:4]] == [
        None,
        {"a": 1},
        {"a": 2},
        {"a": None},
    ]
    assert json.loads(script.requests[4][4]) == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "web-1", "namespace": "shop", "uid": "u1", "annotations": {"k": "v"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    assert json.loads(script.requests[5][4]) == {
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u1"},
        "gracePeriodSeconds": 0,
    }
    headers = script.requests[3][3]
    assert headers["Content-Type"] == "application/merge-patch+json"
    assert (headers["Accept"], headers["Accept-Encoding"]) == ("application/json", "identity")
    assert len(script.connections) == 2, "one for Leases, one for all else"


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a%2fb", "a b", "ä", "a?b"])
async def test_a_name_cannot_lead_elsewhere(connect, script, name):
    with pytest.raises(ValueError, match="cannot be the name"):
        await connect().get(PODS, "shop", name)
    with pytest.raises(ValueError, match="cannot be the name"):
        await connect().get(PODS, name, "web-1")
    assert script.requests == []


async def test_pages(connect, script):
    items = [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]
    script.answers = [
        (200, {"kind": "PodList", "metadata": {"resourceVersion": "7", "continue": "ey+/="}, "items": items}),
        (200, {"metadata": {"resourceVersion": "7"}, "items": None}),
    ]
    api = connect()
    page = await api.list_page(PODS, limit=2)
    assert ([json.loads(raw) for raw in page.items], page.resource_version) == (items, "7")
    last = await api.list_page(PODS, limit=2, continue_token=page.continue_token, namespace="shop")
    assert (last.items, last.continue_token) == ([], "")
    assert [(path, query) for _, path, query, *_ in script.requests] == [
        ("/api/v1/pods", {"limit": "2"}),
        ("/api/v1/namespaces/shop/pods", {"limit": "2", "continue": "ey+/="}),
    ]


async def test_what_is_no_list_is_not_taken_for_an_empty_one(connect, script):
    for answer in ([], {"items": []}, "x"):
        script.answers = [(200, answer)]
        with pytest.raises(Unreachable, match="not a list"):
            await connect().list_page(PODS)


async def test_an_answer_without_end_is_refused(connect, script, monkeypatch):
    monkeypatch.setattr(client_module, "_MOST_BYTES", 1000)
    script.answers = [(200, {"a": "x" * 2000})]
    with pytest.raises(Unreachable, match="larger than 1000 bytes"):
        await connect().get(PODS, "shop", "web-1")


# --- watches ---


def streaming(*chunks, then=None):
    async def answer(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if then is not None:
            await then(request)
        return response

    return answer


def event(kind, **obj):
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


async def watched(api):
    return [(e.type, json.loads(e.object)) async for e in api.watch(PODS, resource_version="5")]


async def test_a_watch(connect, script):
    script.answers = [streaming(event("ADDED", a=1) + event("BOOKMARK", b=2), event("DELETED", a=1))]
    assert await watched(connect()) == [("ADDED", {"a": 1}), ("BOOKMARK", {"b": 2}), ("DELETED", {"a": 1})]
    query = script.requests[0][2]
    assert (query["watch"], query["allowWatchBookmarks"], query["resourceVersion"]) == ("true", "true", "5")
    assert LONG <= int(query["timeoutSeconds"]) <= 2 * LONG


async def test_events_cut_into_chunks_anywhere(connect, script):
    whole = event("ADDED", text="x" * 300_000) + b"\n" + event("MODIFIED", text="\u00e4")
    script.answers = [streaming(*(whole[i : i + 70_001] for i in range(0, len(whole), 70_001)))]
    events = await watched(connect())
    assert [(kind, len(obj["text"])) for kind, obj in events] == [("ADDED", 300_000), ("MODIFIED", 1)]


def as_go_writes(kind, **obj):
    return json.dumps({"type": kind, "object": obj}, separators=(",", ":")).encode() + b"\n"


async def test_events_as_the_api_server_writes_them(connect, script):
    kinds = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
    script.answers = [streaming(*(as_go_writes(kind, object={"a": "}}"}) for kind in kinds))]
    assert await watched(connect()) == [(kind, {"object": {"a": "}}"}}) for kind in kinds]
    script.answers = [streaming(as_go_writes("ERROR", code=410, reason="Expired"))]
    with pytest.raises(Gone):
        await watched(connect())


@pytest.mark.parametrize("line", [b'{"type":"ADDED","object":{"a":1}', b'{"type":"ADDED","object":'])
async def test_what_begins_like_an_event_is_not_one_yet(connect, script, line):
    script.answers = [streaming(line + b"\n")]
    with pytest.raises(Unreachable, match="not an event"):
        await watched(connect())


async def watched_into(seen, api):
    async for e in api.watch(PODS, resource_version="5"):
        seen.append(e.type)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        ({"code": 410, "reason": "Expired", "message": "too old"}, Gone),
        ({"code": 500, "reason": "InternalError"}, Unreachable),
        ({"code": 429}, Unreachable),
        ({"code": 403, "reason": "Forbidden"}, APIError),
        ({}, Unreachable),
    ],
)
async def test_an_error_within_a_watch(connect, script, error, raised):
    script.answers = [streaming(event("ADDED", a=1), event("ERROR", **error), event("ADDED", a=2))]
    seen = []
    with pytest.raises(raised):
        await watched_into(seen, connect())
    assert seen == ["ADDED"]


async def test_a_watch_that_is_refused(connect, script):
    script.answers = [status(410, "Expired")]
    with pytest.raises(Gone):
        await watched(connect())


async def test_a_watch_is_open_before_anything_is_said_and_not_when_it_is_refused(connect, script):
    opened = []
    for answer in (status(410, "Expired"), streaming()):
        assert not opened
        script.answers = [answer]
        with contextlib.suppress(Gone):
            stream = connect().watch(PODS, resource_version="5", opened=lambda: opened.append(True))
            assert [event async for event in stream] == []
    assert opened == [True]


async def test_a_watch_that_falls_silent(connect, script):
    async def hang(request):
        await asyncio.Event().wait()

    script.answers = [streaming(event("ADDED", a=1), then=hang)]
    for silence in (SHORT, 10 * SHORT, LONG):
        seen = []
        with pytest.raises(Unreachable, match="Timeout"):
            await watched_into(seen, connect(Timeouts(silence=silence)))
        if seen:  # else this machine itself stood still for so long
            break
    assert seen == ["ADDED"]


async def test_a_watch_that_is_cut_within_an_event(connect, script):
    async def abort(request):
        request.transport.abort()

    script.answers = [streaming(event("ADDED", a=1), b'{"type":"MODI', then=abort)]
    seen = []
    with pytest.raises(Unreachable):
        await watched_into(seen, connect())
    assert seen == ["ADDED"]


async def test_a_watch_of_nonsense(connect, script):
    script.answers = [streaming(b"<html>\n")]
    with pytest.raises(Unreachable, match="not an event"):
        await watched(connect())


# --- tokens ---


class Tokens:
    def __init__(self):
        self.count = 0

    def __call__(self):
        self.count += 1
        return f"Bearer token-{self.count}"


async def test_a_token_is_read_once_and_again_when_it_is_refused(connect, script):
    tokens = Tokens()
    script.answers = [(200, {}), (200, {}), status(401), (200, {})]
    api = connect(authorization=tokens)
    for _ in range(3):
        await api.get(PODS, "shop", "web-1")
    assert [h["Authorization"] for _, _, _, h, _ in script.requests] == ["Bearer token-1"] * 3 + [
        "Bearer token-2"
    ]


async def test_a_token_that_stays_refused_is_an_error(connect, script):
    script.answers = [status(401, "Unauthorized")]
    with pytest.raises(APIError, match="401 Unauthorized"):
        await connect(authorization=Tokens()).get(PODS, "shop", "web-1")
    assert len(script.requests) == 2


async def test_a_watch_that_is_refused_its_token_uses_a_new_one_next_time(connect, script):
    script.answers = [status(401, "Unauthorized"), streaming(event("ADDED", a=1))]
    api = connect(authorization=Tokens())
    with pytest.raises(APIError, match="401 Unauthorized"):
        await watched(api)
    assert await watched(api) == [("ADDED", {"a": 1})]
    assert script.requests[1][3]["Authorization"] == "Bearer token-2"


async def test_a_token_that_cannot_be_read_is_no_crash(connect, script, tmp_path):
    api = connect(authorization=(tmp_path / "token").read_text)
    with pytest.raises(Unreachable, match="no token to authenticate with"):
        await api.get(PODS, "shop", "web-1")
    with pytest.raises(Unreachable, match="no token to authenticate with"):
        await watched(api)
    assert script.requests == []


@pytest.mark.parametrize(
    ("metadata", "remaining"),
    [({}, 0), ({"continue": "more", "remainingItemCount": 9999}, 9999), ({"continue": "more"}, None)],
)
async def test_how_many_follow_is_unknown_where_the_server_does_not_say(script, connect, metadata, remaining):
    script.answers = [(200, {"metadata": {"resourceVersion": "7"} | metadata, "items": [{}]})]
    assert (await connect().list_page(NODES, limit=1)).remaining == remaining
