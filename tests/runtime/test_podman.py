"""podman with hooks.d: the floor that an annotation names is there before the first instruction."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab.runtimes.cgroups import Scratch
from lab.runtimes.installed_hook import InstalledHook
from lab.runtimes.podman import Podman
from lab.runtimes.programs import Finished

SOFT = "/sys/fs/cgroup/memory/memory.soft_limit_in_bytes"
SHARES = "/sys/fs/cgroup/cpu/cpu.shares"
UNLIMITED = "9223372036854771712"
FLOOR = ((0, "set", "cpu.shares", "777"), (0, "set", "memory.soft_limit_in_bytes", "33554432"))

Start = Callable[..., Finished]


@pytest.fixture
def start(podman: Podman, hook: InstalledHook, scratch: Scratch) -> Start:
    """`podman run` what prints its own cgroup's values: start(annotations, *options)."""

    def run(annotations: dict[str, str], *options: str) -> Finished:
        return podman.run(
            ("cat", SHARES, SOFT),
            cgroup_parent=scratch.name,
            hooks=hook.hooks_dir,
            annotations=annotations,
            options=options,
        )

    return run


def containers(scratch: Scratch) -> list[str]:
    """cgroups of containers that are left; conmon's own, which podman never removes, does not count."""
    return [path for path in scratch.below() if "libpod-" in path]


def test_a_named_floor(hook: InstalledHook, start: Start, scratch: Scratch) -> None:
    hook.floor("web", FLOOR)
    done = start({"j10ce.io/floor": "web"})
    assert (done.code, done.stdout.split()) == (0, ["777", "33554432"]), done.stderr
    assert hook.missed() == {}
    assert containers(scratch) == []


def test_podmans_own_settings_stay(hook: InstalledHook, start: Start) -> None:
    hook.floor("web", FLOOR[:1])
    done = start({"j10ce.io/floor": "web"}, "--memory-reservation", "16m", "--cpu-shares", "100")
    assert (done.code, done.stdout.split()) == (0, ["777", "16777216"]), done.stderr


def test_without_an_annotation_nothing_changes(hook: InstalledHook, start: Start) -> None:
    hook.floor("web", FLOOR)
    done = start({})
    assert (done.code, done.stdout.split()) == (0, ["1024", UNLIMITED]), done.stderr
    assert hook.missed() == {}


def test_an_unknown_floor_fails_open(hook: InstalledHook, start: Start) -> None:
    done = start({"j10ce.io/floor": "nowhere"})
    assert (done.code, done.stdout.split()) == (0, ["1024", UNLIMITED]), done.stderr
    (said,) = hook.missed().values()
    assert "nowhere: no such file" in said


def test_an_unknown_floor_fails_closed_by_roots_word(
    hook: InstalledHook, start: Start, scratch: Scratch, podman: Podman
) -> None:
    hook.fail("closed")
    done = start({"j10ce.io/floor": "nowhere"})
    assert (done.code != 0, done.stdout) == (True, "")
    if not podman.prefix[-1].endswith("crun"):  # which says only that a hook failed
        assert "nowhere: no such file" in done.stderr
    assert containers(scratch) == []


def test_an_annotation_asks_to_fail_closed(hook: InstalledHook, start: Start) -> None:
    done = start({"j10ce.io/floor": "nowhere", "j10ce.io/hook-fail": "closed"})
    assert (done.code != 0, done.stdout) == (True, "")


def test_an_annotation_cannot_ask_to_fail_open(hook: InstalledHook, start: Start) -> None:
    hook.fail("closed")
    done = start({"j10ce.io/floor": "nowhere", "j10ce.io/hook-fail": "open"})
    assert (done.code != 0, done.stdout) == (True, "")
