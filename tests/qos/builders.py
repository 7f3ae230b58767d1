"""A short way to write policies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from qos.cluster.objects import Requirement, Selector
from qos.cluster.policy import Policy

CHECKOUT = Selector((Requirement("app", "In", ("checkout",)),))


def policy(**others: Any) -> Policy:
    """shop/checkout: slots of 2 cores for the pods with its label."""
    plain = Policy(
        key="shop/checkout",
        namespace="shop",
        name="checkout",
        uid="u",
        generation=3,
        resource_version="7",
        created=5.0,
        selector=CHECKOUT,
        floor={"cpu": 2000},
        count=4,
    )
    return replace(plain, **others)
