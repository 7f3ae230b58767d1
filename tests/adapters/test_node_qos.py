"""NodeQoS: what the agent writes, the model takes and the extender reads."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from adapters.kubernetes import node_qos
from adapters.kubernetes.usage import reported_pods, reported_usage
from adapters.kubernetes.wire import DecodeError
from qos.api.node_qos import NodeQoS
from qos.cluster.network_state import LinkState, NetworkState, Technique
from qos.cluster.node_report import NodeReport, PolicyState, PromiseState, UsageState

REPORT = NodeReport(
    agent_version="0.1.0",
    kernel="6.12.0",
    cgroup="v2",
    runtime="containerd 2.1.4",
    promises=(
        PromiseState("floor (cpu)", True, "cpu.weight"),
        PromiseState("cpu_burst_percent", False, "", "this kernel has no cpu.max.burst"),
    ),
    pressure={"cpu": "Some", "memory": "None", "io": "High"},
    repaired=2,
    fights=1,
    policies=(PolicyState("shop/checkout", "u1", 3, 2, 2, "memory.min: EBUSY", 1.2),),
)
NOW = 1_790_000_000.0
NETWORK = NetworkState(
    LinkState("eth0", 9_400_000_000, "Label"),
    (Technique("ToLink", "htb"), Technique("Queues", "bfifo", "why")),
)


def written(report: NodeReport = REPORT) -> bytes:
    return json.dumps(
        node_qos.new("n1", "node-uid") | {"status": node_qos.status_of(report, (), NOW)}
    ).encode()


def test_the_model_takes_what_is_written() -> None:
    model = NodeQoS.model_validate_json(written(), strict=False)
    assert model.status is not None
    shown = json.loads(json.dumps(model.status.to_json()))
    assert shown["policies"] == [
        {
            "policy": "shop/checkout",
            "uid": "u1",
            "pods": 3,
            "applied": 2,
            "verified": 2,
            "message": "memory.min: EBUSY",
            "deficitSeconds": 2,
        }
    ]
    status = json.loads(written())["status"]
    sent = {name: value for name, value in status.items() if value is not None}  # null: is not there
    assert shown | {"conditions": sent["conditions"]} == sent, "the model knows every field that is written"


def test_the_model_takes_what_is_written_of_the_network() -> None:
    model = NodeQoS.model_validate_json(written(replace(REPORT, network=NETWORK)), strict=False)
    assert model.status is not None
    assert model.status.to_json()["network"] == {
        "link": {"interface": "eth0", "egress": "9400M", "egressSource": "Label"},
        "techniques": [
            {"traffic": "ToLink", "technique": "htb"},
            {"traffic": "Queues", "technique": "bfifo", "message": "why"},
        ],
    }


USAGE = UsageState(NOW - 5, {"cpu": 1500, "memory": 6 << 30}, {"shop/b": {"cpu": 20, "memory": 64 << 20}})


def test_what_is_written_of_usage_is_read_back() -> None:
    raw = written(replace(REPORT, usage=USAGE))
    model = NodeQoS.model_validate_json(raw, strict=False)
    assert model.status is not None
    shown = json.loads(raw)["status"]["usage"]
    assert model.status.to_json()["usage"] == shown
    assert (shown["cpu"], shown["memory"]) == ("1500m", "6Gi")
    assert shown["pods"] == [{"pod": "shop/b", "cpu": "20m", "memory": "64Mi"}]
    read = reported_usage(raw)
    assert (read.key, read.stamp, read.usage) == ("n1", shown["measuredAt"], USAGE.node)
    assert reported_pods("n1", read.pods) == USAGE.pods


def test_without_usage_nothing_is_said() -> None:
    assert reported_usage(written()).stamp == ""
    assert reported_usage(json.dumps(node_qos.new("n1", "u")).encode()).stamp == ""


def test_a_node_that_says_it_uses_less_than_nothing_is_idle() -> None:
    """Else it would lower the mean of all nodes as far as it likes, and others' pods would be moved."""
    pods = [{"pod": "shop/a", "cpu": "-5", "memory": "1Gi"}]
    usage = {"measuredAt": "now", "cpu": "-100000", "memory": "-8Ei", "pods": pods}
    read = reported_usage(json.dumps({"metadata": {"name": "n1"}, "status": {"usage": usage}}).encode())
    assert read.usage == {"cpu": 0, "memory": 0}
    assert reported_pods("n1", read.pods)["shop/a"]["cpu"] == 0


def test_of_too_many_pods_those_with_most_memory_are_told() -> None:
    pods = {f"shop/{n}": {"cpu": 1, "memory": n} for n in range(node_qos.MOST_PODS + 1)}
    raw = written(replace(REPORT, usage=replace(USAGE, pods=pods)))
    assert reported_pods("n1", reported_usage(raw).pods).keys() == pods.keys() - {"shop/0"}


@pytest.mark.parametrize(
    "pods",
    [b"{}", b'[{"cpu": "1"}]', b'[{"pod": "a/b", "cpu": "much"}]', b'[{"pod": "a/b", "memory": null}]'],
)
def test_usage_of_pods_that_makes_no_sense_is_refused(pods: bytes) -> None:
    with pytest.raises(DecodeError):
        reported_pods("n1", pods)


def test_what_is_not_known_any_more_is_taken_away() -> None:
    """A merge patch leaves what it does not name."""
    status = json.loads(written(replace(REPORT, network=NETWORK)))["status"]
    assert status["network"]["link"]["ingress"] is None
    assert json.loads(written())["status"]["network"] is None


def test_what_is_written_can_be_read() -> None:
    news = node_qos.news(written())
    assert (news.node, news.heartbeat) == ("n1", "2026-09-21T14:13:20Z")
    assert news.enforcement.enforced == {"floor (cpu)"}
    assert news.enforcement.refused == {"cpu_burst_percent": "this kernel has no cpu.max.burst"}
    assert news.enforcement.problem == ""
    assert news.policies == (replace(REPORT.policies[0], deficit_seconds=0.0),)


def test_nodes_of_one_kind_share_what_they_say() -> None:
    assert node_qos.news(written()).enforcement is node_qos.news(written()).enforcement


def test_an_agent_that_is_not_ready_enforces_nothing() -> None:
    news = node_qos.news(written(replace(REPORT, not_ready="no container runtime answers")))
    assert news.enforcement.problem == "its agent is not ready: no container runtime answers"


def test_before_the_first_report() -> None:
    news = node_qos.news(json.dumps(node_qos.new("n1", "node-uid")).encode())
    assert news.heartbeat == ""
    assert news.enforcement.problem == "its agent has not reported yet"


def test_a_time_of_transition_stays_while_the_status_does() -> None:
    first = node_qos.status_of(REPORT, (), NOW)
    second = node_qos.status_of(replace(REPORT, not_ready="x"), first["conditions"], NOW + 60)
    times = {one["type"]: one["lastTransitionTime"] for one in second["conditions"]}
    assert times["Applied"] == "2026-09-21T14:13:20Z"
    assert times["Ready"] == "2026-09-21T14:14:20Z"


def test_nonsense_is_named() -> None:
    with pytest.raises(DecodeError, match=r"NodeQoS n1: status\.promises.*enforced"):
        node_qos.news(
            b'{"metadata":{"name":"n1"},"status":{"promises":[{"promise":"cpus","enforced":"yes"}]}}'
        )
