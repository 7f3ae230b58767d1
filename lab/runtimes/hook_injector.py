"""The NRI plugin hook-injector beside a containerd: it gives new containers the hooks of hooks.d folders."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from lab.runtimes.programs import RuntimesError


@contextlib.contextmanager
def hook_injector(program: Path, nri_socket: Path, *folders: Path) -> Iterator[None]:
    """The plugin, registered, with the hooks that the folders have now."""
    argv = [str(program), "-socket", str(nri_socket), *(str(folder) for folder in folders)]
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as plugin:
        assert plugin.stdout is not None
        assert plugin.stderr is not None
        try:
            if "registered" not in plugin.stdout.readline():
                plugin.kill()
                raise RuntimesError(f"hook-injector did not register: {plugin.stderr.read().strip()}")
            yield
        finally:
            plugin.kill()
