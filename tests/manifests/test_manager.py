"""The manager's Deployment: consistent with the manager's options, and no more than it says it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer.main
from ruamel.yaml import YAML

import manifests
from cli.installation import QUOTAS
from manager import commands
from manager.config import ManagerConfig
from manager.quotas.hooks import NAME

FOLDER = Path(manifests.__file__).parent / "manager"
DEPLOYMENT: dict[str, Any] = YAML(typ="safe").load(FOLDER / "deployment.yaml")
POD: dict[str, Any] = DEPLOYMENT["spec"]["template"]["spec"]
(MANAGER,) = POD["containers"]


def test_its_command_is_one_that_it_understands() -> None:
    program, *options = MANAGER["command"]
    assert program == "j10ce-manager"
    known = {option for one in typer.main.get_command(commands.app).params for option in one.opts}
    assert {option.partition("=")[0] for option in options} <= known


def test_probes_and_metrics_are_asked_where_it_answers() -> None:
    port, webhook = MANAGER["ports"]
    assert f"--address=0.0.0.0:{port['containerPort']}" in MANAGER["command"]
    assert ManagerConfig().address.endswith(f":{port['containerPort']}")
    annotations = DEPLOYMENT["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(port["containerPort"])
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert MANAGER[probe]["httpGet"]["port"] == port["name"]
    assert ManagerConfig().webhook.address == f"0.0.0.0:{webhook['containerPort']}"


def test_its_webhook_is_where_the_api_server_looks_for_it() -> None:
    quotas = FOLDER.parent / "quotas"
    service = YAML(typ="safe").load(quotas / "service.yaml")
    meta, (port,) = service["metadata"], service["spec"]["ports"]
    assert ManagerConfig().webhook.service == f"{meta['namespace']}/{meta['name']}"
    assert (port["port"], port["targetPort"]) == (443, MANAGER["ports"][1]["name"])
    assert service["spec"]["selector"].items() <= DEPLOYMENT["spec"]["template"]["metadata"]["labels"].items()
    rest = list(YAML(typ="safe").load_all(quotas / "webhook.yaml"))
    assert {one["metadata"]["name"] for one in rest} == {NAME}


def test_what_switches_quotas_on_is_off_as_shipped() -> None:
    flags = {one.envvar: one for one in typer.main.get_command(commands.app).params}
    assert {"name": QUOTAS, "value": "0"} in MANAGER["env"]
    assert flags[QUOTAS].name == "quotas"


def test_its_lease_is_the_one_that_it_may_write() -> None:
    roles = [one for one in YAML(typ="safe").load_all(FOLDER / "rights.yaml") if one["kind"] == "Role"]
    (role,) = roles
    named = [name for rule in role["rules"] for name in rule.get("resourceNames", [])]
    assert [f"{role['metadata']['namespace']}/{name}" for name in named] == [ManagerConfig().lease]


def test_two_of_them_and_never_none_by_an_eviction() -> None:
    assert DEPLOYMENT["spec"]["replicas"] == 2
    budget = YAML(typ="safe").load(FOLDER / "disruption-budget.yaml")
    assert budget["spec"]["minAvailable"] == 1
    assert budget["spec"]["selector"] == DEPLOYMENT["spec"]["selector"]


def test_it_is_locked_up() -> None:
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert MANAGER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
