"""Real control planes for tests: one that all share, and a factory for those of one test."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from adapters.api import NotFound, Resource
from adapters.kubernetes.client import KubernetesAPI
from lab import binaries as lab_binaries
from lab import cluster as lab_cluster
from lab.cluster import Cluster
from tests.cluster.agent_at_work import AtWork, Crowded, in_a_crowd
from tests.waiting import SECONDS

ClusterFactory = Callable[..., Cluster]
Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")


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


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[KubernetesAPI]:
    """Our client of the shared cluster."""
    async with KubernetesAPI.from_kubeconfig(cluster.kubeconfig) as client:
        yield client


@pytest.fixture
async def namespace(api: KubernetesAPI) -> AsyncIterator[str]:
    """A namespace of the test's own, in which pods can be made."""
    name = f"test-{secrets.token_hex(3)}"
    await api.create(NAMESPACES, "", {"metadata": {"name": name}})
    async with asyncio.timeout(SECONDS):
        while True:
            with suppress(NotFound):
                await api.get(ACCOUNTS, name, "default")
                break
            await asyncio.sleep(0.02)
    yield name
    await api.delete(NAMESPACES, "", name)


@pytest.fixture(scope="module")
def crowded(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowded]:
    """A node with a crowd of pods, for all tests of a file."""
    with in_a_crowd(cluster, tmp_path_factory.mktemp("crowd")) as made:
        yield made


@pytest.fixture
def at_work(crowded: Crowded) -> AtWork:
    """The agent of that node runs, and has settled."""
    return crowded.at_work()
