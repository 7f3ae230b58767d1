"""What pods and PodGroups say of gangs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters.kubernetes import decode
from adapters.kubernetes.gangs import member, pod_group, ungated
from qos import keys
from qos.cluster.gangs import Match, Member, Rules

NAME, LEAST = keys.GANG_NAME_ANNOTATION, keys.GANG_MIN_ANNOTATION


def read(
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    gates: tuple[str, ...] = (keys.GANG_GATE,),
    **spec: Any,
) -> Member | None:
    raw = json.dumps(
        {
            "metadata": {
                "namespace": "ml",
                "name": "w-0",
                "uid": "u",
                "labels": labels or {},
                "annotations": annotations or {},
            },
            "spec": {"containers": [], "schedulingGates": [{"name": one} for one in gates], **spec},
            "status": {"phase": "Pending"},
        }
    ).encode()
    return member(decode.pod(raw), raw)


def rules(**annotations: str) -> Rules:
    named = {
        f"{keys.KOORDINATOR_GANG_PREFIX}{key.replace('_', '-')}": text for key, text in annotations.items()
    }
    found = read({NAME: "train", LEAST: "4"} | named)
    assert found is not None
    assert found.rules is not None
    return found.rules


def test_annotations() -> None:
    found = read({NAME: "train", LEAST: "4"}, nodeSelector={"disk": "ssd"})
    assert found is not None
    assert (found.gang, found.gates, found.rules) == ("ml/train", (keys.GANG_GATE,), Rules(4))
    assert found.where.node_selector == (("disk", "ssd"),)
    assert rules(waiting_time="1m30s").waiting_seconds == 90
    assert rules(waiting_time="soon").waiting_seconds == 600
    assert rules(match_policy="only-waiting").match is Match.WAITING
    assert rules(match_policy="?").match is Match.ONCE
    assert rules(groups='["ml/train", "ml/eval"]').groups == ("ml/eval", "ml/train")
    assert rules(groups='["ml/train"]').groups == ()
    assert rules(groups="no list").groups == ()


@pytest.mark.parametrize("text", ["", "0", "-1", "many"])
def test_a_least_number_that_is_none(text: str) -> None:
    assert rules(min_available=text).problem == (
        f"annotation {LEAST} is {text!r}: write how many of its pods run, or none"
    )


def test_what_is_too_large_costs_its_own_gang_alone() -> None:
    assert "is '" + "9" * 40 + "': write" in rules(min_available="9" * 5000).problem
    many = json.dumps([f"ml/{number}" for number in range(101)])
    assert rules(groups=many).problem.endswith("names 101 gangs, more than 100: name fewer")
    assert rules(waiting_time="8760h").waiting_seconds == 3600
    assert rules(waiting_time="9" * 400 + "h").waiting_seconds == 3600
    long = read({NAME: "x" * 9999, LEAST: "1"})
    assert long is not None
    assert long.gang == "ml/" + "x" * 253


def test_a_pod_group_by_label() -> None:
    found = read(labels={keys.POD_GROUP_LABEL: "train"})
    assert found is not None
    assert (found.gang, found.rules) == ("ml/train", None)
    raw = json.dumps(
        {
            "metadata": {"namespace": "ml", "name": "train", "uid": "g"},
            "spec": {"minMember": 3, "scheduleTimeoutSeconds": 7},
        }
    ).encode()
    assert pod_group(raw).rules == Rules(3, 7.0)


def test_other_pods_and_those_on_a_node() -> None:
    assert read(gates=("theirs",)) is None
    there = read({NAME: "train", LEAST: "4"}, gates=(), nodeName="n1")
    assert there is not None
    assert there.gates == ()
    alone = read()
    assert alone is not None
    assert alone.rules == Rules(1), "a gate that somebody put by hand is lifted once the pod has a place"


def test_other_gates_stay() -> None:
    found = read({NAME: "train", LEAST: "4"}, gates=("theirs", keys.GANG_GATE))
    assert found is not None
    assert ungated(found)["spec"] == {"schedulingGates": [{"name": "theirs"}]}
    alone = read({NAME: "train", LEAST: "4"})
    assert alone is not None
    assert ungated(alone)["spec"] == {"schedulingGates": None}
