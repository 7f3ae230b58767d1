"""Admission of new pods: their priority, the raising of owners, and the webhook, which fails open."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from adapters.api import PODS, POLICIES, PRIORITY_CLASSES, APIError, Resource
from adapters.kubernetes import priorities
from qos import keys
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
        if pod["metadata"].get("namespace", "default") != "default":
            return pod
        self._raise(pod)
        return self._reviewed(pod)

    def _raise(self, pod: Body) -> None:
        """What manifests/hand-over/raising.yaml does, with all policies' status up to date."""
        own = pod["spec"].get("priority", 0)
        if own in [self._priority(policy) for policy in self._selecting(pod)]:
            meta = {"labels": {}, "annotations": {}} | pod["metadata"]
            pod["metadata"] = meta | {
                "labels": meta["labels"] | {keys.RAISED_PRIORITY_LABEL: "true"},
                "annotations": meta["annotations"] | {keys.OWN_PRIORITY_ANNOTATION: f"{own} "},
            }
            pod["spec"] |= {"priority": own + 1, "priorityClassName": priorities.of_owners(own + 1)}

    def _selecting(self, pod: Body) -> list[Body]:
        labels = pod["metadata"].get("labels", {}).items()
        policies = [entry.body for entry in self._store.entries(POLICIES)]
        return [one for one in policies if one["spec"]["selector"]["matchLabels"].items() <= labels]

    def _priority(self, policy: Body) -> int:
        there = self._store.find(PRIORITY_CLASSES, "", policy["spec"].get("priorityClassName", ""))
        return there["value"] if there else 0

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
            *path, last = (part.replace("~1", "/") for part in change["path"].split("/")[1:])
            place = pod
            for part in path:
                place = place[part]
            if change["op"] == "remove":
                del place[last]
            else:
                place[last] = change["value"]
        return pod
