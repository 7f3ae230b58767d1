"""Which Kubernetes a lab cluster is of, by J10CE_KUBERNETES. Go is not run."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from cli import preflight
from lab import binaries, go_build, minors, requests
from lab.binaries import NAMES, BinariesError
from lab.cluster import Cluster
from tests.lab.test_binaries import KUBERNETES, FakeBuild, fill

OLDER = [name for name, module in minors.known().items() if module != minors.NEWEST]
OWN = (*KUBERNETES, "kubectl")


def test_the_newest_comes_first_and_the_two_before_it_follow() -> None:
    newest, *older = (int(name.removeprefix("1.")) for name in minors.known())
    assert older == [newest - 1, newest - 2]


@pytest.mark.parametrize("minor", OLDER)
def test_an_older_module_builds_its_programs_of_its_own_version(minor: str) -> None:
    text = (minors.known()[minor] / "go.mod").read_text()
    assert minors.known()[minor].name == minor
    tools = re.search(r"^tool \((.*?)\)", text, re.DOTALL | re.MULTILINE)
    assert tools is not None
    assert tools.group(1).split() == [f"k8s.io/kubernetes/cmd/{name}" for name in OWN]
    staging = minors.version_of(minors.known()[minor]).replace("v1.", "v0.", 1)
    replaced = re.findall(r"^\t(\S+) => (\S+) (\S+)", text, re.MULTILINE)
    assert {(target, version) for _, target, version in replaced} == {
        (name, staging) for name, *_ in replaced
    }


def test_preflight_says_what_the_lab_has() -> None:
    assert [f"{major}.{minor}" for major, minor in reversed(preflight.TESTED)] == list(minors.known())


@pytest.mark.parametrize("name", ["1.33", "1.35.4", "v1.35", "newest"])
def test_an_unknown_minor_names_the_known(name: str) -> None:
    with pytest.raises(
        BinariesError, match=rf"J10CE_KUBERNETES={name} is not known here: name one of 1\.36, 1"
    ):
        binaries.find({minors.VARIABLE: name})


@pytest.mark.parametrize("minor", OLDER)
def test_an_older_one_takes_from_the_newest_what_is_not_kubernetes_own(
    minor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path), minors.VARIABLE: minor}
    modules = []

    def build(order: go_build.Order, target: Path, *rest: object) -> None:
        modules.append(order.module)
        FakeBuild(NAMES if order.module == minors.NEWEST else OWN)(order, target, *rest)

    monkeypatch.setattr(go_build, "build", build)
    made = binaries.provide(environ)
    assert modules == [minors.NEWEST, minors.known()[minor]]
    newest, own = (binaries.cache_folder(environ, module) for module in modules)
    assert {made.files[name].parent for name in OWN} == {own}
    assert {made.files[name].parent for name in set(NAMES) - set(OWN)} == {newest}
    assert binaries.find(environ) == made
    assert binaries.find({**environ, minors.VARIABLE: ""}) != made


def test_half_of_an_older_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path), minors.VARIABLE: OLDER[0]}
    fill(binaries.cache_folder(environ))
    broken = fill(binaries.cache_folder(environ, minors.known()[OLDER[0]]), OWN[1:])
    assert binaries.find(environ) is None
    monkeypatch.setattr(go_build, "build", FakeBuild(()))
    with pytest.raises(BinariesError, match=f"{broken} is not whole: remove that folder"):
        binaries.provide(environ)


def test_programs_of_another_minor_are_refused_where_they_were_chosen(tmp_path: Path) -> None:
    chosen = fill(tmp_path / "chosen")
    environ = {"J10CE_BIN": str(chosen), minors.VARIABLE: OLDER[0]}
    with pytest.raises(
        BinariesError, match=rf"{chosen} has no kube-apiserver of J10CE_KUBERNETES={OLDER[0]}: "
    ):
        binaries.find(environ)
    found = binaries.find({**environ, minors.VARIABLE: minors.minor(minors.version_of(minors.NEWEST))})
    assert found is not None
    assert found.source == f"J10CE_BIN={chosen}"


def test_programs_of_another_minor_on_path_are_passed_over(tmp_path: Path) -> None:
    environ = {"PATH": str(fill(tmp_path / "path")), "XDG_CACHE_HOME": str(tmp_path)}
    assert binaries.find({**environ, minors.VARIABLE: OLDER[0]}) is None
    assert binaries.find(environ) is not None


def test_download_fetches_the_minor_that_is_asked_for(tmp_path: Path) -> None:
    fill(tmp_path / "path", ("kwokctl",))
    environ = {"PATH": str(tmp_path / "path"), "XDG_CACHE_HOME": str(tmp_path)}
    chosen = binaries.provide({**environ, minors.VARIABLE: OLDER[0]}, download=True)
    assert chosen.fetched == minors.version_of(minors.known()[OLDER[0]])
    assert binaries.provide(environ, download=True).fetched == ""


@pytest.mark.parametrize(
    ("version", "beta"), [("1.35.4", True), ("v1.34.0", True), ("1.36.3", False), ("", False)]
)
def test_before_1_36_the_admission_that_raises_is_a_beta(version: str, beta: bool, tmp_path: Path) -> None:
    assert minors.has_beta_alone(version) is beta
    cluster = Cluster("one", tmp_path, ("kubectl",), {"kube-apiserver": version}, {})
    text = (resources.files("manifests") / "base" / "requests.yaml").read_text(encoding="utf-8")
    made = YAML(typ="safe").load(requests.as_served(text, cluster))["items"]
    versions = {one["kind"]: one["apiVersion"].rpartition("/")[2] for one in made}
    raising = "v1beta1" if beta else "v1"
    assert versions == {
        "MutatingAdmissionPolicy": raising,
        "MutatingAdmissionPolicyBinding": raising,
        "ValidatingAdmissionPolicy": "v1",
        "ValidatingAdmissionPolicyBinding": "v1",
    }
