"""Where a node's programs come from. Go is not run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from lab import minors, node_programs
from lab.node_programs import NodeProgramsError


def fill(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("")
        (folder / name).chmod(0o755)
    return folder


def test_a_chosen_folder_comes_first(tmp_path: Path) -> None:
    chosen = fill(tmp_path / "chosen", *node_programs.RUNTIME.names)
    assert node_programs.find({"J10CE_NODE_BIN": str(chosen)}) == chosen


def test_a_chosen_folder_that_lacks_some_is_refused(tmp_path: Path) -> None:
    chosen = fill(tmp_path / "chosen", *node_programs.RUNTIME.names[1:])
    with pytest.raises(NodeProgramsError, match=f"J10CE_NODE_BIN={chosen} has no containerd: add what"):
        node_programs.find({"J10CE_NODE_BIN": str(chosen)})


def test_else_the_cache(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    assert node_programs.find(environ) is None
    cache = fill(node_programs.cache_folder(environ), *node_programs.RUNTIME.names)
    assert node_programs.find(environ) == cache


def test_another_source_is_another_folder(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    before = node_programs.cache_folder(environ)
    for name in ("go.mod", "go.sum", "hook-injector/main.go"):
        file = tmp_path / "module" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text((node_programs.RUNTIME.module / name).read_text())
    copy = replace(node_programs.RUNTIME, module=tmp_path / "module")
    assert node_programs.cache_folder(environ, copy) == before
    with (tmp_path / "module" / "hook-injector" / "main.go").open("a") as source:
        source.write("// more\n")
    assert node_programs.cache_folder(environ, copy) != before


def test_the_programs_report_the_pinned_versions() -> None:
    argv = " ".join(node_programs.order().argv(Path("go"), Path("out")))
    assert "-X github.com/containerd/containerd/v2/version.Version=2." in argv
    assert "-X sigs.k8s.io/cri-tools/pkg/version.Version=1." in argv


def pinned(module: Path) -> dict[str, str]:
    return dict(re.findall(r"^\t(\S+) (v\S+)", (module / "go.mod").read_text(), re.MULTILINE))


def test_kubelet_shares_what_go_has_compiled_for_the_control_plane() -> None:
    kubelet, control_plane = pinned(node_programs.KUBELET.module), pinned(minors.NEWEST)
    shared = set(kubelet) & set(control_plane)
    assert len(shared) > 100
    assert {name: kubelet[name] for name in shared} == {name: control_plane[name] for name in shared}
    version = control_plane["k8s.io/kubernetes"]
    argv = " ".join(node_programs.order(node_programs.KUBELET).argv(Path("go"), Path("out")))
    assert f"-X k8s.io/component-base/version.gitVersion={version} " in f"{argv} "


def test_the_hooks_page_names_the_pinned_containerd() -> None:
    page = (Path(__file__).parents[2] / "docs" / "hook.md").read_text()
    (version,) = (v for k, v in node_programs.order().link_values.items() if "containerd" in k)
    assert f"| containerd {version} with runc |" in page
