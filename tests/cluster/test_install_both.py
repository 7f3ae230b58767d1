"""`j10ce install --keeper both`: over an extender's installation, at work by its account, and gone again."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from ruamel.yaml import YAML

from cli import installation
from cli.kubectl import Kubectl, find
from lab import cluster as lab_cluster
from lab import placeholders
from lab.cluster import Cluster
from tests.cluster.test_both_keepers import account, kept
from tests.cluster.test_install import SCHEDULER_IMAGE
from tests.cluster.test_install import j10ce as told
from tests.cluster.test_install_placeholders import assert_nothing_is_left, j10ce
from tests.cluster.test_installed_rights import SCHEDULER, as_account
from tests.cluster.test_placeholders import HIGH, Rig, pod

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SECOND = "j10ce-scheduler"
INSTALL = ("install", "--without", "manager", SCHEDULER_IMAGE)


def installed(kubectl: Kubectl) -> dict[str, Any]:
    (program,) = kubectl.objects("get", "deployments", "-n", "j10ce-system")
    return program["spec"]


def configured(kubectl: Kubectl, cluster: Cluster) -> dict[str, Any]:
    """What its ConfigMap says, but for the webhook: nothing brings calls to a Service here."""
    found = installation.configuration_of(kubectl, {"spec": installed(kubectl)})
    said: dict[str, Any] = YAML(typ="safe").load(found["extender.yaml"])
    webhook = placeholders.config(cluster)["placeholders"]["webhook"]
    return {"keeper": "Extender", **said, "placeholders": said["placeholders"] | {"webhook": webhook}}


@pytest.mark.full
def test_both_keepers_are_installed_over_the_extender_keep_and_leave_nothing(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster(crds=False)
    kubectl = find(os.environ, cluster.kubeconfig, "")
    before = {item["metadata"]["name"] for item in kubectl.objects("get", "priorityclasses")}
    j10ce(cluster, *INSTALL)
    assert installed(kubectl)["replicas"] == 2
    j10ce(cluster, *INSTALL, "--keeper", "both")
    rolling = installed(kubectl)["strategy"]["rollingUpdate"]
    assert (installed(kubectl)["replicas"], rolling) == (1, {"maxSurge": 0, "maxUnavailable": 1})
    again = j10ce(cluster, *INSTALL)  # as it is installed
    assert [one for one in again["changes"] if one["action"] != "keep"] == []
    refused = told(cluster, *INSTALL, "--keeper", "extender", code=1)
    assert "j10ce uninstall first, or --keeper both" in refused

    own = as_account(cluster, kubectl)
    rig = Rig(cluster, own, **configured(kubectl, cluster))
    lab_cluster.add_scheduler(own, SECOND, SCHEDULER, verbs_url=rig.program.verbs_url)
    rig.with_nodes(4, "8")
    there = ("pods", "-n", "j10ce-system")
    rig.wait(lambda: "nodeName" in rig.get(*there)["items"][0]["spec"], "the Deployment's pod has its node")
    rig.create(HIGH, kept("checkout", 4, "Placeholders"), kept("search", 4, "Extender"))
    rig.wait(lambda: rig.stand() == 4, "a placeholder for each slot of the one policy")
    for name in ("checkout", "search"):
        rig.wait(lambda name=name: account(rig, name)[1] == 4, f"all slots of {name} are held")
    rig.wait(lambda: rig.get("mutatingwebhookconfigurations", "j10ce-hand-over").get("webhooks"), "a webhook")

    def decided(app: str, number: int) -> bool:
        return len(rig.bound(app)) + rig.refused(app) == number

    rig.create(*(pod(f"batch-{number}", "1", "batch", schedulerName=SECOND) for number in range(24)))
    rig.wait(lambda: len(rig.bound("batch")) >= 12, "batch pods take what is left, whole CPUs beside slots")
    rig.wait(lambda: decided("batch", 24), "of the others kube-scheduler says why they wait")
    assert len(rig.bound("batch")) <= 15, "neither keeper's slots are taken"
    assert account(rig, "search")[:3] == (0, 4, 0)
    # Else both schedulers bind to the same room, and no kubelet is here that would refuse who comes last.
    waiting = {f"batch-{number}" for number in range(24)}.difference(
        one["metadata"]["name"] for one in rig.bound("batch")
    )
    cluster.kubectl("delete", "pods", *sorted(waiting))
    rig.create(*(pod(f"bypass-{number}", "1", "bypass") for number in range(20)))
    rig.wait(lambda: decided("bypass", 20), "the cluster's own kube-scheduler fills the cluster")
    rig.wait(lambda: account(rig, "search")[2] > 0, "what the verbs held is taken by who bypasses them")
    assert account(rig, "search")[3] == "False"
    assert account(rig, "checkout") == (0, 4, 0, "True"), "no placeholder's place is"
    owners = [pod(f"checkout-{number}", "2", "checkout", priorityClassName="high") for number in range(3)]
    rig.create(*owners)
    rig.wait(lambda: len(rig.bound("checkout")) == 3, "owners get in, by the cluster's own kube-scheduler")
    rig.wait(lambda: account(rig, "checkout") == (3, 1, 0, "True"), "nobody else got a slot in between")
    assert rig.evicted() == 0
    assert "Forbidden" not in rig.program.log.read_text(errors="replace")

    rig.program.kill()  # as the Deployment's end does
    j10ce(cluster, "uninstall", "--yes")
    assert_nothing_is_left(rig, before | {"high"})
