"""The webhook's certificate outlives the program; whatever the Secret holds, there is one that works."""

from __future__ import annotations

import base64

import pytest

from adapters import own_certificate
from adapters.api import SECRETS, APIError
from adapters.memory import MemoryAPI
from adapters.webhooks.kept_certificate import KeptCertificate

NAME = "hook"


@pytest.fixture
def api():
    return MemoryAPI()


def kept(api, host="j10ce-extender.j10ce-system.svc"):
    return KeptCertificate(api, "kube-system", NAME, host)


async def test_it_is_the_same_after_a_restart_and_another_for_another_host(api):
    first = await kept(api).provide()
    assert await kept(api).provide() == first
    other = await kept(api, "127.0.0.1").provide()
    assert other != first
    assert await kept(api, "127.0.0.1").provide() == other


@pytest.mark.parametrize("damage", ["no key", "not base64", "not PEM"])
async def test_one_that_cannot_be_used_is_replaced(api, damage):
    await kept(api).provide()
    secret = api.get_object(SECRETS, "kube-system", NAME)
    if damage == "no key":
        del secret["data"]["key"]
    else:
        secret["data"]["key"] = "!" if damage == "not base64" else base64.b64encode(b"key").decode()
    api.put(SECRETS, secret)
    own_certificate.context(found := await kept(api).provide())
    assert await kept(api).provide() == found


async def test_an_empty_secret_is_filled_without_the_right_to_make_one(api):
    api.put(SECRETS, {"metadata": {"namespace": "kube-system", "name": NAME}})
    api.fail("create", APIError(403, "Forbidden", "no"), resource=SECRETS, times=9)
    found = await kept(api).provide()
    assert await kept(api).provide() == found


async def test_of_two_that_begin_at_once_one_is_kept(api):
    """Both have seen that there is none: the API server knows one of them, so both serve that one."""
    api.put(SECRETS, {"metadata": {"namespace": "kube-system", "name": NAME}})
    one, other = kept(api), kept(api)
    assert await one._stored() is None
    found = await other.provide()
    assert await one._store(own_certificate.made("j10ce-extender.j10ce-system.svc", "")) == found
    assert await one.provide() == found


async def test_without_access_there_is_one_for_this_life(api):
    api.fail("get", APIError(403, "Forbidden", "no"), resource=SECRETS)
    one = kept(api)
    assert await one.provide() == await one.provide()
    assert not api.objects(SECRETS)
