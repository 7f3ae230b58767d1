"""Installing below a scratch root: order, idempotence, upgrade, repair, and the way back."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from hook.installation import containerd, entry, imports, record, tree
from hook.installation import install as installing
from hook.installation.errors import InstallationError
from hook.installation.install import Installed, Wishes
from hook.installation.places import Places
from hook.installation.uninstall import uninstall

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(os.geteuid() != 0, reason="the hook is root's to install"),
]

Tree = dict[str, tuple[int, int, bytes]]


def snapshot(root: Path) -> Tree:
    """Mode, owner and content by path."""
    found = {}
    for path in [root, *root.rglob("*")]:
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_mode, status.st_uid, content)
    return found


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A root as a node may have it, with files of others."""
    root = tmp_path / "node"
    for folder in ("usr/share/containers", "etc/containers", "run"):
        (root / folder).mkdir(parents=True)
    (root / "usr/share/containers/mounts.conf").write_text("somebody's\n")
    return Places(root)


def install(places: Places, **wishes: object) -> Installed:
    return installing.install(places, Wishes(**wishes))  # type: ignore[arg-type]


def another_version(monkeypatch: pytest.MonkeyPatch, mark: str) -> None:
    files = imports.sources()
    changed = files | {"hook/__init__.py": files["hook/__init__.py"] + f"# {mark}\n".encode()}
    monkeypatch.setattr(imports, "sources", lambda: changed)


def test_there_and_back(places: Places) -> None:
    before = snapshot(places.root)
    done = install(places)
    assert done.changed == (str(places.definition),)
    assert not entry.faults(places.definition.read_text())
    hook = json.loads(places.definition.read_text())["hook"]
    assert hook["args"][5:] == [done.record.tree, str(places.run), str(places.config)]
    assert uninstall(places).kept == ()
    assert snapshot(places.root) == before


def test_all_of_it_is_roots_and_readable(places: Places) -> None:
    previous = os.umask(0o077)
    try:
        install(places)
    finally:
        os.umask(previous)
    for path, (mode, owner, _) in snapshot(places.home).items():
        assert owner == 0
        assert mode & 0o777 == (0o755 if Path(path).is_dir() else 0o644), path
    assert places.definition.stat().st_mode & 0o777 == 0o644


def test_again_changes_nothing(places: Places) -> None:
    install(places)
    before = snapshot(places.root)
    done = install(places)
    assert done.changed == ()
    assert done.removed == ()
    after = snapshot(places.root)
    assert before.keys() == after.keys()
    assert [path for path in before if before[path] != after[path]] == []


def test_a_changed_wish_rewrites_the_definition_alone(places: Places) -> None:
    first = install(places)
    second = install(places, when="floor", stage=entry.PRESTART)
    assert (second.changed, second.record.tree) == ((str(places.definition),), first.record.tree)
    document = json.loads(places.definition.read_text())
    assert (document["stages"], list(document["when"])) == (["prestart"], ["annotations"])
    assert install(places).changed == ()  # what is not chosen anew stays


