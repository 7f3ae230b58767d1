"""From `j10ce dev cache write` to a real container: it has what was planned at its first instruction."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from lab.runtimes.cgroups import Scratch, is_v2
from lab.runtimes.installed_hook import InstalledHook
from lab.runtimes.podman import Podman
from qos.plan import layout

J10CE = Path(sys.executable).with_name("j10ce")


def planned(hook: InstalledHook, *arguments: str) -> dict[str, str]:
    """Write the hook's file; file to value of the container's own cgroup."""
    argv = [str(J10CE), "dev", "cache", "write", *arguments, "--run", str(hook.run), "-o", "json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    documents: list[dict[str, Any]] = json.loads(done.stdout)
    settings = documents[0]["containers"][0]["settings"]
    return {one["file"]: one["value"] for one in settings if one["level"] == 0}


def test_a_named_floor_in_podman(hook: InstalledHook, podman: Podman, scratch: Scratch) -> None:
    wanted = planned(
        hook,
        "--floor",
        "gold",
        "--cpu",
        "500m",
        "--memory",
        "64Mi",
        "--runtime",
        "podman",
        "--parent",
        scratch.name,
    )
    assert wanted
    for file, value in wanted.items():
        folder = "" if is_v2(scratch.mounts) else file.partition(".")[0]
        done = podman.run(
            ("cat", f"/sys/fs/cgroup/{folder}/{file}"),
            cgroup_parent=scratch.name,
            hooks=hook.hooks_dir,
            annotations={"j10ce.io/floor": "gold"},
        )
        assert (done.code, done.stdout.strip()) == (0, value), done.stderr
    assert hook.missed() == {}


def test_podmans_cgroup_is_where_it_is_expected(podman: Podman, scratch: Scratch) -> None:
    name = ("--name", "placed")
    done = podman.run(
        ("cat", "/proc/1/cgroup"), cgroup_parent=scratch.name, options=(*name, "--cgroupns", "host")
    )
    (path,) = {
        line.split(":")[2] for line in done.stdout.split() if ":memory:" in line or line.startswith("0::/j")
    }
    container_id = path.rpartition("-")[2]
    assert len(container_id) == 64
    assert path == layout.podman_paths(container_id, layout.Driver.CGROUPFS, scratch.name)[-1]


def test_a_floor_that_has_expired_is_missed(hook: InstalledHook, podman: Podman, scratch: Scratch) -> None:
    planned(hook, "--floor", "gold", "--cpu", "500m", "--runtime", "podman", "--parent", scratch.name)
    file = hook.run / "floors" / "gold"
    body = file.read_text().replace("until\t0\n", "until\t1\n").rpartition("end\t")[0]
    file.write_text(f"{body}end\t{len(body)}\n")
    done = podman.run(
        ("true",),
        cgroup_parent=scratch.name,
        hooks=hook.hooks_dir,
        annotations={"j10ce.io/floor": "gold"},
    )
    assert done.code == 0
    (missed,) = hook.missed().values()
    assert "expired" in missed
