"""Watches in protobuf: cut into events anywhere, the pods of JSON, and nothing that a pod says ends one.

The API server's own words are in tests/cluster/test_watch_in_protobuf.py.
"""

from __future__ import annotations

import json
import time
import tracemalloc

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from adapters.api import PODS, APIError, Gone, Unreachable
from adapters.kubernetes import decode, placeholders
from adapters.kubernetes.client import KubernetesAPI
from adapters.kubernetes.credentials import Endpoint
from adapters.kubernetes.protobuf import events, pods
from adapters.kubernetes.protobuf import messages_pb2 as pb
from adapters.kubernetes.watching import LONGEST_EVENT
from benchmarks.pod_messages import envelope, frame, pod

KINDS = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
NAMES = st.text("abcdefghij-.", min_size=1, max_size=12)
ANYTHING = st.text(max_size=20)
AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "example.com/gpu"]), st.integers(0, 10**12).map(str)
)
RESOURCES = st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS})
TIMES = st.integers(1, 2**31).map(lambda seconds: pods._stamp(seconds))
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES}, optional={"resources": RESOURCES, "restartPolicy": st.just("Always")}
    ),
    max_size=3,
)
CONDITIONS = st.fixed_dictionaries(
    {"type": st.sampled_from(["PodScheduled", "Ready", "PodResizePending"])},
    optional={
        "status": st.sampled_from(["True", "False"]),
        "reason": st.sampled_from(["Unschedulable", "Infeasible", ""]),
        "lastTransitionTime": TIMES,
    },
)
OWNERS = st.fixed_dictionaries(
    {"kind": NAMES, "name": ANYTHING, "uid": NAMES},
    optional={"apiVersion": NAMES, "controller": st.booleans()},
)
PODS_SAID = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": NAMES, "namespace": NAMES, "uid": NAMES, "resourceVersion": st.integers(1).map(str)},
            optional={
                "creationTimestamp": TIMES,
                "deletionTimestamp": TIMES,
                "labels": st.dictionaries(NAMES, ANYTHING, max_size=3),
                "annotations": st.dictionaries(NAMES, ANYTHING, max_size=3),
                "ownerReferences": st.lists(OWNERS, max_size=2),
            },
        ),
        "spec": st.fixed_dictionaries(
            {"containers": CONTAINERS},
            optional={
                "initContainers": CONTAINERS,
                "nodeName": NAMES,
                "priority": st.integers(-(2**31), 2**31 - 1),
                "schedulerName": ANYTHING,
                "overhead": AMOUNTS,
                "resources": RESOURCES,
            },
        ),
        "status": st.fixed_dictionaries(
            {},
            optional={
                "phase": st.sampled_from(["Pending", "Running", "Failed"]),
                "nominatedNodeName": NAMES,
                "conditions": st.lists(CONDITIONS, max_size=3),
                "containerStatuses": st.lists(
                    st.fixed_dictionaries(
                        {"name": NAMES}, optional={"resources": RESOURCES, "allocatedResources": AMOUNTS}
                    ),
                    max_size=2,
                ),
                "resources": RESOURCES,
                "allocatedResources": AMOUNTS,
                "nodeAllocatableResourceClaimStatuses": st.lists(
                    st.fixed_dictionaries({"resources": AMOUNTS}), max_size=2
                ),
                "resize": st.sampled_from(["Infeasible", "InProgress"]),
            },
        ),
    }
)
WEB = {
    "metadata": {"name": "web-1", "namespace": "shop", "uid": "u1", "resourceVersion": "7"},
    "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}], "nodeName": "n1"},
    "status": {"phase": "Running"},
}


class Parts:
    """A stream that hands out these parts."""

    def __init__(self, *parts):
        self._parts = [part for part in parts if part]

    async def readany(self):
        return self._parts.pop(0) if self._parts else b""


async def all_of(*parts, as_json=pods.as_json):
    return [one async for one in events.events_of(Parts(*parts), as_json)]