def test_the_code_is_there_before_the_definition(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """A definition is only ever written when all that it names is on the disk."""
    seen = []
    write = tree.write_file

    def watched(path: Path, content: bytes, mode: int = 0o644) -> None:
        if path == places.definition:
            args = json.loads(content)["hook"]["args"]
            seen.append(tree.damage(Path(args[5]), imports.sources()))
        write(path, content, mode)

    monkeypatch.setattr(tree, "write_file", watched)
    install(places)
    assert seen == [[]]


def test_an_upgrade_keeps_the_version_before(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    trees = [install(places).record.tree]
    for mark in ("two", "three"):
        another_version(monkeypatch, mark)
        done = install(places)
        trees.append(done.record.tree)
        assert done.changed == (str(places.definition),)
    assert len(set(trees)) == 3
    assert [str(path) for path in tree.trees(places.home)] == sorted(trees[1:])
    assert done.removed == (trees[0],)


def test_an_old_version_in_use_stays(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    first = install(places).record.tree
    monkeypatch.setattr(installing, "users", lambda path: [42] if str(path) == first else [])
    for mark in ("two", "three"):
        another_version(monkeypatch, mark)
        assert install(places).removed == ()
    assert Path(first).is_dir()


@pytest.mark.parametrize("damage", ["changed", "missing", "no bytecode"])
def test_again_repairs(places: Places, damage: str) -> None:
    done = install(places)
    whole = snapshot(places.root)
    module = Path(done.record.tree, "hook", "decision.py")
    if damage == "changed":
        module.write_text("raise SystemExit(7)\n")
    elif damage == "missing":
        module.unlink()
    else:
        shutil.rmtree(module.parent / "__pycache__")
        next(Path(done.record.tree).glob("*.bundle")).unlink()
    install(places)
    assert snapshot(places.root).keys() == whole.keys()
    assert not tree.damage(Path(done.record.tree), imports.sources())


def test_a_draft_of_a_killed_installation_is_removed(places: Places) -> None:
    install(places)
    (places.home / ".new-0123" / "hook").mkdir(parents=True)
    assert install(places).removed == (str(places.home / ".new-0123"),)


@pytest.mark.parametrize("first", [True, False], ids=["at first", "at an upgrade"])
def test_a_failure_changes_nothing(places: Places, monkeypatch: pytest.MonkeyPatch, first: bool) -> None:
    if not first:
        install(places)
        another_version(monkeypatch, "two")
    before = snapshot(places.root)
    monkeypatch.setattr(entry, "TIMEOUT_SECONDS", 0)  # not valid
    with pytest.raises(InstallationError, match=r"would not fit hooks\.d 1\.0\.0: \$\.hook\.timeout"):
        install(places)
    monkeypatch.undo()
    if first:
        assert snapshot(places.root) == before
    else:  # a tree more, which nobody is told of
        after = snapshot(places.root)
        assert after[str(places.definition)] == before[str(places.definition)]
        assert {path: after[path] for path in before if path != str(places.record)} == {
            path: content for path, content in before.items() if path != str(places.record)
        }


def test_another_hooks_dir_moves_it(places: Places) -> None:
    """In both folders it would run twice, or one would hide the other."""
    before = snapshot(places.root)
    install(places)
    moved = Places(places.root, "/etc/containers/oci/hooks.d")
    install(moved)
    assert not places.definition.exists()
    assert moved.definition.is_file()
    uninstall(places)  # without being told where it is
    assert snapshot(places.root) == before


def test_uninstall_keeps_what_others_made(places: Places) -> None:
    install(places)
    before = snapshot(places.root)
    foreign = places.definition.with_name("nvidia.json")
    foreign.write_text("{}")
    places.config.parent.mkdir()
    places.config.write_text("fail closed\n")
    floor = places.run / "floors" / "web"
    floor.parent.mkdir(parents=True)
    floor.write_text("somebody's")
    (places.run / "missed").mkdir()
    (places.run / "missed" / "c1").write_text("ours")
    done = uninstall(places)
    assert (foreign.read_text(), floor.read_text()) == ("{}", "somebody's")
    assert places.config.is_file()
    assert not (places.run / "missed").exists()
    assert not places.definition.exists()
    assert not places.home.exists()
    assert sorted(reason.partition(":")[0] for reason in done.kept) == sorted(
        map(str, (places.config, places.run, *(path for path in [foreign.parent, foreign.parent.parent])))
    )
    assert set(before)


def test_uninstall_without_an_installation(places: Places) -> None:
    before = snapshot(places.root)
    assert uninstall(places).paths == ()
    assert snapshot(places.root) == before


def test_uninstall_waits_for_running_hooks(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    from hook.installation import uninstall as removing

    install(places)
    running = [[42], [42], []]
    monkeypatch.setattr(removing, "users", lambda _: running.pop(0))
    uninstall(places)
    assert running == []
    assert not places.home.exists()


def test_uninstall_keeps_the_code_of_a_hook_that_does_not_end(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hook.installation import uninstall as removing

    done = install(places)
    monkeypatch.setattr(removing, "users", lambda _: [42])
    monkeypatch.setattr(removing, "LONGEST_HOOK_SECONDS", 0.05)
    with pytest.raises(InstallationError, match="still used by process 42"):
        uninstall(places)
    assert Path(done.record.tree).is_dir()
    assert not places.definition.exists()
    monkeypatch.undo()
    uninstall(places)
    assert not places.home.exists()


def test_nobody_else_installs_meanwhile(places: Places) -> None:
    from hook.installation.machine import alone

    install(places)
    with alone(places.home):
        with pytest.raises(InstallationError, match="another `j10ce hook` is at work"):
            install(places)
        with pytest.raises(InstallationError, match="another `j10ce hook` is at work"):
            uninstall(places)


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_only_root(places: Places, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    before = snapshot(places.root)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InstallationError, match=f"`j10ce hook {command}` is for root .you are uid 1000"):
        install(places) if command == "install" else uninstall(places)
    assert snapshot(places.root) == before


def test_a_read_only_node_is_told_of(places: Places) -> None:
    (places.root / "usr" / "libexec").write_text("a file where a folder should be")
    before = snapshot(places.root)
    with pytest.raises(InstallationError, match=r"usr/libexec.*Not a directory"):
        install(places)
    assert snapshot(places.root) == before


def test_a_damaged_record_is_named(places: Places) -> None:
    install(places)
    places.record.write_text("{")
    with pytest.raises(InstallationError, match=r"installation\.json is damaged"):
        record.read(places)


SPEC = {"ociVersion": "1.1.0", "process": {"args": ["sh"]}, "hooks": {"createRuntime": [{"path": "/first"}]}}


def play_ctr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ctr that prints a spec."""
    program = tmp_path / "bin" / "ctr"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n[ \"$*\" = 'oci spec' ] && cat <<'E'\n{json.dumps(SPEC)}\nE\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def test_containerds_base_spec(places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play_ctr(tmp_path, monkeypatch)
    before = snapshot(places.root)
    done = install(places, containerd=True)
    assert str(places.base_spec) in done.changed
    spec = json.loads(places.base_spec.read_text())
    assert spec["process"] == SPEC["process"]
    first, ours = spec["hooks"]["createRuntime"]
    assert first == {"path": "/first"}
    assert ours == json.loads(places.definition.read_text())["hook"]
    another_version(monkeypatch, "two")  # an upgrade remembers
    assert str(places.base_spec) in install(places).changed
    uninstall(places)
    assert snapshot(places.root) == before


def test_without_containerd_again(places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while its configuration names the base spec; an upgrade then needs no ctr."""
    play_ctr(tmp_path, monkeypatch)
    install(places, containerd=True)
    configuration = places.below(containerd.CONFIGURATION) / "config.toml"
    configuration.write_text(containerd.snippet(places, (2, 1, 0)))
    with pytest.raises(InstallationError, match=r"config\.toml names .*Nothing was changed"):
        install(places, containerd=False)
    configuration.unlink()
    done = install(places, containerd=False)
    assert (done.changed, places.base_spec.exists()) == ((str(places.base_spec),), False)
    (tmp_path / "bin" / "ctr").unlink()
    another_version(monkeypatch, "two")
    assert not install(places).record.containerd


def test_a_base_spec_that_cannot_be_written_leaves_no_definition_behind(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In two folders the hook would run twice."""
    install(places)
    before = places.definition.read_bytes()
    play_ctr(tmp_path, monkeypatch)
    places.base_spec.mkdir(parents=True)  # a folder where the file should be
    moved = Places(places.root, "/etc/containers/oci/hooks.d")
    with pytest.raises(InstallationError):
        install(moved, containerd=True)
    assert not moved.definition.exists()
    assert places.definition.read_bytes() == before


def test_uninstall_refuses_while_containerd_needs_the_base_spec(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_ctr(tmp_path, monkeypatch)
    install(places, containerd=True)
    configuration = places.below(containerd.CONFIGURATION) / "conf.d" / "hook.toml"
    configuration.parent.mkdir()
    configuration.write_text(containerd.snippet(places, (2, 1, 0)))
    before = snapshot(places.root)
    with pytest.raises(InstallationError, match=r"hook\.toml names .*Nothing was changed"):
        uninstall(places)
    assert snapshot(places.root) == before
    configuration.write_text(f"# base_runtime_spec = '{places.base_spec}'\n")
    uninstall(places)
    assert not places.base_spec.exists()
    assert configuration.is_file()


@pytest.mark.parametrize(
    ("version", "section"),
    [((1, 7, 24), "io.containerd.grpc.v1.cri"), ((2, 3, 7), "io.containerd.cri.v1.runtime"), ((), "cri.v1")],
)
def test_the_snippet_is_of_containerds_version(version: tuple[int, ...], section: str) -> None:
    import tomllib

    text = containerd.snippet(Places(), version)
    plugins = tomllib.loads(text)["plugins"]
    (plugin,) = plugins
    assert section in plugin
    runc = plugins[plugin]["containerd"]["runtimes"]["runc"]
    assert runc["base_runtime_spec"] == "/etc/containerd/j10ce-base-spec.json"
    assert "*" not in "".join(runc["pod_annotations"])


def test_without_ctr_there_is_no_base_spec(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(places.root)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(InstallationError, match="ctr is not on PATH"):
        install(places, containerd=True)
    monkeypatch.undo()
    assert snapshot(places.root) == before
