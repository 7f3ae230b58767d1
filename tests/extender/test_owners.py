"""What a workload's pods request: by the newest template, by more than half, counted per change."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.owners import Owners
from qos.cluster.objects import OwnerReference, Pod

WEB = ("shop", "Deployment", "web")


def owner(name: str, cpu: int, template: str = "a", created: float = 0.0, **more: int) -> Pod:
    return Pod(
        name,
        "shop",
        name,
        {"cpu": cpu, **more},
        labels={"pod-template-hash": template},
        controller=OwnerReference("ReplicaSet", f"web-{template}", template),
        created=created,
    )


def owners(*pods: Pod) -> Owners:
    made = Owners()
    for pod in pods:
        made.set_pod(pod)
    return made


@pytest.mark.parametrize(
    ("cpu", "observed"),
    [
        ([5], 5),
        ([5, 9], 5),
        ([5, 5, 9], 5),
        ([5, 9, 9], 9),
        ([5, 6, 7, 8, 900], 7),
    ],
)
def test_one_odd_pod_does_not_decide(cpu: list[int], observed: int) -> None:
    pods = [owner(f"p{i}", amount) for i, amount in enumerate(cpu)]
    assert owners(*pods).observed(WEB) == {"cpu": observed}


def test_what_fewer_than_half_have_does_not_count() -> None:
    made = owners(owner("p", 5, gpu=1), owner("q", 5), owner("r", 5))
    assert made.observed(WEB) == {"cpu": 5}


def test_the_newest_template_counts() -> None:
    made = owners(*(owner(f"p{i}", 9, "a", created=1.0) for i in range(5)), owner("q", 5, "b", created=2.0))
    assert made.observed(WEB) == {"cpu": 5}
    made.set_pod(owner("r", 9, "a", created=3.0))  # rolled back
    assert made.observed(WEB) == {"cpu": 9}


def test_what_was_seen_last_is_remembered_while_no_pod_lives() -> None:
    made = owners(owner("p", 5))
    assert made.observed(WEB) == {"cpu": 5}
    made.set_pod(replace(owner("p", 5), phase="Failed"))
    assert made.observed(WEB) == {"cpu": 5}
    made.set_pod(owner("q", 4, "b", created=1.0))
    assert made.observed(WEB) == {"cpu": 4}


def test_a_workload_that_is_gone_leaves_nothing_behind() -> None:
    made = owners(owner("p", 5), owner("q", 5, "b"))
    made.forget(WEB)
    made.remove_pod("p")
    made.remove_pod("q")
    assert made.observed(WEB) == {}
    assert not made._workloads
    assert not made._entries
    assert not made._forgotten


def test_only_workloads_that_are_asked_for_are_told_of() -> None:
    made = owners(owner("p", 5))
    assert made.changed({("shop", "Deployment", "other")}) == set()
    made.set_pod(owner("p", 5))
    assert made.changed({WEB}) == set()
    made.set_pod(owner("p", 6))
    assert made.changed({WEB}) == {WEB}


def test_of_which_workload_a_pod_is() -> None:
    stateful = replace(
        owner("p", 1),
        labels={"controller-revision-hash": "db-1"},
        controller=OwnerReference("StatefulSet", "db", "1"),
    )
    bare = replace(owner("q", 2), labels={}, controller=OwnerReference("ReplicaSet", "rs", "2"))
    made = owners(
        stateful,
        bare,
        replace(owner("r", 3), controller=OwnerReference("DaemonSet", "ds", "3")),
        replace(owner("s", 4), controller=None),
    )
    assert made.observed(("shop", "StatefulSet", "db")) == {"cpu": 1}
    assert made.observed(("shop", "ReplicaSet", "rs")) == {"cpu": 2}
    assert len(made._entries) == 2


_EVENT = st.tuples(
    st.sampled_from(["p", "q", "r", "s"]),
    st.sampled_from([0, 1, 1, 2, 7]),
    st.sampled_from("ab"),
)


@given(st.lists(_EVENT, max_size=30))
def test_counted_per_change_is_as_counted_anew(events: list[tuple[str, int, str]]) -> None:
    """0 CPU: the pod is gone. Pods of template b are the newer ones."""
    made, there = Owners(), dict[str, Pod]()
    for name, cpu, template in events:
        if cpu:
            there[name] = owner(name, cpu, template, created=float(template == "b"))
            made.set_pod(there[name])
        else:
            there.pop(name, None)
            made.remove_pod(name)
    newest = [pod for pod in there.values() if pod.created] or list(there.values())
    seen_b = any(cpu and template == "b" for _, cpu, template in events)
    if newest and (newest[0].created or not seen_b):
        assert made.observed(WEB) == owners(*newest).observed(WEB)


def test_a_job_has_what_its_pods_request_and_leaves_nothing_behind() -> None:
    pods = [
        replace(owner(f"p{i}", 3), controller=OwnerReference("Job", f"nightly-{i}", f"u{i}"))
        for i in range(5)
    ]
    made = owners(*pods)
    assert made.observed(("shop", "Job", "nightly-2")) == {"cpu": 3}
    for pod in pods:
        made.remove_pod(pod.uid)
    assert made.observed(("shop", "Job", "nightly-2")) == {}
    assert made._workloads == {}
