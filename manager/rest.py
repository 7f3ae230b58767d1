"""What the manager serves: health and metrics."""

from __future__ import annotations

from fastapi import FastAPI, Response

from adapters.serving.probes import add_probes
from adapters.serving.readiness import Readiness
from manager.metrics import Metrics


def app(readiness: Readiness, metrics: Metrics) -> FastAPI:
    """The FastAPI application of its port."""
    service = FastAPI(title="j10ce-qos manager", version="v1alpha1", docs_url=None, redoc_url=None)
    add_probes(service, readiness)

    @service.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def exposition() -> Response:
        """Prometheus text format."""
        return Response(metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return service