@given(PODS_SAID)
def test_both_forms_of_a_pod_are_the_same_pod(body):
    assert decode.pod(pods.as_json(pod(body))) == decode.pod(json.dumps(body).encode())


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.binary(max_size=40)), max_size=5), st.data())
async def test_events_cut_anywhere(said, data):
    whole = b"".join(frame(kind, message) for kind, message in said)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    parts = [whole[i:j] for i, j in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert [(one.type, one.object) for one in await all_of(*parts, as_json=bytes)] == said


async def test_an_event_in_thousands_of_parts_is_put_together_once():
    """With each part all before it were copied: two seconds of CPU for such a one."""
    whole = frame("ADDED", bytes(4 << 20))
    parts = [whole[at : at + 1024] for at in range(0, len(whole), 1024)]
    began = time.process_time()
    assert len(await all_of(*parts, as_json=bytes)) == 1
    assert time.process_time() - began < 0.5


async def test_an_event_that_was_cut_off_is_dropped():
    whole = frame("ADDED", pod(WEB))
    assert len(await all_of(whole, whole[:-1])) == 1


@pytest.mark.parametrize(
    "nonsense",
    [
        (LONGEST_EVENT + 1).to_bytes(4),
        (3).to_bytes(4) + b"\xff\xff\xff",
        b'{"type":"ADDED","object":{}}',
        frame("ADDED", b"").replace(b"k8s\0", b"k9s\0"),
    ],
)
async def test_nonsense_ends_a_watch(nonsense):
    with pytest.raises(Unreachable):
        await all_of(nonsense, b" " * 64)


async def test_an_error_says_what_the_server_says():
    said = pb.Status(code=410, reason="Expired", message="too old resource version: 1 (5)")
    with pytest.raises(Gone, match="too old resource version: 1"):
        await all_of(frame("ADDED", pod(WEB)), frame("ERROR", said.SerializeToString()))


def test_what_is_not_utf_8_is_replaced():
    """An annotation's value and a scheduler's name are any bytes, where they were written in protobuf."""
    spec = pb.PodSpec(scheduler_name="@@@").SerializeToString().replace(b"@@@", b"\xff\xfe@")
    noted = pb.Text(key="j10ce.io/policy", value="###").SerializeToString()
    meta = pb.ObjectMeta(name="web-1", uid="u1", annotations=[noted])
    raw = pb.Pod(metadata=meta, spec=spec).SerializeToString().replace(b"###", b"\xff##")
    seen = decode.pod(pods.as_json(raw))
    assert (seen.slot, seen.scheduler_name) == ("\ufffd##", "\ufffd\ufffd@")


def test_a_pod_whose_spec_cannot_be_read_is_refused_by_its_name():
    raw = pb.Pod(metadata=pb.ObjectMeta(name="web-1", namespace="shop", uid="u1"), spec=b"\xff")
    text = pods.as_json(raw.SerializeToString())
    assert decode.metadata(text).uid == "u1"
    with pytest.raises(decode.DecodeError, match=r"Pod shop/web-1: spec: .*Error parsing"):
        decode.pod(text)
    with pytest.raises(decode.DecodeError, match="protobuf"):
        pods.as_json(b"\xff")


def test_the_zero_time_is_no_time():
    meta = pb.ObjectMeta(name="web-1", creation_timestamp=pb.Time())
    seen = decode.pod(pods.as_json(pb.Pod(metadata=meta).SerializeToString()))
    assert (seen.created, seen.deleting) == (0.0, False)


@pytest.mark.parametrize("seconds", [-62167219200, 10**12, 2**60])
async def test_a_time_that_no_calendar_has_is_refused_where_it_is_read_alone(seconds):
    """One of 2^60 s was an OSError, and so a cut connection: the watch resumed at the same event."""

    def with_condition(kind):
        when = pb.Time(seconds=seconds)
        said = pb.Condition(type=kind, status="True", last_transition_time=when).SerializeToString()
        status = pb.PodStatus(conditions=[said]).SerializeToString()
        meta = pb.ObjectMeta(name="web-1", namespace="shop", uid="u1")
        return pb.Pod(metadata=meta, spec=b"", status=status).SerializeToString()

    events_of_both = await all_of(
        frame("ADDED", with_condition("example.com/gate")), frame("ADDED", with_condition("PodScheduled"))
    )
    others, scheduled = (event.object for event in events_of_both)
    assert decode.pod(others).key == "shop/web-1"
    with pytest.raises(decode.DecodeError, match="lastTransitionTime"):
        decode.pod(scheduled)


def test_a_time_of_the_first_centuries_has_four_digits():
    assert pods._stamp(-62132918400) == "0001-02-01T00:00:00Z"


@pytest.mark.parametrize("labels", [2, 250])
def test_what_pods_leave_behind_takes_no_more_than_they_say(labels):
    """orjson's texts took four kilobytes each at least, and many short labels ten times what they say."""
    bodies = [
        pod(
            {
                "metadata": {
                    "name": "a",
                    "uid": "u",
                    "labels": {f"{i}-{labels}-{j}": "" for j in range(labels)},
                }
            }
        )
        for i in range(200)
    ]
    pods.as_json(pod({"metadata": {"name": "a", "uid": "u"}}))
    tracemalloc.start()
    for body in bodies:
        pods.as_json(body)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 200 * 1024


def test_nobody_asks_a_bound_pod_where_it_may_run():
    """Hundred thousand tolerations held the loop for an eighth of a second, with each change of the pod."""
    spec = {"containers": [], "tolerations": [{"operator": "Exists"}] * 8, "schedulingGates": [{"name": "g"}]}
    waits, bound = spec, {**spec, "nodeName": "n1"}
    said = [
        json.loads(pods.as_json(pod({"metadata": {"uid": "u"}, "spec": one})))["spec"]
        for one in (waits, bound)
    ]
    assert len(said[0]["tolerations"]) == 8
    assert said[0]["schedulingGates"] == [{"name": "g"}]
    assert not said[1].keys() & {"tolerations", "nodeSelector", "affinity", "schedulingGates"}


def test_a_placeholder_without_a_priority_is_one_of_priority_zero():
    """As in JSON, where it is left out: without the admission plugin Priority nobody sets it."""
    assert placeholders.placeholder(pods.as_json(pod(WEB))).priority == 0


async def answered(handle, in_protobuf):
    app = web.Application()
    app.router.add_get("/{path:.*}", handle)
    async with (
        TestServer(app) as server,
        KubernetesAPI(Endpoint(str(server.make_url(""))), in_protobuf=in_protobuf) as api,
    ):
        return [decode.pod(one.object).key async for one in api.watch(PODS, resource_version="5")]


async def test_a_server_that_answers_in_json_is_understood():
    asked = []

    async def handle(request):
        asked.append(request.headers["Accept"])
        return web.Response(body=json.dumps({"type": "ADDED", "object": WEB}).encode() + b"\n")

    assert await answered(handle, {PODS: pods.as_json}) == ["shop/web-1"]
    assert await answered(handle, None) == ["shop/web-1"]
    assert asked == [events.ACCEPT, "application/json"]


async def test_a_server_that_answers_in_protobuf():
    async def handle(_request):
        kind = "application/vnd.kubernetes.protobuf;stream=watch"
        return web.Response(body=frame("ADDED", pod(WEB)), headers={"Content-Type": kind})

    assert await answered(handle, {PODS: pods.as_json}) == ["shop/web-1"]


async def test_a_refusal_in_protobuf():
    async def handle(_request):
        said = pb.Status(code=403, reason="Forbidden", message="pods is forbidden")
        return web.Response(status=403, body=envelope(said.SerializeToString()))

    with pytest.raises(APIError, match="pods is forbidden"):
        await answered(handle, {PODS: pods.as_json})
