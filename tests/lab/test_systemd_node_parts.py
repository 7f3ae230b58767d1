"""What can be said of a systemd node without starting one."""

from __future__ import annotations

import configparser
import json

import pytest

from lab.node import settings
from lab.node.systemd import files
from lab.node.systemd.files import Wanted

UNITS = "/etc/systemd/system"


@pytest.fixture
def made() -> dict[str, str]:
    return files.files(
        Wanted("systemd-1", "198.18.0.2", "198.18.0.1", 6443, kubelet={"cpuManagerPolicy": "static"})
    )


def unit(made: dict[str, str], name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(made[f"{UNITS}/{name}"])
    return parser


def test_systemd_makes_the_cgroups(made: dict[str, str]) -> None:
    kubelet = json.loads(made[str(settings.KUBELET)])
    assert (kubelet["cgroupDriver"], kubelet["cpuManagerPolicy"]) == ("systemd", "static")
    assert "SystemdCgroup = true" in made[str(settings.CONTAINERD)]


def test_containerd_has_its_containers_to_itself(made: dict[str, str]) -> None:
    service = unit(made, "containerd.service")["Service"]
    assert (service["Delegate"], service["KillMode"], service["Type"]) == ("yes", "process", "notify")


def test_the_api_server_has_the_address_its_certificate_names(made: dict[str, str]) -> None:
    for path in (settings.KUBELET_KUBECONFIG, files.KUBECONFIG):
        (cluster,) = json.loads(made[str(path)])["clusters"]
        assert cluster["cluster"]["server"] == "https://127.0.0.1:6443"
    relay = unit(made, "lab-relay.service")["Service"]["ExecStart"].split()
    assert relay[-2:] == ["6443", "198.18.0.1"]


def test_the_administrator_is_nobody_else(made: dict[str, str]) -> None:
    (user,) = json.loads(made[str(files.KUBECONFIG)])["users"]
    assert set(user["user"]) == {"client-certificate", "client-key"}


def test_the_agents_unit_gets_its_options(made: dict[str, str]) -> None:
    options = made["/etc/j10ce/agent.env"].removeprefix("J10CE_AGENT_OPTIONS=").split()
    assert options == list(files.agent_options(Wanted("systemd-1", "198.18.0.2", "198.18.0.1", 6443)))
    assert made["/opt/j10ce/bin/j10ce-agent"].startswith("#!/usr/bin/python3")


def test_and_those_of_its_network() -> None:
    made = files.files(Wanted("s", "198.18.0.2", "198.18.0.1", 6443, network_floors=("--link-egress", "20M")))
    assert made["/etc/j10ce/agent.env"].endswith(" --link-egress 20M\n")
