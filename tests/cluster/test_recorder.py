"""The recorder sees all changes of kinds that were defined a moment ago, while others write."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from adapters.api import PROFILES, ClusterAPI, Resource
from adapters.kubernetes.client import KubernetesAPI
from lab import cluster as lab_cluster
from lab.cluster import Cluster
from lab.recorder import Recorder
from lab.scenario.observation import Observation

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
PROFILE = {"apiVersion": "j10ce.io/v1alpha1", "kind": "QoSProfile", "spec": {"class": "LS"}}

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


async def write(api: ClusterAPI, prefix: str) -> None:
    """Every write moves etcd's revision on, past the list from which a watch is to go on."""
    for number in itertools.count():
        await api.create(CONFIG_MAPS, "default", {"metadata": {"name": f"{prefix}-{number}"}})


async def record_a_profile(api: ClusterAPI, name: str) -> None:
    """Record from nothing until a profile that is then created is seen."""
    recorder = Recorder(api, Observation("default"))
    recording = asyncio.create_task(recorder.run())
    try:
        synced = asyncio.create_task(recorder.synced.wait())
        await asyncio.wait([recording, synced], timeout=60, return_when=asyncio.FIRST_COMPLETED)
        await api.create(PROFILES, "", PROFILE | {"metadata": {"name": name}})
        async with asyncio.timeout(60):
            while not any(getattr(change.object, "name", "") == name for change in recorder.changes):
                if recording.done():
                    recording.result()
                await asyncio.sleep(0.02)
    finally:
        recording.cancel()
        synced.cancel()
        await asyncio.gather(recording, synced, return_exceptions=True)


async def test_kinds_that_were_just_defined(make_cluster: Callable[..., Cluster]) -> None:
    cluster = await asyncio.to_thread(make_cluster, crds=False)
    async with KubernetesAPI.from_kubeconfig(cluster.kubeconfig) as api:
        for number in range(5):
            await asyncio.to_thread(lab_cluster.apply_crds, cluster)
            writing = asyncio.create_task(write(api, f"round-{number}"))
            try:
                await record_a_profile(api, f"profile-{number}")
            finally:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
            await asyncio.to_thread(cluster.kubectl, "delete", "crd", "--all")
