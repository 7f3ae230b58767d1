"""Where the hook's files are on a node, all of them below one root so that it can be tried elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HOOKS_DIRS = ("/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d")
"""podman, CRI-O and NRI's hook-injector read the first by default; podman must be told of the second."""

DEFINITION = "j10ce.json"


@dataclass(frozen=True, slots=True)
class Places:
    """root: "/" on a node. hooks_dir: as seen below the root. Properties: paths as this process sees them."""

    root: Path = Path("/")
    hooks_dir: str = HOOKS_DIRS[0]

    @property
    def home(self) -> Path:
        """One folder a version of the code, and the record of the installation."""
        return self.below("/usr/libexec/j10ce")

    @property
    def record(self) -> Path:
        """What was made, for uninstall."""
        return self.home / "installation.json"

    @property
    def definition(self) -> Path:
        """The hooks.d file."""
        return self.below(self.hooks_dir) / DEFINITION

    @property
    def run(self) -> Path:
        """Precomputed settings, markers, the lock: gone after a reboot."""
        return self.below("/run/j10ce")

    @property
    def config(self) -> Path:
        """The administrator's settings of the hook; never written by us."""
        return self.below("/etc/j10ce/hook.conf")

    @property
    def base_spec(self) -> Path:
        """containerd's base runtime spec with the hook."""
        return self.below("/etc/containerd/j10ce-base-spec.json")

    def below(self, path: str) -> Path:
        """An absolute path of a node, below the root."""
        return self.root / path.lstrip("/")
