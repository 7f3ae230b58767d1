"""The hook's process as a runtime starts it, on a real process in a scratch cgroup."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest

from hook.installation import entry, imports, interpreter, tree, trial
from hook.installation.places import Places
from kernel import cache
from lab.runtimes import cgroups
from lab.runtimes.cgroups import Scratch
from lab.runtimes.installed_hook import patient
from tests.hook.own_time import OwnTime
from tests.pythons import VERSIONS, python_of

SECONDS = 60.0
"""For a hook's process to end: some 50 ms of work."""
UID = "0a1b2c3d-0000-4000-8000-00000000000a"
METERS = ("usage", "usage_in_bytes", "failcnt", "peak", "pressure", "procs", "tasks", "threads")
"""Ends of names of writable files that hold no setting."""
OTHER_UID = "0a1b2c3d-0000-4000-8000-00000000000b"


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> Path:
    """Each Python the hook shall run on."""
    found = python_of(request.param)
    if found is None:
        pytest.skip(f"there is no Python {request.param} on this machine")
    return found


@pytest.fixture
def own_time(monkeypatch: pytest.MonkeyPatch) -> OwnTime:
    """For the hook's modules in this process."""
    made = OwnTime()
    for module in ("process", "program", "state"):
        monkeypatch.setattr(f"hook.{module}.time", made)
    return made


@pytest.fixture(scope="session")
def system_python() -> Path:
    return interpreter.choose(None).path


@pytest.fixture(scope="session")
def code(tmp_path_factory: pytest.TempPathFactory, system_python: Path) -> Path:
    """The hook's code as installed, compiled for the system's Python; with time enough on any machine."""
    return tree.put(tmp_path_factory.mktemp("libexec"), patient(imports.sources()), system_python)


@dataclass
class Node:
    """A node's files for the hook, below a folder of the test's, and the hook's process."""

    root: Path
    code: Path
    python: Path
    places: Places = field(init=False)

    def __post_init__(self) -> None:
        self.places = Places(self.root)
        self.places.run.mkdir(parents=True, mode=0o700)
        self.config("")

    def entries(
        self,
        folder: str,
        key: str,
        containers: Mapping[str, Sequence[cache.Entry]],
        until: int = 0,
        parent: str = "",
    ) -> Path:
        """Write a file of the cache; answer its path."""
        at = self.places.run / folder
        at.mkdir(mode=0o700, exist_ok=True)
        settings = {name: list(entries) for name, entries in containers.items()}
        cache.write(str(at), key, until, settings, parent)
        return at / key

    def config(self, text: str) -> None:
        """Write the administrator's settings."""
        self.places.config.parent.mkdir(parents=True, exist_ok=True)
        self.places.config.write_text(text)
        self.places.config.chmod(0o600)

    def argv(self, python: Path | None = None) -> list[str]:
        """As the hooks.d file has it."""
        hook = entry.oci(python or self.python, self.code, self.places)
        return [hook["path"], *hook["args"][1:]]

    def run(
        self, state: bytes | str | IO[bytes], python: Path | None = None, **options: object
    ) -> subprocess.CompletedProcess[str]:
        """Run the hook on that standard input."""
        given: dict[str, object] = {"stdin": state} if hasattr(state, "read") else {"input": _text(state)}
        return subprocess.run(  # type: ignore[call-overload, no-any-return]
            self.argv(python),
            **given,
            env=dict(pair.split("=", 1) for pair in entry.ENVIRONMENT),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            **options,
        )

    def missed(self) -> dict[str, str]:
        """Reasons by container id."""
        folder = self.places.run / "missed"
        found = [path.read_text() for path in folder.iterdir()] if folder.is_dir() else []
        facts = [dict(line.split("\t") for line in text.splitlines()) for text in found]
        return {fact.get("id", ""): fact.get("reason", "") for fact in facts}


def _text(state: object) -> str:
    return state.decode("latin-1") if isinstance(state, bytes) else str(state)


@pytest.fixture
def node(tmp_path: Path, code: Path, system_python: Path) -> Node:
    return Node(tmp_path / "node", code, system_python)


@pytest.fixture(params=["open", "closed"])
def fail(request: pytest.FixtureRequest, node: Node) -> str:
    """What the administrator chose."""
    node.config(f"fail {request.param}\n")
    return str(request.param)


