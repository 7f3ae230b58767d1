"""What the manager serves: health and metrics."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Response

from adapters.serving.probes import add_probes
from adapters.serving.readiness import Readiness
from manager.metrics import Metrics
from manager.rescheduling import Rounds


def app(readiness: Readiness, metrics: Metrics, rounds: Rounds | None = None) -> FastAPI:
    """The FastAPI application of its port. rounds: None where rescheduling is off."""
    service = FastAPI(title="j10ce-qos manager", version="v1alpha1", docs_url=None, redoc_url=None)
    add_probes(service, readiness)

    @service.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def exposition() -> Response:
        """Prometheus text format."""
        return Response(metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    if rounds is not None:

        @service.get("/rescheduling")
        async def rescheduling() -> dict[str, Any]:
            """The last round of rescheduling, of who leads: pools, what would be moved, what stays hot.

            usage: how many nodes' usage is known from where.
            """
            return {"problem": rounds.problem, "usage": rounds.sources, **asdict(rounds.latest)}

    return service
