"""Container images made by hand, as the docker-archive that `ctr images import` takes.

Shape: https://github.com/moby/docker-image-spec (the combined archive: manifest.json, a config, layers).
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

from lab.runtimes import rootfs

BUSYBOX = "localhost/busybox:1"
PAUSE = "localhost/pause:1"
_FOR_EVER = ["/bin/sleep", "2147483647"]


def archive(path: Path, architecture: str = "amd64") -> Path:
    """An archive with two images of one layer: busybox, and a pause that sleeps for a pod's sandbox."""
    layer = rootfs.layer(path.with_suffix(".layer")).read_bytes()
    with tarfile.open(path, "w") as tar:
        _add(tar, "layer.tar", layer)
        manifest = [
            {
                "Config": _config(tar, f"{name.split('/')[1]}.json", command, layer, architecture),
                "RepoTags": [name],
                "Layers": ["layer.tar"],
            }
            for name, command in ((BUSYBOX, ["/bin/sh"]), (PAUSE, _FOR_EVER))
        ]
        _add(tar, "manifest.json", json.dumps(manifest).encode())
    return path


def of_program(path: Path, image: str, program: Path, architecture: str = "amd64") -> Path:
    """An archive with an image of one program that needs nothing else, found by its name."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        entry = tarfile.TarInfo(f"bin/{program.name}")
        entry.size, entry.mode = program.stat().st_size, 0o755
        with program.open("rb") as file:
            tar.addfile(entry, file)
    with tarfile.open(path, "w") as tar:
        _add(tar, "layer.tar", layer.getvalue())
        config = _config(tar, "config.json", [program.name], layer.getvalue(), architecture)
        manifest = [{"Config": config, "RepoTags": [image], "Layers": ["layer.tar"]}]
        _add(tar, "manifest.json", json.dumps(manifest).encode())
    return path


def _config(tar: tarfile.TarFile, name: str, command: list[str], layer: bytes, architecture: str) -> str:
    """Add an image's configuration; answer its name in the archive."""
    document = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Entrypoint": command, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    _add(tar, name, json.dumps(document).encode())
    return name


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
