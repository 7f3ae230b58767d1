"""Admission of new pods: their priority, and the webhook that gates owners, which fails open."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from adapters.api import PODS, PRIORITY_CLASSES, APIError, Resource
from simulation.store import Body, Store

Review = Callable[[bytes], bytes | None]
"""Answers an AdmissionReview; None: nobody does."""


class Admission:
    """What the API server makes of an object that is created; the webhook is asked in `default` alone."""

    def __init__(self, store: Store, review: Review) -> None:
        self._store, self._review = store, review

    def admit(self, resource: Resource, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The object as it is stored. APIError: a pod of a PriorityClass that is not there."""
        if resource is not PODS:
            return body
        pod = {**body, "spec": {**body["spec"]}, "status": body.get("status", {"phase": "Pending"})}
        self._prioritize(pod)
        return self._reviewed(pod) if pod["metadata"].get("namespace", "default") == "default" else pod

    def _prioritize(self, pod: Body) -> None:
        """The admission plugin Priority."""
        name = pod["spec"].get("priorityClassName", "")
        if not name:
            return
        there = self._store.find(PRIORITY_CLASSES, "", name)
        if there is None:
            raise APIError(403, "Forbidden", f"no PriorityClass with name {name} was found")
        pod["spec"]["priority"] = there["value"]
        pod["spec"]["preemptionPolicy"] = there.get("preemptionPolicy", "PreemptLowerPriority")

    def _reviewed(self, pod: Body) -> Body:
        request = {"uid": "review", "namespace": "default", "object": pod}
        answer = self._review(orjson.dumps({"kind": "AdmissionReview", "request": request}))
        response = orjson.loads(answer)["response"] if answer is not None else {}
        for change in orjson.loads(b64decode(response["patch"])) if "patch" in response else ():
            assert (change["op"], change["path"]) == ("add", "/spec/schedulingGates")
            pod["spec"]["schedulingGates"] = change["value"]
        return pod
