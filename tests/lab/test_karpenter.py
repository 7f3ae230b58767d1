"""The autoscaler beside a lab cluster: what is built, what it is told, whose process it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab import components, karpenter
from lab.cluster import Cluster, LabError
from lab.node_programs import order


def test_it_is_built_with_the_go_that_it_asks_for() -> None:
    made = order(karpenter.KARPENTER)
    asked = re.search(r"^go (\S+)", (made.module / "go.mod").read_text(), re.MULTILINE)
    assert asked is not None
    wanted, given = (
        tuple(int(part) for part in text.removeprefix("go").split(".")) for text in (asked[1], made.toolchain)
    )
    assert given >= wanted


def test_its_pages_name_the_pinned_version() -> None:
    go_mod = (karpenter.KARPENTER.module / "go.mod").read_text()
    version = re.search(r"sigs.k8s.io/karpenter (v\d+\.\d+)", go_mod)
    assert version is not None
    for page in ("limits", "scenarios"):
        text = (Path(__file__).parents[2] / "docs" / f"{page}.md").read_text()
        assert f"Karpenter {version[1]}" in text, page


def test_one_pool_of_small_nodes_that_removes_only_what_it_is_told_to() -> None:
    node_class, pool = karpenter.pool("30s")["items"]
    reference = pool["spec"]["template"]["spec"]["nodeClassRef"]
    assert (reference["kind"], reference["name"]) == (node_class["kind"], node_class["metadata"]["name"])
    assert pool["spec"]["disruption"]["consolidateAfter"] == "30s"


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_it_is_a_component_of_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "lab" / "c1"
    folder.mkdir(parents=True)
    program(tmp_path, "definitions", 'echo \'{"kind": "List"}\'')
    program(tmp_path, "kwok", 'echo "$KUBECONFIG"; sleep 60')
    said: list[tuple[str, ...]] = []
    monkeypatch.setattr(Cluster, "kubectl", lambda _self, *words, **_more: said.append(words) or "")
    cluster = Cluster("c1", folder, ("kubectl",), {}, {})
    karpenter.start(cluster, tmp_path)
    try:
        assert components.pid(folder, karpenter.COMPONENT) is not None
        assert [words[0] for words in said] == ["apply", "wait", "apply"]
    finally:
        components.kill(folder, karpenter.COMPONENT)
    assert components.pid(folder, karpenter.COMPONENT) is None


def test_definitions_that_cannot_be_had_say_why(tmp_path: Path) -> None:
    program(tmp_path, "definitions", "echo no >&2; exit 1")
    with pytest.raises(LabError, match="definitions: no"):
        karpenter.start(Cluster("c1", tmp_path, ("kubectl",), {}, {}), tmp_path)
