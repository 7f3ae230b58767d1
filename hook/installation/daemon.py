"""The containerd that runs on this node, wherever its configuration is: what that says of hooks."""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hook.installation.machine import command_lines

NAME: Final = "containerd"
DEFAULT: Final = Path("/etc/containerd/config.toml")
_OPTIONS: Final = ("-c", "--config", "-config")
_NRI: Final = "io.containerd.nri.v1.nri"
_SECONDS: Final = 30
_OTHERS_MAY_WRITE: Final = 0o022


@dataclass(frozen=True, slots=True)
class Daemon:
    """A containerd of root's. executable: below /proc; words: its command line; file: its configuration."""

    pid: int
    executable: Path
    words: tuple[str, ...]
    file: Path


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a containerd would read now. source: for people; text: all of it; parsed: {} if it is no TOML."""

    source: str
    text: str
    parsed: Mapping[str, Any]

    @property
    def nri_is_on(self) -> bool | None:
        """None where the configuration does not say: containerd 1.7 has it off by default, 2 on."""
        if any(_NRI in name for name in self.parsed.get("disabled_plugins") or ()):
            return False
        section = (self.parsed.get("plugins") or {}).get(_NRI) or {}
        return not section["disable"] if "disable" in section else None


def running(proc: Path = Path("/proc")) -> list[Daemon]:
    """Those of this node, not those inside of containers: their executable is the one we see, and root's."""
    found = []
    for pid, raw in command_lines(proc):
        words = tuple(os.fsdecode(word) for word in raw)
        if Path(words[0]).name != NAME:
            continue
        with suppress(OSError):
            executable = proc / str(pid) / "exe"
            if _is_roots_here(executable, executable.readlink()):
                file = (proc / str(pid) / "cwd").readlink() / (_option(words) or DEFAULT)
                found.append(Daemon(pid, executable, words, file))
    return found


def configurations(daemons: Sequence[Daemon]) -> Iterator[Configuration]:
    """Each one's, with what it imports; where it does not say, its file. Unreadable ones are left out."""
    for daemon in daemons:
        text = _dump(daemon)
        if not text:
            with suppress(OSError):
                text = daemon.file.read_text(errors="replace")
        if text:
            source = f"{daemon.file} (of process {daemon.pid}, {NAME})"
            yield Configuration(source, text, _parsed(text))


def _option(words: Sequence[str]) -> str:
    """The value of -c or --config; "" for none. With both forms: -c FILE, --config=FILE."""
    for word, following in zip(words[1:], (*words[2:], ""), strict=False):
        name, equals, value = word.partition("=")
        if name in _OPTIONS:
            return value if equals else following
    return ""


def _is_roots_here(executable: Path, named: Path) -> bool:
    seen, here = executable.stat(), named.stat()
    same = (seen.st_dev, seen.st_ino) == (here.st_dev, here.st_ino)
    return same and here.st_uid == 0 and not here.st_mode & _OTHERS_MAY_WRITE


def _dump(daemon: Daemon) -> str:
    """`containerd config dump`: "" where it does not work, or the file is not there (it would say defaults).

    Under its own name: k3s' containerd is one of several programs in one file.
    """
    if not daemon.file.is_file() and daemon.file != DEFAULT:
        return ""
    argv = [daemon.words[0], "--config", str(daemon.file), "config", "dump"]
    try:
        done = subprocess.run(
            argv,
            executable=str(daemon.executable),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}
