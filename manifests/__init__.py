"""What is applied to a cluster, shipped with the commands: CRDs, and a kustomize base with overlays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Final

OVERLAYS: Final = ("second-scheduler", "default-scheduler")
"""Where the extender runs: beside a second kube-scheduler, or beside the cluster's own."""


@contextmanager
def crds() -> Iterator[Path]:
    """The folder of the generated CRDs, for as long as the context lasts."""
    with resources.as_file(resources.files(__name__) / "crds") as folder:
        yield folder


@contextmanager
def overlay(name: str) -> Iterator[Path]:
    """The kustomization of one of OVERLAYS, in its tree as kustomize needs it; else ValueError."""
    if name not in OVERLAYS:
        raise ValueError(f"overlay {name!r} is not one of {', '.join(OVERLAYS)}")
    with resources.as_file(resources.files(__name__)) as root:
        yield root / "overlays" / name
