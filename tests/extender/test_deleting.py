"""How a placeholder goes that is not any more what it was thought to be."""

from __future__ import annotations

import orjson
import pytest

from adapters.api import PODS
from adapters.kubernetes import placeholders
from adapters.memory import MemoryAPI
from extender.deleting import delete

NAMESPACE = "j10ce-placeholders"


class Busy(MemoryAPI):
    """Changes a pod right before each of so many deletions arrives; `binds`: in that it is bound."""

    changes, binds = 0, False

    async def delete(self, resource, namespace, name, **options):
        if self.changes:
            self.changes -= 1
            pod = orjson.loads(await self.get(resource, namespace, name))
            if self.binds:
                pod["spec"]["nodeName"] = "n1"
            else:
                pod["status"] = {"conditions": [{"type": "PodScheduled", "message": f"{self.changes}"}]}
            self.put(resource, pod)
        await super().delete(resource, namespace, name, **options)


@pytest.fixture
def api():
    return Busy()


async def made(api: Busy):
    meta = {
        "name": "hold-1",
        "namespace": NAMESPACE,
        "labels": {"j10ce.io/placeholder": "true"},
        "annotations": {"j10ce.io/policy": "default/checkout"},
    }
    api.put(PODS, {"metadata": meta, "spec": {"containers": []}, "status": {"phase": "Pending"}})
    return placeholders.placeholder(await api.get(PODS, NAMESPACE, "hold-1"))


def deletions(api: Busy) -> int:
    return sum(call[0] == "delete" for call in api.calls)


@pytest.mark.parametrize("changes", [0, 1, 5])
async def test_one_that_waits_goes_once_it_is_known_as_it_is(api, changes):
    one = await made(api)
    api.changes = changes
    while (found := await delete(api, NAMESPACE, one)) is not None:
        assert (found.uid, found.bound) == (one.uid, False)
        one = found
    assert not api.objects(PODS)
    assert deletions(api) == changes + 1


async def test_one_that_is_bound_meanwhile_stays(api):
    one = await made(api)
    api.changes, api.binds = 1, True
    found = await delete(api, NAMESPACE, one)
    assert found is not None
    assert (found.uid, found.bound) == (one.uid, True)
    assert deletions(api) == 1
    assert len(api.objects(PODS)) == 1


async def test_one_that_was_bound_goes_by_its_uid_alone(api):
    one = await made(api)
    api.changes, api.binds = 1, True
    assert await delete(api, NAMESPACE, one) is not None
    bound = placeholders.placeholder(await api.get(PODS, NAMESPACE, "hold-1"))
    api.changes = 1
    assert await delete(api, NAMESPACE, bound) is None


async def test_another_one_of_its_name_stays(api):
    one = await made(api)
    await api.delete(PODS, NAMESPACE, "hold-1", uid=one.uid)
    again = await made(api)
    assert again.uid != one.uid
    assert await delete(api, NAMESPACE, one) is None
    assert len(api.objects(PODS)) == 1