@dataclass
class Container:
    """A process that waits in a cgroup of its own, in every hierarchy, as a runtime leaves it for hooks."""

    scratch: Scratch
    parts: tuple[str, ...]
    id: str
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.process.pid

    def state(self, **changes: object) -> str:
        """What the runtime writes to a hook's stdin; changes: other fields."""
        known: dict[str, object] = {
            "ociVersion": "1.0.2",
            "id": self.id,
            "status": "created",
            "pid": self.pid,
        }
        return json.dumps({**known, "bundle": "/", "annotations": {}, **changes})

    def read(self, file: str) -> str:
        return self.file(file).read_text().strip()

    def file(self, file: str, level: int = 0) -> Path:
        parts = self.parts[: len(self.parts) - level]
        return next(path for folder in self.scratch.folders(*parts) if (path := folder / file).exists())

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def scratch() -> Iterator[Scratch]:
    if os.geteuid() != 0:
        pytest.skip("cgroups are root's to make: run this as root")
    with cgroups.scratch("hook") as made:
        yield made


class Containers:
    """Makes containers, plain ones and those of pods."""

    def __init__(self, scratch: Scratch) -> None:
        self.scratch = scratch
        self.made: list[Container] = []
        self.when_made: list[Callable[[], None]] = []

    def plain(self) -> Container:
        identity = secrets.token_hex(8)
        return self.at(identity, "plain", f"libpod-{identity}")

    def pod(self, uid: str = UID, tier: str = "burstable") -> Container:
        identity = secrets.token_hex(8)
        return self.at(
            identity,
            *("kubepods", tier, f"pod{uid}", identity) if tier else ("kubepods", f"pod{uid}", identity),
        )

    def at(self, identity: str, *parts: str) -> Container:
        group = self.scratch.make(*parts)
        process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
        for folder in group.folders():
            (folder / "cgroup.procs").write_text(str(process.pid))
        self.made.append(Container(self.scratch, parts, identity, process))
        for told in self.when_made:
            told()
        return self.made[-1]


@pytest.fixture
def containers(scratch: Scratch) -> Iterator[Containers]:
    made = Containers(scratch)
    yield made
    for container in made.made:
        container.end()


@pytest.fixture(scope="session")
def floor() -> list[cache.Entry]:
    """Settings that this machine's kernel takes, and no runtime writes: cpu, then memory."""
    return [
        (0, "set", file, value) for _, file, value in trial.values(Path("/proc/self/mountinfo").read_text())
    ]


@pytest.fixture
def uid() -> str:
    """Of the pod that a test is about."""
    return UID


@pytest.fixture
def other_uid() -> str:
    """Of its neighbour."""
    return OTHER_UID


class Untouched:
    """All settings of all cgroups of this machine are what they were when the last container was made.

    Left out are scratch groups of other tests, which may run at the same time.
    """

    def __init__(self, mine: Scratch) -> None:
        self._mine = mine
        self.look()

    def look(self) -> None:
        """From here on they shall stay."""
        self._before = self._settings()

    def check(self, *own: Path) -> None:
        """Only the named groups differ."""
        after = self._settings()
        common = self._before.keys() & after.keys()
        different = [path for path in common if self._before[path] != after[path]]
        outside = [path for path in different if Path(path).parent not in own]
        assert not outside, {path: (self._before[path], after[path]) for path in outside}
        assert any(self._mine.name in path for path in common)

    def _settings(self) -> dict[str, str]:
        found = {}
        for mount in sorted(set(self._mine.mounts.values())):
            for at, folders, files in os.walk(mount):
                folders[:] = [name for name in folders if not self._of_others(name)]
                for path in (Path(at, file) for file in files if not file.endswith(METERS)):
                    with contextlib.suppress(OSError, UnicodeDecodeError):  # write-only, or it has just gone
                        if path.stat().st_mode & 0o200:
                            found[str(path)] = path.read_text()
        return found

    def _of_others(self, name: str) -> bool:
        return name.startswith("j10ce-") and name != self._mine.name.strip("/")


@pytest.fixture
def untouched(scratch: Scratch, containers: Containers) -> Untouched:
    """With neighbours: a plain container and another pod."""
    containers.plain()
    containers.pod(OTHER_UID)
    made = Untouched(scratch)
    containers.when_made.append(made.look)
    return made


def boot_clock() -> int:
    return int(time.clock_gettime(time.CLOCK_BOOTTIME))
