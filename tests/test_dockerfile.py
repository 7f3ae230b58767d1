"""What the Dockerfile copies and runs exists. It is built and run in tests/cluster/test_own_image.py."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
INSTRUCTIONS = [
    line.split(maxsplit=1)
    for line in (ROOT / "Dockerfile").read_text().splitlines()
    if line and not line.startswith("#")
]


def arguments(instruction: str) -> list[str]:
    return [rest for word, rest in INSTRUCTIONS if word == instruction]


def copied() -> list[str]:
    """Sources of COPY that come from the repository."""
    return [source for rest in arguments("COPY") if "--from" not in rest for source in rest.split()[:-1]]


def test_it_is_plain() -> None:
    known = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "CMD"}
    assert {word for word, _ in INSTRUCTIONS} <= known
    assert len(arguments("FROM")) == 2
    assert "j10ce-qos:0.1.0" in (ROOT / "Dockerfile").read_text()


def test_what_it_copies_exists_and_is_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for source in copied():
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored, source
    assert ignored[1] == "*"


def test_it_copies_every_package_and_what_the_build_reads() -> None:
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    project = PROJECT["project"]
    assert sorted(copied()) == sorted(
        [*packages, "pyproject.toml", "constraints.txt", project["readme"], *project["license-files"]]
    )


def test_the_wheel_it_installs_is_the_one_it_builds() -> None:
    name = PROJECT["project"]["name"].replace("-", "_")
    wheel = f"/dist/{name}-{PROJECT['project']['version']}-py3-none-any.whl"
    assert any(rest.endswith(wheel) for rest in arguments("RUN"))
    assert any("--constraint constraints.txt" in rest for rest in arguments("RUN"))


def test_the_python_is_one_we_support() -> None:
    (base,) = arguments("ARG")
    name, _, image = base.partition("=")
    assert {rest.split()[0] for rest in arguments("FROM")} == {f"${{{name}}}"}
    versions = {image.partition(":")[2].removesuffix("-slim")}
    classifiers = {line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"]}
    assert len(versions) == 1
    assert versions <= classifiers


def test_what_it_runs_is_a_command_of_ours() -> None:
    (command,) = arguments("CMD")
    assert json.loads(command)[0] in PROJECT["project"]["scripts"]


def test_it_runs_as_nobody() -> None:
    (user,) = arguments("USER")
    assert user == "65532:65532"
    last_stage = [word for word, _ in INSTRUCTIONS][[w for w, _ in INSTRUCTIONS].index("USER") :]
    assert "RUN" not in last_stage


@pytest.mark.parametrize(
    ("path", "program", "user"),
    [
        ("overlays/second-scheduler/deployment.yaml", "j10ce-extender", 65532),
        ("overlays/default-scheduler/static-pod.yaml", "j10ce-extender", 65532),
        ("agent/daemonset.yaml", "j10ce-agent", 0),
    ],
)
def test_what_the_manifests_run_is_in_it(path: str, program: str, user: int) -> None:
    document: dict[str, Any] = YAML(typ="safe").load(ROOT / "manifests" / path)
    pod = document["spec"].get("template", document)["spec"]
    containers = [*pod.get("initContainers", []), *pod["containers"]]
    ours = [container for container in containers if container["image"].startswith("j10ce-qos")]
    assert [container["command"][0] for container in ours] == [program]
    assert program in PROJECT["project"]["scripts"]
    assert pod["securityContext"]["runAsUser"] == user
