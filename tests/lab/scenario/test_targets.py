"""Where a scenario may run."""

from __future__ import annotations

from typing import Any

import pytest

from lab import scheduler_config
from lab.scenario.models import Scenario
from lab.scenario.targets import TargetError, refuse_own

POLICY = {
    "name": "checkout",
    "spec": {
        "selector": {"matchLabels": {"app": "checkout"}},
        "floor": {"resources": {"cpu": "1"}},
        "slots": {"count": 1},
    },
}


def scenario(step: dict[str, Any], **more: Any) -> Scenario:
    nodes = [{"name": "n", "allocatable": {"cpu": "4"}}]
    fields = {"name": "s", "description": "d", "nodes": nodes, "policies": [POLICY], "steps": [step]}
    return Scenario.model_validate(fields | more)


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ({"kill": {"component": "extender"}}, "s kills components: it needs a lab cluster"),
        ({"start": {"component": "extender"}}, "s kills components: it needs a lab cluster"),
        ({"delayAnswers": "0s"}, "s delays the API server's answers: it needs a lab cluster"),
        ({"tenantApplies": {"policies": ["checkout"]}}, "s acts as a tenant: it needs a lab cluster"),
    ],
)
def test_what_takes_a_cluster_of_our_own_is_refused_in_somebodys(step: dict[str, Any], says: str) -> None:
    wanted = scenario(step)
    with pytest.raises(TargetError, match=says):
        refuse_own(wanted, wanted.all_runs()[0])


def test_an_autoscaler_is_brought_to_a_cluster_of_our_own_alone() -> None:
    wanted = scenario({"pause": "1s"}, cluster={"autoscaler": {}})
    assert wanted.cluster.autoscaler is not None
    assert wanted.cluster.autoscaler.idle == "Never"
    with pytest.raises(TargetError, match="s has an autoscaler: it needs a lab cluster"):
        refuse_own(wanted, wanted.all_runs()[0])


def test_other_steps_are_not() -> None:
    wanted = scenario({"pause": "1s"})
    refuse_own(wanted, wanted.all_runs()[0])


def test_without_bind_an_entry_for_bind_alone_goes_and_the_others_keep_their_verbs() -> None:
    document = scheduler_config.with_extender("guard")
    entries = scheduler_config.without_bind(document)["extenders"]
    assert [entry for entry in entries if "bindVerb" in entry] == []
    assert [entry["filterVerb"] for entry in entries] == ["filter"]
    both = document | {"extenders": [{"filterVerb": "filter", "bindVerb": "bind"}]}
    assert scheduler_config.without_bind(both)["extenders"] == [{"filterVerb": "filter"}]
