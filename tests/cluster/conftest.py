"""Real control planes for tests: one that all share, and a factory for those of one test."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import binaries as lab_binaries
from lab import cluster as lab_cluster
from lab.cluster import Cluster

ClusterFactory = Callable[..., Cluster]
Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def binaries() -> lab_binaries.Binaries:
    """The control plane's programs; built at the first use, about 5 minutes."""
    return lab_binaries.provide(os.environ)


@pytest.fixture(scope="session")
def cluster(binaries: lab_binaries.Binaries) -> Iterator[Cluster]:
    """One control plane with the CRDs applied for the whole session. Tests use namespaces of their own."""
    name = f"test-{secrets.token_hex(3)}"
    yield lab_cluster.up(name, binaries=binaries)
    lab_cluster.down(name)


@pytest.fixture(scope="session")
def kubectl(cluster: Cluster, binaries: lab_binaries.Binaries) -> Kubectl:
    """Runs kubectl on the shared cluster: kubectl(*arguments, document=OBJECT, check=False)."""
    binary = binaries.kubectl
    assert binary is not None, "these tests need kubectl in J10CE_BIN, on PATH or built"

    def run(*arguments: str, document: Any = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(binary), "--kubeconfig", str(cluster.kubeconfig), *arguments],
            input=None if document is None else json.dumps(document),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture
def make_cluster(binaries: lab_binaries.Binaries) -> Iterator[ClusterFactory]:
    """Makes clusters that end with the test: make_cluster(scheduler_config=PATH, ...)."""
    names: list[str] = []

    def make(scheduler_config: Path | None = None, **options: object) -> Cluster:
        names.append(f"test-{secrets.token_hex(3)}")
        return lab_cluster.up(names[-1], binaries=binaries, scheduler_config=scheduler_config, **options)  # type: ignore[arg-type]

    yield make
    for name in names:
        if any(one.name == name for one in lab_cluster.clusters()):
            lab_cluster.down(name)
