"""Everything the extender serves that is not a verb: health, metrics, holds.

The ledger is asked on the verbs' event loop; a thread does what takes longer, rendering what it said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated

from fastapi import FastAPI, Query, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from adapters.serving.probes import add_probes
from adapters.serving.readiness import Readiness
from extender.metrics import Metrics
from extender.snapshots import Snapshots
from ledger.decisions import DemandReport, Mode
from qos import quantity


class _Answer(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class NodeHolds(_Answer):
    """The holds of a policy on one node."""

    node_name: str
    slots: int = Field(description="Slots held there.")


class MissingSlots(_Answer):
    """Slots that no node has room for."""

    count: int
    reason: str = Field(description="One of those of a policy's status.unplaced.")
    resource: str = Field(description="The resource that is missing, or empty.")
    missing: str = Field(description="How much of it for all of these slots, as a quantity, or empty.")
    message: str = Field(
        description="NodeCannotEnforce, Spread: why, with names. BudgetExceeded: which, and what it leaves."
    )


class PolicyHolds(_Answer):
    """A policy's account."""

    policy: str = Field(description="namespace/name.")
    desired: int = Field(description="Slots asked for.")
    filled: int = Field(description="Slots that a pod has taken.")
    held: int = Field(description="Slots whose capacity is held.")
    at_risk: int = Field(
        description="Of those held: slots that would have to go elsewhere, or be unplaced, if every pod in "
        "flight, and of a DaemonSet, came where it may."
    )
    unplaced: list[MissingSlots]
    holds: list[NodeHolds] = Field(description="All holds, by node.")


class Holds(_Answer):
    """The whole account."""

    mode: Mode
    ready: bool = Field(description="False while the account is not complete or not fresh.")
    policies: list[PolicyHolds]


def app(mode: Mode, snapshots: Snapshots, readiness: Readiness, metrics: Metrics) -> FastAPI:
    """The FastAPI application of the second port."""
    service = FastAPI(
        title="j10ce-qos extender",
        version="v1alpha1",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    add_probes(service, readiness)

    @service.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def exposition() -> Response:
        """Prometheus text format."""
        await snapshots.take()
        metrics.look()
        text = await asyncio.to_thread(metrics.render)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @service.get("/holds", response_model=Holds)
    async def holds(
        namespace: Annotated[str, Query(description="Only policies of this namespace.", max_length=253)] = "",
    ) -> Response:
        """Where each policy's slots are held: all of them, where the status shows the 20 largest.

        Readers share an answer for about a second.
        """
        ready = not readiness.problem()
        text = await asyncio.to_thread(_render, mode, ready, (await snapshots.take()).reports, namespace)
        return Response(text, media_type="application/json")

    return service


def _render(mode: Mode, ready: bool, reports: Mapping[str, DemandReport], namespace: str) -> str:
    asked = [
        _account(key, report)
        for key, report in sorted(reports.items())
        if not namespace or key.startswith(f"{namespace}/")
    ]
    return Holds(mode=mode, ready=ready, policies=asked).model_dump_json(by_alias=True)


def _account(key: str, report: DemandReport) -> PolicyHolds:
    return PolicyHolds(
        policy=key,
        desired=report.desired,
        filled=report.filled,
        held=report.held,
        at_risk=report.at_risk,
        unplaced=[
            MissingSlots(
                count=one.count,
                reason=one.reason,
                resource=one.resource,
                missing=quantity.render(one.resource, one.missing) if one.missing else "",
                message=one.detail,
            )
            for one in report.unplaced
        ],
        holds=[NodeHolds(node_name=node, slots=slots) for node, slots in sorted(report.holds)],
    )
