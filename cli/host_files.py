"""What a control-plane host needs for overlay default-scheduler, as files in a folder of the user's."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from cli import installation

NAMES: Final = ("README.md", *installation.HOST_CONFIGURATION, "static-pod.yaml")


class HostFilesError(Exception):
    """A file cannot or must not be written; the message names it and says what to do."""


def texts(choices: installation.Choices) -> dict[str, str]:
    """The files' contents by name, as chosen."""
    made = {name: installation.overlay_file("default-scheduler", name) for name in NAMES}
    made |= {name: installation.chosen(made[name], choices) for name in installation.HOST_CONFIGURATION}
    if choices.image:
        # A function, because in a template a backslash of the user's would mean something.
        made["static-pod.yaml"] = re.sub(
            rf"image: {installation.IMAGE}:\S+",
            lambda _: f"image: {choices.image}",
            made["static-pod.yaml"],
        )
    return made


def refuse_edited(folder: Path, wanted: Mapping[str, str]) -> None:
    """Raise HostFilesError when a file is there with other content: someone may have edited it."""
    for name, text in wanted.items():
        path = folder / name
        try:
            same = not os.path.lexists(path) or path.read_bytes() == text.encode()
        except OSError as error:
            raise HostFilesError(f"{path} cannot be read: {error.strerror}") from error
        if not same:
            raise HostFilesError(
                f"{path} is there with other content: keep it and name another folder with --files, "
                "or overwrite it with --force"
            )


def write(folder: Path, wanted: Mapping[str, str]) -> None:
    """Write the files, each whole or not at all, and none before all are on the disk."""
    mark = f".{secrets.token_hex(4)}.tmp"
    drafts = {folder / f".{name}{mark}": name for name in wanted}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for draft, name in drafts.items():
            _draft(draft, wanted[name])
        for draft, name in drafts.items():
            draft.replace(folder / name)
    except OSError as error:
        raise HostFilesError(f"{error.filename2 or error.filename}: {error.strerror}") from error
    finally:
        _remove(drafts)


def _draft(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _remove(drafts: Iterable[Path]) -> None:
    for draft in drafts:
        # What is gone is renamed or was never made; why it failed is told already.
        with suppress(OSError):
            draft.unlink()
