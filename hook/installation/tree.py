"""The folder of one version of the hook's code: what belongs into it, and how it gets there whole.

`python3 -I -S` sees nothing that pip installed, so the modules that the hook imports are copied. Sources stay
beside the bytecode: another Python finds none of its own there and compiles them anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from hook.installation import imports
from hook.installation.errors import InstallationError

_DRAFT = ".new-"
_COMPILER = Path(__file__).with_name("compilation.py")
_COMPILE_SECONDS = 60
_DIGESTS = "bytecode.json"
_BYTECODE = (".pyc", ".bundle")


def name(files: Mapping[str, bytes]) -> str:
    """The folder's name: the version and a digest, so that other code is another folder."""
    digest = hashlib.sha256()
    for path, content in sorted(files.items()):
        digest.update(f"{path}\n{len(content)}\n".encode() + content)
    return f"{metadata.version('j10ce-qos')}-{digest.hexdigest()[:12]}"


def put(home: Path, files: Mapping[str, bytes], python: Path) -> Path:
    """The folder of these files below `home`, with bytecode for this interpreter. Raises InstallationError.

    It appears by a rename and is never changed afterwards, but for files that are damaged or missing, each of
    which is replaced by a rename: a hook that runs meanwhile reads one version only.
    """
    final = home / name(files)
    try:
        if final.is_dir():
            _repair(final, files, python)
            return final
        draft = home / f"{_DRAFT}{secrets.token_hex(4)}"
        try:
            _write(draft, files)
            _compile(python, draft, final, files)
            _sync_all(draft)
            draft.rename(final)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        sync(home)
    except OSError as error:
        raise InstallationError(f"{error.filename or home}: {error.strerror}") from error
    return final


def damage(tree: Path, files: Mapping[str, bytes]) -> list[str]:
    """Which of the files are missing or different in a tree."""
    found = []
    for path, content in files.items():
        try:
            same = (tree / path).read_bytes() == content
        except OSError:
            same = False
        if not same:
            found.append(path)
    return found


def spoiled(tree: Path) -> list[str]:
    """Which files of bytecode differ from what was compiled; missing ones only cost time.

    Nothing of a tree that has no digests of them.
    """
    try:
        known: dict[str, str] = json.loads((tree / _DIGESTS).read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        return [_DIGESTS]
    now = _digests(tree)
    return sorted(path for path, digest in known.items() if now.get(path, digest) != digest)


def trees(home: Path) -> list[Path]:
    """All versions that are there, and drafts that a killed installation left."""
    if not home.is_dir():
        return []
    return sorted(path for path in home.iterdir() if path.is_dir() and not path.is_symlink())


def is_draft(tree: Path) -> bool:
    """True for what a killed installation left."""
    return tree.name.startswith(_DRAFT)


def sync(path: Path) -> None:
    """Bring a file or a folder's entries to the disk."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def write_file(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file as a whole, on the disk before it has its name."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("xb") as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        sync(path.parent)
    finally:
        with suppress(OSError):
            draft.unlink()


def _write(tree: Path, files: Mapping[str, bytes]) -> None:
    for path, content in files.items():
        (tree / path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_file(tree / path, content)


def _repair(tree: Path, files: Mapping[str, bytes], python: Path) -> None:
    damaged = damage(tree, files)
    _write(tree, {path: files[path] for path in damaged})
    _compile(python, tree, tree, files)
    _sync_all(tree)


def _compile(python: Path, draft: Path, final: Path, files: Mapping[str, bytes]) -> None:
    words = [*files, *(f"{module}={path}" for module, path in imports.load_order(files))]
    # Without columns in tracebacks (unknown before 3.11, and ignored there) there is a tenth less to load.
    argv = [str(python), "-I", "-S", "-X", "no_debug_ranges", str(_COMPILER), str(draft), str(final), *words]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallationError(f"{python} could not compile the hook: {error}") from error
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise InstallationError(f"{python} could not compile the hook: {last[0]}")
    write_file(draft / _DIGESTS, json.dumps(_digests(draft), indent=2).encode())


def _digests(tree: Path) -> dict[str, str]:
    """SHA-256 by path of all bytecode: the interpreter does not compare it with the sources."""
    found = sorted(path for path in tree.rglob("*") if path.suffix in _BYTECODE)
    return {str(path.relative_to(tree)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def _sync_all(tree: Path) -> None:
    """For all to read, whatever the umask, and on the disk."""
    for path in (*tree.rglob("*"), tree):
        path.chmod(0o755 if path.is_dir() else 0o644)
        sync(path)
