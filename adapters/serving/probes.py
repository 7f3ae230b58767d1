"""/healthz and /readyz of a FastAPI application."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Response
from pydantic import BaseModel, Field

from adapters.serving.readiness import Readiness


class Health(BaseModel):
    """Whether a probe passes, and if not why."""

    status: str = Field(description="ok, or why not.", examples=["ok"])


def add_probes(service: FastAPI, readiness: Readiness) -> None:
    """Answer both probes from now on."""
    unready: dict[int | str, dict[str, Any]] = {503: {"model": Health, "description": "Not ready."}}

    @service.get("/healthz")
    async def healthz() -> Health:
        """The process lives: its loop answers."""
        return Health(status="ok")

    @service.get("/readyz", responses=unready)
    async def readyz(response: Response) -> Health:
        """Every list has synced, no watch is stale, and it is not shutting down."""
        problem = readiness.report()
        if problem:
            response.status_code = 503
        return Health(status=problem or "ok")
