"""docs/hook.md: its commands are run as written, its tables and blocks are what the code has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hook import config
from hook.installation import containerd
from hook.installation.places import HOOKS_DIRS, Places
from kernel import cache
from lab.runtimes import cgroups
from lab.runtimes.programs import require
from tests.hook.own_time import largest_budget

PAGE = (Path(__file__).parents[2] / "docs" / "hook.md").read_text()

CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
netns = "none"
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "none"
tmp_dir = "{folder}/tmp"
"""
STORAGE_CONF = """\
[storage]
driver = "vfs"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
"""
MARK = "== end of a command =="


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """podman's settings for a machine without systemd and without CAP_SYS_RESOURCE, on its own storage."""
    if os.geteuid() != 0:
        pytest.skip("the page's commands are root's")
    if Places().home.exists() or Places().definition.exists() or Places().config.exists():
        pytest.skip("the hook is installed on this machine already, and is not ours to remove")
    for program in ("podman", "runc", "busybox"):
        require(program)
    files = {"CONTAINERS_CONF": CONTAINERS_CONF, "CONTAINERS_STORAGE_CONF": STORAGE_CONF}
    named = {}
    for name, text in files.items():
        path = tmp_path / name.lower()
        path.write_text(text.format(folder=tmp_path))
        named[name] = str(path)
    mounts = cgroups.hierarchies(Path("/proc/self/mountinfo").read_text())
    parents = cgroups.Scratch("/libpod_parent", mounts)
    there = any(folder.exists() for folder in parents.folders())
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with largest_budget(Places()):
        yield {**os.environ, **named, "PATH": path}
    subprocess.run([Path(sys.executable).with_name("j10ce"), "hook", "uninstall"], check=True)
    if not there:
        parents.remove()


@pytest.mark.runtime
def test_the_commands_work_as_written(environment: dict[str, str]) -> None:
    commands = [line[2:] for block in blocks("console") for line in block.splitlines() if line[:2] == "$ "]
    assert any(command.startswith("podman run --rm --hooks-dir") for command in commands)
    after_planning = next(i for i, command in enumerate(commands) if "cache write" in command) + 1
    commands.insert(after_planning, f"cat {Places().run}/floors/gold")
    script = "\n".join(f"{command}\necho; echo '{MARK}'" for command in commands)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    printed = dict(zip(commands, done.stdout.split(f"\n{MARK}\n"), strict=False))
    assert done.returncode == 0, f"{list(printed)[-1]}\n{done.stdout}\n{done.stderr}"
    _, _, planned = cache.parse(printed[commands[after_planning]].encode(), "gold")
    weights = [value for _, _, file, value in planned[cache.ANY] if file in ("cpu.weight", "cpu.shares")]
    (shown,) = [text for command, text in printed.items() if command.startswith("podman run")]
    assert [shown.strip()] == weights
    assert shown.strip() not in ("100", "1024")
    assert not Places().definition.exists()


def test_the_snippet_is_what_install_prints() -> None:
    (shown,) = blocks("toml")
    assert shown == containerd.snippet(Places(), (2, 3, 7))


def test_the_settings_are_valid() -> None:
    (shown,) = re.findall(r"\n```\n(fail open.*?)```", PAGE, re.DOTALL)
    found = config.parse(shown)
    assert (found.closed, found.budget) == (False, config.BUDGET_MS / 1000)
    assert "monitoring" in found.exempt
    assert f"1 to {config.LARGEST_BUDGET_MS}" in shown
    assert all(name in shown for name in config.ALWAYS_EXEMPT)


def test_the_paths_are_the_codes() -> None:
    places = Places()
    named = [places.home, places.definition, places.base_spec, places.config, places.run / "missed"]
    assert not [path for path in [*map(str, named), *HOOKS_DIRS] if path not in PAGE]
    assert all(f"/run/j10ce/{folder}/" in PAGE for folder in ("pods", "floors", "defaults"))
