"""The Kubernetes minors that a lab cluster can be of: the newest and the two before it, a Go module each.

The newest's module (lab/gomodule) has all programs of a control plane; those of lab/oldgomodule have what is
Kubernetes' own alone, for etcd and KWOK serve any of them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

VARIABLE: Final = "J10CE_KUBERNETES"
"""The environment variable that names the minor, such as 1.35; without it, the newest."""
NEWEST: Final = Path(__file__).parent / "gomodule"
_OLDER: Final = Path(__file__).parent / "oldgomodule"
_KUBERNETES: Final = re.compile(r"k8s\.io/kubernetes v(\d+)\.(\d+)\.\S+")

_RAISES_SINCE: Final = (1, 36)
BETA: Final = "admissionregistration.k8s.io/v1beta1"
"""Where the minors before 1.36 have MutatingAdmissionPolicy, which they serve only when told to."""
BETA_GATE: Final = "MutatingAdmissionPolicy"


def known() -> dict[str, Path]:
    """Minor (1.36) -> its Go module, newest first."""
    older = sorted(_OLDER.iterdir(), key=lambda module: int(minor_of(module).split(".")[1]), reverse=True)
    return {minor_of(module): module for module in (NEWEST, *older)}


def minor_of(module: Path) -> str:
    """Which Kubernetes a Go module builds, such as 1.36."""
    return minor(version_of(module))


def version_of(module: Path) -> str:
    """The same in full: v1.36.3. LookupError when its go.mod does not say."""
    found = _KUBERNETES.search((module / "go.mod").read_text())
    if found is None:
        raise LookupError(f"{module / 'go.mod'} does not name k8s.io/kubernetes' version")
    return found.group(0).split()[1]


def minor(version: str) -> str:
    """1.36 of v1.36.3 or 1.36.3."""
    return ".".join(version.removeprefix("v").split(".")[:2])


def has_beta_alone(version: str) -> bool:
    """Whether an API server of that version has MutatingAdmissionPolicy as a beta alone."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) < _RAISES_SINCE
