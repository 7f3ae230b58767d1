"""What preflight makes of a cluster; the facts are given, nothing is asked."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import typer

from cli import bypassing, installation, keeping
from cli.koordinator import Koordinator
from cli.preflight import Check, Facts, Outcome, Overlay, assess, keeper_after, running_extenders

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
WANTED = tuple(installation.definitions())
KUBE_SCHEDULER = {
    "metadata": {"name": "kube-scheduler-host-a", "namespace": "kube-system"},
    "spec": {"containers": [{"name": "kube-scheduler", "image": "example.com/kube-scheduler:v1.36.3"}]},
}
GOOD = Facts("v1.36.3", wanted_definitions=WANTED, schedulers=(KUBE_SCHEDULER,))


def findings(facts: Facts, overlay: str = "second-scheduler", scheduler_image: str = "") -> dict[str, Check]:
    return {
        check.name: check for check in assess(facts, overlay, installation.Choices("", scheduler_image), NOW)
    }


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_an_agent_needs_a_namespace_that_admits_it(level: str) -> None:
    """A namespace of ours gets its label by installing; that of others stays as it is."""
    chosen = installation.Choices(agent=True)
    labels = {"pod-security.kubernetes.io/enforce": level}
    theirs = {"metadata": {"name": "j10ce-system", "labels": labels}}
    ours = {"metadata": {"name": "j10ce-system", "labels": labels | dict(installation.PART_OF)}}

    def found(namespace: installation.Object | None) -> Check:
        facts = replace(GOOD, namespace=namespace)
        return {check.name: check for check in assess(facts, "second-scheduler", chosen, NOW)}["agent"]

    assert found(theirs).outcome is Outcome.FAILED
    assert f"enforce: {level}" in found(theirs).message
    assert found(ours).outcome is Outcome.OK
    assert found(None).outcome is Outcome.OK
    assert "agent" not in findings(replace(GOOD, namespace=theirs))


def test_an_api_server_that_cannot_raise_requests_is_named() -> None:
    found = findings(replace(GOOD, raising=""))["requests"]
    assert found.outcome is Outcome.WARNING
    assert "serves no MutatingAdmissionPolicy" in found.message
    beta = findings(replace(GOOD, raising="v1beta1"))["requests"]
    assert beta.outcome is Outcome.WARNING
    assert "feature gate" in beta.message


@pytest.mark.parametrize(
    ("there", "outcome", "text"),
    [
        (Koordinator(True, ("koord/koord-scheduler",)), Outcome.FAILED, "scale it to 0"),
        (Koordinator(), Outcome.WARNING, "is not there"),
        (Koordinator(True, (), 3), Outcome.WARNING, "3 pods name koord-scheduler"),
        (Koordinator(True), Outcome.OK, "no koord-scheduler runs"),
    ],
)
def test_reservations_have_one_master(there: Koordinator, outcome: Outcome, text: str) -> None:
    facts, chosen = replace(GOOD, koordinator=there), installation.Choices(reservations=True)
    found = {check.name: check for check in assess(facts, "second-scheduler", chosen, NOW)}
    assert found["reservations"].outcome is outcome
    assert text in found["reservations"].message
    assert "reservations" not in findings(facts)


def test_what_is_installed_says_whether_reservations_are_held() -> None:
    shipped = installation.overlay_file("second-scheduler", "extender.yaml")
    assert not installation.reserves(shipped)
    chosen = installation.chosen(shipped, installation.Choices(mode="Strict", reservations=True))
    assert installation.reserves(chosen)
    assert installation.mode_in(chosen) == "Strict"


@pytest.mark.parametrize(
    ("served", "schedulers", "checks", "outcome", "text"),
    [
        (False, (), (), Outcome.WARNING, "is not there: no quota limits pods"),
        (True, ("koord/koord-scheduler",), (), Outcome.WARNING, "scale it to 0"),
        (True, (), ("koordinator",), Outcome.WARNING, "koordinator checks ElasticQuotas, too: remove it"),
        (True, (), (), Outcome.OK, "are kept"),
    ],
)
def test_quotas_need_their_definition_and_one_master(
    served: bool, schedulers: tuple[str, ...], checks: tuple[str, ...], outcome: Outcome, text: str
) -> None:
    there = Koordinator(served, schedulers)
    facts = replace(GOOD, koordinator=there, quotas_served=served, quota_checks=checks)
    found = {
        check.name: check
        for check in assess(facts, "second-scheduler", installation.Choices(quotas=True), NOW)
    }
    assert found["quotas"].outcome is outcome
    assert text in found["quotas"].message
    assert "quotas" not in findings(facts)


def test_what_is_installed_says_whether_quotas_are_kept() -> None:
    shipped = installation.overlay_file("second-scheduler", "extender.yaml")
    assert not installation.keeps_quotas(shipped)
    chosen = installation.chosen(shipped, installation.Choices(quotas=True))
    assert installation.keeps_quotas(chosen)
    assert not installation.reserves(chosen)


@pytest.mark.parametrize(("there", "outcome"), [(True, Outcome.OK), (False, Outcome.WARNING)])
def test_an_autoscaler_has_to_know_buffers(there: bool, outcome: Outcome) -> None:
    facts, chosen = replace(GOOD, buffers=there), installation.Choices(autoscaling=True)
    found = {check.name: check for check in assess(facts, "second-scheduler", chosen, NOW)}
    assert found["autoscaler"].outcome is outcome
    assert "autoscaler" not in findings(facts)


@pytest.mark.parametrize(("there", "spread"), [(True, False), (False, True)])
def test_placeholders_need_buffers_where_slots_are_spread_only(there: bool, spread: bool) -> None:
    chosen = installation.Choices(autoscaling=True, placeholders=True)
    checks = assess(replace(GOOD, buffers=there), "second-scheduler", chosen, NOW)
    (found,) = (check for check in checks if check.name == "autoscaler")
    assert found.outcome is Outcome.OK
    assert ("spread their slots" in found.message) is spread


def test_what_is_installed_says_whether_autoscalers_are_asked() -> None:
    for overlay in ("second-scheduler", "default-scheduler"):
        shipped = installation.overlay_file(overlay, "extender.yaml")
        assert not installation.autoscales(shipped), "nodes cost money: somebody has to say it"
        chosen = installation.chosen(shipped, installation.Choices(autoscaling=True))
        assert installation.autoscales(chosen)
        assert not installation.reserves(chosen)


def lease(age: float, holder: str = "host-a") -> installation.Object:
    renewed = (NOW - timedelta(seconds=age)).isoformat()
    metadata = {"name": "j10ce-extender", "namespace": "kube-system"}
    return {"metadata": metadata, "spec": {"holderIdentity": holder, "renewTime": renewed}}


def test_a_fresh_cluster_is_fit() -> None:
    assert {check.outcome for check in findings(GOOD).values()} == {Outcome.OK}


@pytest.mark.parametrize(
    ("version", "outcome"),
    [
        ("v1.36.3", Outcome.OK),
        ("v1.35.4", Outcome.OK),
        ("v1.34.0", Outcome.OK),
        ("v1.36.0-eks-123", Outcome.OK),
        ("v1.33.0", Outcome.WARNING),
        ("v1.37.1+k3s1", Outcome.WARNING),
        ("v1.32.9", Outcome.FAILED),
        ("unknown", Outcome.WARNING),
    ],
)
def test_versions(version: str, outcome: Outcome) -> None:
    assert findings(replace(GOOD, version=version))["version"].outcome is outcome


def test_without_rights_nothing_else_is_said() -> None:
    checks = findings(replace(GOOD, missing_rights=("create namespaces",)))
    assert set(checks) == {"version", "rights"}
    assert checks["rights"].outcome is Outcome.FAILED
    assert "create namespaces" in checks["rights"].message


def test_definitions_of_another_version() -> None:
    there = deepcopy(WANTED[0])
    there["status"] = {"storedVersions": ["v1alpha1"]}
    name = f"crd {there['spec']['names']['plural']}"
    assert findings(replace(GOOD, definitions=(there,)))[name].message == "is there, the same"
    there["spec"]["versions"][0]["schema"] = {}
    assert findings(replace(GOOD, definitions=(there,)))[name].outcome is Outcome.WARNING
    there["status"]["storedVersions"].append("v1beta1")
    check = findings(replace(GOOD, definitions=(there,)))[name]
    assert check.outcome is Outcome.FAILED
    assert "v1beta1" in check.message


def test_a_namespace_of_someone_else() -> None:
    namespace = {"metadata": {"name": "j10ce-system", "labels": {"team": "a"}}}
    assert findings(replace(GOOD, namespace=namespace))["namespace j10ce-system"].outcome is Outcome.WARNING
    namespace["metadata"]["labels"] = dict(installation.PART_OF)  # type: ignore[index]
    assert findings(replace(GOOD, namespace=namespace))["namespace j10ce-system"].outcome is Outcome.OK


@pytest.mark.parametrize("labels", [{}, {"app.kubernetes.io/part-of": "theirs"}])
def test_a_namespace_of_someone_else_is_not_made_ours(labels: dict[str, str]) -> None:
    ours = {"kind": "Namespace", "metadata": {"name": "j10ce-system", "labels": dict(installation.PART_OF)}}
    account = {"kind": "ServiceAccount", "metadata": {"name": "j10ce-extender"}}
    theirs = {"kind": "Namespace", "metadata": {"name": "j10ce-system", "labels": labels}}
    assert installation.sparing([ours, account], theirs) == [account]
    assert (
        installation.sparing([ours, account], ours)
        == installation.sparing([ours, account], None)
        == [ours, account]
    )


def test_an_extender_that_runs_already() -> None:
    assert running_extenders([lease(5)], NOW) == ["host-a (Lease kube-system/j10ce-extender)"]
    assert running_extenders([lease(600), lease(5, holder="")], NOW) == []
    assert findings(replace(GOOD, leases=(lease(5),)))["extender"].outcome is Outcome.WARNING


def test_schedulers_and_overlays() -> None:
    hidden = replace(GOOD, schedulers=())
    assert findings(hidden)["kube-scheduler"].outcome is Outcome.FAILED
    assert "--scheduler-image" in findings(hidden)["kube-scheduler"].message
    assert (
        findings(hidden, scheduler_image="example.com/kube-scheduler:v1.36.3")["kube-scheduler"].outcome
        is Outcome.OK
    )
    assert findings(hidden, "default-scheduler")["kube-scheduler"].outcome is Outcome.WARNING
    assert findings(GOOD, "default-scheduler")["kube-scheduler"].outcome is Outcome.OK


POD = {
    "metadata": {"name": "p", "namespace": "shop"},
    "spec": {
        "schedulerName": "default-scheduler",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
    },
}


def test_what_bypasses_is_a_warning_where_something_can_be_done() -> None:
    assert "pods" not in findings(GOOD), "install does not ask"
    unread = replace(GOOD, nodes=10)
    assert "may not list all pods" in findings(unread)["pods"].message
    facts = replace(unread, load=bypassing.load([POD], installation.SCHEDULER))
    found = findings(facts)["pods"]
    assert found.outcome is Outcome.WARNING
    assert "100 % of the CPU" in found.message
    assert "kubectl label namespace NAME j10ce.io/schedule=true" in found.message
    assert (
        "the label j10ce.io/schedule=true does nothing here"
        in findings(replace(facts, raising=""))["pods"].message
    )
    system = POD | {"metadata": POD["metadata"] | {"namespace": "kube-system"}}
    only = replace(unread, load=bypassing.load([system], installation.SCHEDULER))
    assert findings(only)["pods"].outcome is Outcome.OK


def test_beside_the_clusters_own_scheduler_no_label_is_of_use() -> None:
    other = POD | {"spec": POD["spec"] | {"schedulerName": "volcano"}}
    facts = replace(GOOD, nodes=10, load=bypassing.load([POD, other], "default-scheduler"))
    message = findings(facts, "default-scheduler")["pods"].message
    assert "50 % of the CPU that pods request (2 of 4) bypasses default-scheduler: 2 by volcano" in message
    assert "label" not in message


def test_the_sample_of_nodes_is_recommended_by_size() -> None:
    assert "--percentage-of-nodes-to-score=5" in findings(replace(GOOD, nodes=1_000))["sample"].message
    shipped = installation.overlay_file("second-scheduler", "scheduler.yaml")
    assert installation.percentage_in(shipped) == 0
    for mode in ("Guard", "Observe", "Strict"):
        chosen = installation.chosen(shipped, installation.Choices(mode=mode, percentage=5))
        assert installation.percentage_in(chosen) == 5


OURS = {"metadata": {"name": "j10ce-placeholders", "labels": dict(installation.PART_OF)}}
PLACING = installation.Choices(placeholders=True)
EXTENDER, PLACEHOLDERS, BOTH = keeping.Keeper


def keeper_checks(facts: Facts, choices: installation.Choices = PLACING) -> list[Check]:
    return [one for one in assess(facts, "second-scheduler", choices, NOW) if one.name == "keeper"]


@pytest.mark.parametrize(
    ("room", "texts"),
    [
        (keeping.Room(), ["nothing of kube-scheduler"]),
        (keeping.Room(OURS), ["nothing of kube-scheduler"]),
        (keeping.Room({"metadata": {"name": "j10ce-placeholders"}}), ["there and not ours"]),
        (keeping.Room(OURS, ("ResourceQuota/all",)), ["ResourceQuota/all in namespace j10ce-placeholders"]),
        (keeping.Room(OURS, ("ResourceQuota/a",), ("LimitRange/b",)), ["ResourceQuota/a", "LimitRange/b"]),
    ],
)
def test_placeholders_need_a_namespace_that_limits_nothing(room: keeping.Room, texts: list[str]) -> None:
    found = keeper_checks(replace(GOOD, schedulers=(), room=room))
    assert len(found) == len(texts)
    assert all(text in one.message for text, one in zip(texts, found, strict=True))
    failed = {one.outcome is Outcome.FAILED for one in found}
    assert failed == {"nothing" not in texts[0]}


def test_placeholders_need_no_schedulers_image() -> None:
    checks = assess(replace(GOOD, schedulers=()), "second-scheduler", PLACING, NOW)
    assert "kube-scheduler" not in {one.name for one in checks}
    assert Outcome.FAILED not in {one.outcome for one in checks}


@pytest.mark.parametrize(
    ("raising", "outcome", "text"),
    [
        ("v1", Outcome.OK, "preempt placeholders"),
        ("v1beta1", Outcome.WARNING, "else they wait"),
        ("", Outcome.WARNING, "wait while nothing of ours runs"),
    ],
)
def test_whether_owners_wait_while_nobody_hands_over_is_said(raising, outcome, text) -> None:
    checks = assess(replace(GOOD, raising=raising), "second-scheduler", PLACING, NOW)
    (found,) = [one for one in checks if one.name == "owners"]
    assert found.outcome is outcome
    assert text in found.message


def test_two_programs_do_not_hold_the_same_policies() -> None:
    (found,) = keeper_checks(replace(GOOD, second=True))
    assert found.outcome is Outcome.FAILED
    assert "Deployment j10ce-scheduler keeps holds here by the other keeper" in found.message
    (found,) = keeper_checks(replace(GOOD, placeholders=True), installation.Choices())
    assert "Deployment j10ce-extender" in found.message
    assert keeper_checks(GOOD, installation.Choices()) == []


@pytest.mark.parametrize(
    ("there", "wanted", "found"),
    [
        (GOOD, None, EXTENDER),
        (GOOD, PLACEHOLDERS, PLACEHOLDERS),
        (replace(GOOD, placeholders=True), None, PLACEHOLDERS),
        (replace(GOOD, placeholders=True), EXTENDER, EXTENDER),
        (replace(GOOD, second=True), None, EXTENDER),
        (replace(GOOD, second=True, both=True), None, BOTH),
        (replace(GOOD, second=True, both=True), EXTENDER, EXTENDER),
        (GOOD, BOTH, BOTH),
    ],
)
def test_the_keeper_stays_as_it_is_installed(
    there: Facts, wanted: keeping.Keeper | None, found: keeping.Keeper
) -> None:
    assert keeper_after(there, Overlay.SECOND, wanted) is found


def test_both_keepers_are_installed_beside_the_second_scheduler_only() -> None:
    with pytest.raises(typer.BadParameter, match="needs --overlay second-scheduler"):
        keeper_after(GOOD, Overlay.DEFAULT, BOTH)
    with_both = installation.Choices(both=True)
    (found,) = keeper_checks(replace(GOOD, second=True, both=True), with_both)
    assert (found.outcome, found.message[:20]) == (Outcome.OK, "the second scheduler")
    (found,) = keeper_checks(replace(GOOD, placeholders=True), with_both)
    assert "Deployment j10ce-extender keeps holds here by the other keeper" in found.message
    (found,) = keeper_checks(replace(GOOD, room=keeping.Room(OURS, ("ResourceQuota/all",))), with_both)
    assert "counts placeholders" in found.message


def test_both_keepers_are_not_left_for_one_without_uninstalling() -> None:
    there = replace(GOOD, second=True, both=True)
    (found,) = keeper_checks(there, installation.Choices())
    assert found.outcome is Outcome.FAILED
    assert "j10ce uninstall first, or --keeper both" in found.message
    (found,) = keeper_checks(there, PLACING)
    assert found.outcome is Outcome.FAILED
