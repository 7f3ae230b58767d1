"""Policies and pods as the API server has them, and a manager on an API server in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from adapters.memory import MemoryAPI
from qos import keys

Object = dict[str, Any]


@pytest.fixture
def api(fake_time: Any) -> MemoryAPI:
    return MemoryAPI(clock=fake_time)


@pytest.fixture
def make_policy() -> Callable[..., Object]:
    def make(name: str = "checkout", namespace: str = "shop", cpu: str = "2") -> Object:
        return {
            "apiVersion": keys.API_VERSION,
            "kind": "MinimalReservationPolicy",
            "metadata": {"namespace": namespace, "name": name, "uid": f"uid-{name}"},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "floor": {"resources": {"cpu": cpu}},
                "slots": {"count": 0},
            },
        }

    return make


@pytest.fixture
def make_pod() -> Callable[..., Object]:
    def make(
        name: str, cpu: str = "1", app: str = "checkout", namespace: str = "shop", **more: Any
    ) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": namespace, "name": name, "labels": {"app": app}},
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
            "status": {"phase": more.pop("phase", "Running")},
        } | more

    return make
