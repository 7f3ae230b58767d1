"""Makes a KubeSchedulerConfiguration written for a real cluster fit one lab cluster among several."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

API_VERSION = "kubescheduler.config.k8s.io/v1"
KIND = "KubeSchedulerConfiguration"
PATIENT_SECONDS = 30
"""Seconds for which kube-scheduler waits for an extender in the lab, which judges floors and not speed: in
mode Guard, an answer that a busy machine delays would let a pod into a floor.
"""
_LAB_QPS = 5000


class SchedulerConfigError(ValueError):
    """The file is no KubeSchedulerConfiguration; the message names the file, the field and the value."""


def load(path: Path) -> dict[str, Any]:
    """Read and check a file. Raises SchedulerConfigError."""
    try:
        document = YAML(typ="safe").load(path.read_text())
    except OSError as error:
        raise SchedulerConfigError(f"{path}: {error.strerror}") from error
    except YAMLError as error:
        raise SchedulerConfigError(f"{path}: not YAML: {error}") from error
    if not isinstance(document, dict):
        raise SchedulerConfigError(f"{path}: expected one object of kind {KIND}")
    for field, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(field) != expected:
            raise SchedulerConfigError(f"{path}: {field} is {document.get(field)!r}, expected {expected!r}")
    return document


def for_lab(document: Mapping[str, Any], *, verbs_url: str = "", qps_limits: bool = False) -> dict[str, Any]:
    """The same configuration for a lab cluster.

    The extenders' scheme, host and port become verbs_url's (their paths stay), they have PATIENT_SECONDS for
    an answer, kubeconfig is dropped (kwokctl sets it), nobody is elected (a restarted one must not wait for a
    lease), and the client's rate limit is lifted unless qps_limits.
    """
    result = dict(document)
    connection = {k: v for k, v in dict(document.get("clientConnection") or {}).items() if k != "kubeconfig"}
    if not qps_limits:
        connection |= {"qps": _LAB_QPS, "burst": 2 * _LAB_QPS}
    result["clientConnection"] = connection
    result["leaderElection"] = {"leaderElect": False}
    if verbs_url and document.get("extenders"):
        result["extenders"] = [_extender(entry, verbs_url) for entry in document["extenders"]]
    return result


def without_bind(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same configuration, in which kube-scheduler binds by itself; an entry for bind alone goes."""
    entries = [
        {key: value for key, value in entry.items() if key != "bindVerb"}
        for entry in document.get("extenders") or ()
    ]
    return dict(document) | {"extenders": [e for e in entries if any(key.endswith("Verb") for key in e)]}


def empty() -> dict[str, Any]:
    """Upstream's defaults."""
    return {"apiVersion": API_VERSION, "kind": KIND}


def write(document: Mapping[str, Any], path: Path) -> None:
    """Write as YAML."""
    with path.open("w") as file:
        YAML(typ="safe").dump(json.loads(json.dumps(document)), file)  # plain, whoever read it


def _extender(entry: Mapping[str, Any], verbs_url: str) -> dict[str, Any]:
    target = urlsplit(verbs_url)
    path = urlsplit(str(entry.get("urlPrefix", ""))).path
    result = dict(entry) | {"urlPrefix": urlunsplit((target.scheme, target.netloc, path, "", ""))}
    result["httpTimeout"] = f"{PATIENT_SECONDS}s"
    if target.scheme == "http":
        result.pop("enableHTTPS", None)
        result.pop("tlsConfig", None)
    return result


def with_extender(mode: str) -> dict[str, Any]:
    """The default scheduler with the extender beside it, as scheduler-config/ has it and explains it.

    mode: "guard", "strict" or "observe". The folder is not part of what is installed; a test compares.
    """
    both = {"urlPrefix": "http://127.0.0.1:10260", "nodeCacheCapable": True, "ignorable": mode != "strict"}
    second = (
        {"prioritizeVerb": "prioritize", "weight": 1} if mode == "observe" else {"preemptVerb": "preempt"}
    )
    decide = both | {"filterVerb": "filter", "httpTimeout": "300ms"} | second
    commit = both | {"bindVerb": "bind", "httpTimeout": "2s"}
    return empty() | {"extenders": [decide, commit]}
