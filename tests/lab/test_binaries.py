"""Where the control plane's programs come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import binaries, go_build, minors
from lab.binaries import NAMES, Binaries, BinariesError

KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


def fill(folder: Path, names: tuple[str, ...] = NAMES, version: str = "v1.36.3") -> Path:
    """A folder of programs that do nothing but tell their version."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\necho Kubernetes {version}\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    cache = binaries.cache_folder({"XDG_CACHE_HOME": str(tmp_path)})
    return {name: fill(tmp_path / name) for name in ("chosen", "path")} | {
        "cache": fill(cache),
        "home": tmp_path,
    }


def with_cache(places: dict[str, Path], **environ: str) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(places["home"]), **environ}


def test_j10ce_bin_comes_first(places: dict[str, Path]) -> None:
    environ = with_cache(places, J10CE_BIN=str(places["chosen"]), PATH=str(places["path"]))
    found = binaries.find(environ)
    assert found is not None
    assert found.kwokctl == places["chosen"] / "kwokctl"
    assert found.source == f"J10CE_BIN={places['chosen']}"


def test_path_comes_before_the_cache(places: dict[str, Path]) -> None:
    found = binaries.find(with_cache(places, PATH=str(places["path"])))
    assert found is not None
    assert found.source == "PATH"
    assert set(found.files.values()) == {places["path"] / name for name in NAMES}


def test_a_path_that_lacks_one_is_not_mixed_with_the_cache(places: dict[str, Path]) -> None:
    (places["path"] / "etcd").unlink()
    found = binaries.find(with_cache(places, PATH=str(places["path"])))
    assert found is not None
    assert set(found.files.values()) == {places["cache"] / name for name in NAMES}


def test_nothing_anywhere(tmp_path: Path) -> None:
    assert binaries.find({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}) is None


def test_j10ce_bin_that_lacks_some_names_them(places: dict[str, Path]) -> None:
    (places["chosen"] / "etcd").unlink()
    (places["chosen"] / "kwok").chmod(0o644)
    with pytest.raises(BinariesError, match="has no etcd, kwok: "):
        binaries.find(with_cache(places, J10CE_BIN=str(places["chosen"])))


def test_mixed_versions_are_said(places: dict[str, Path]) -> None:
    fill(places["chosen"], ("kube-scheduler",), "v1.33.0")
    found = binaries.find(with_cache(places, J10CE_BIN=str(places["chosen"])))
    assert found is not None
    assert found.notes == (
        "mixed versions: kube-apiserver 1.36.3, kube-controller-manager 1.36.3, kube-scheduler 1.33.0",
    )


def test_one_version_needs_no_note(places: dict[str, Path]) -> None:
    found = binaries.find(with_cache(places, J10CE_BIN=str(places["chosen"])))
    assert found is not None
    assert found.notes == ()
    assert found.versions() == dict.fromkeys(NAMES, "1.36.3")


def test_a_program_that_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(BinariesError, match="does not run"):
        binaries.version_of("etcd", tmp_path / "etcd")


def test_the_cache_is_named_after_the_modules(tmp_path: Path) -> None:
    folder = binaries.cache_folder({"XDG_CACHE_HOME": str(tmp_path)})
    assert folder == tmp_path / "j10ce" / "lab" / binaries.module_digest(minors.NEWEST)
    assert binaries.cache_folder({"HOME": "/home/x"}).parent == Path("/home/x/.cache/j10ce/lab")


def test_order_takes_the_version_from_go_mod() -> None:
    for module in minors.known().values():
        values = binaries.order(("tool",), module).link_values
        version = values["k8s.io/component-base/version.gitVersion"]
        assert f"k8s.io/kubernetes {version} " in (module / "go.mod").read_text()
        major, minor = (values[f"k8s.io/component-base/version.git{part}"] for part in ("Major", "Minor"))
        assert version.startswith(f"v{major}.{minor}.")


class FakeBuild:
    """Plays go_build.build: writes programs named as Go names them."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.orders: list[go_build.Order] = []

    def __call__(self, order: go_build.Order, target: Path, *_: object) -> None:
        self.orders.append(order)
        fill(target, self.names)


def test_builds_when_nothing_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeBuild(tuple("server" if name == "etcd" else name for name in NAMES))
    monkeypatch.setattr(go_build, "build", fake)
    environ = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    made = binaries.provide(environ)
    assert set(made.files) == set(NAMES)
    again = binaries.provide(environ)
    assert again.files == made.files
    assert [order.packages for order in fake.orders] == [("tool",)]


def test_a_cache_that_is_not_whole_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(go_build, "build", FakeBuild(("kwok",)))
    with pytest.raises(BinariesError, match="is not whole: remove that folder"):
        binaries.provide({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)})


def test_download_builds_only_kwokctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeBuild(("kwokctl",))
    monkeypatch.setattr(go_build, "build", fake)
    made = binaries.provide({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}, download=True)
    assert [order.packages for order in fake.orders] == [("sigs.k8s.io/kwok/cmd/kwokctl",)]
    assert set(made.files) == {"kwokctl"}
    assert made.kubectl is None
    assert made.flags() == {}
    assert made.downloads == tmp_path / "j10ce" / "lab" / "official"


def test_download_uses_kwokctl_from_path(tmp_path: Path) -> None:
    fill(tmp_path / "path", ("kwokctl",))
    made = binaries.provide({"PATH": str(tmp_path / "path"), "XDG_CACHE_HOME": str(tmp_path)}, download=True)
    assert made.kwokctl == tmp_path / "path" / "kwokctl"


def test_flags_name_every_program_kwokctl_starts(places: dict[str, Path]) -> None:
    found = binaries.find(with_cache(places, PATH=""))
    assert isinstance(found, Binaries)
    assert set(found.flags().values()) == {places["cache"] / name for name in (*KUBERNETES, "etcd", "kwok")}
