"""What is applied to a cluster, shipped with the commands: CRDs, a kustomize base, overlays, agent, modes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Final

OVERLAYS: Final = ("second-scheduler", "default-scheduler")
"""Where the extender runs: beside a second kube-scheduler, or beside the cluster's own."""
MODES: Final = ("observe", "strict")
"""Whose kube-scheduler configuration differs from the overlays', which are Guard's."""


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


@contextmanager
def agent() -> Iterator[Path]:
    """The kustomization of the agent, in its tree."""
    with resources.as_file(resources.files(__name__)) as root:
        yield root / "agent"


def text(path: str) -> str:
    """The text of a file, by its path here."""
    return resources.files(__name__).joinpath(*path.split("/")).read_text(encoding="utf-8")


def mode(name: str) -> str:
    """The text of kube-scheduler's configuration for one of MODES; else ValueError."""
    if name not in MODES:
        raise ValueError(f"mode {name!r} is not one of {', '.join(MODES)}")
    return (resources.files(__name__) / "modes" / f"{name}.yaml").read_text(encoding="utf-8")
