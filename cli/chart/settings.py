"""What a user of the chart may set: declared once, for values.yaml, values.schema.json and the README."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cli.kubectl import Object
from extender.config import ExtenderConfig
from ledger.decisions import Mode
from manifests import OVERLAYS
from qos.cluster.objects import Keeper

NETWORK: Final = ("None", "Kept", "Leaving")
_DIGEST: Final = r"^(sha256:[0-9a-f]{64})?$"


_README: Final = """# j10ce-qos

Floors for Kubernetes workloads: the same objects as `j10ce install` makes, as a Helm chart. What differs,
how the CRDs are upgraded and how to leave: docs/helm.md of the repository.

```console
$ helm install j10ce-qos charts/j10ce-qos --namespace j10ce-system --create-namespace
```

## Values

Generated from `cli/chart/settings.py` by `j10ce dev generate`, as `values.yaml` and `values.schema.json` are.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value. `schema`: JSON schema of what it may be; `place`: the field of the manifests that it sets,
    as kind, name and path there, whose value is then the default.
    """

    path: str
    description: str
    schema: Mapping[str, Any]
    default: Any = None
    place: tuple[str, str, tuple[str | int, ...]] | None = None


_POD: Final = ("spec", "template", "spec")
_SCHEDULER: Final = ("Deployment", "j10ce-scheduler")
_MANAGER: Final = ("Deployment", "j10ce-manager")
_AGENT: Final = ("DaemonSet", "j10ce-agent")
_LABELS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_TOLERATIONS: Final = {"type": "array", "items": {"type": "object"}}
_AMOUNTS: Final = {"type": "object", "additionalProperties": {"type": ["string", "integer"]}}
_RESOURCES: Final = {
    "type": "object",
    "properties": {"requests": _AMOUNTS, "limits": _AMOUNTS},
    "additionalProperties": False,
}


def _cap() -> Mapping[str, Any]:
    field = ExtenderConfig.model_json_schema()["properties"]["capPercent"]
    return {key: field[key] for key in ("type", "minimum", "maximum")}


SETTINGS: Final = (
    Setting(
        "keeper",
        "What makes schedulers respect holds. Extender: kube-scheduler calls it, as overlay says. "
        "Placeholders: a pod of ours stands where each hold lies, on any kube-scheduler. Both: the second "
        "scheduler's extender, and placeholders of policies with `spec.keeper: Placeholders` "
        "(docs/keepers.md).",
        {"enum": [*(one.value for one in Keeper), "Both"]},
        Keeper.EXTENDER.value,
    ),
    Setting(
        "overlay",
        "Where the extender runs: beside a second kube-scheduler of its own, or beside the cluster's own, on "
        "control-plane hosts that you run (its files: `j10ce install --files`).",
        {"enum": list(OVERLAYS)},
        OVERLAYS[0],
    ),
    Setting(
        "mode",
        "Guard: keep floors while the extender is there. Strict: refuse rather than break a floor. Observe: "
        "report, refuse nothing; agents write nothing on their nodes.",
        {"enum": [mode.value for mode in Mode]},
        Mode.GUARD.value,
    ),
    Setting("capPercent", "The most of the cluster that all holds may take, in any dimension.", _cap(), 40),
    Setting(
        "image.repository",
        "The image of extender, manager and agent.",
        {"type": "string", "minLength": 1},
        "j10ce-qos",
    ),
    Setting("image.tag", "Its tag; empty: the chart's appVersion.", {"type": "string"}, ""),
    Setting(
        "image.digest",
        "Its digest, `sha256:...`: then the tag says nothing more.",
        {"type": "string", "pattern": _DIGEST},
        "",
    ),
    Setting(
        "image.pullSecrets",
        "Secrets that the nodes pull it with.",
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "required": ["name"],
                "additionalProperties": False,
            },
        },
        [],
    ),
    Setting(
        "schedulerImage",
        "The second kube-scheduler's image, of the API server's version, with tag or digest; empty: as the "
        "cluster's own, where that can be seen.",
        {"type": "string"},
        "",
    ),
    Setting(
        "scheduler.replicas",
        "Second kube-schedulers, each with its extender; one schedules, the others are ready. With keeper "
        "Both there is one.",
        {"type": "integer", "minimum": 0},
        place=(*_SCHEDULER, ("spec", "replicas")),
    ),
    Setting(
        "scheduler.resources",
        "Of kube-scheduler.",
        _RESOURCES,
        place=(*_SCHEDULER, (*_POD, "containers", 0, "resources")),
    ),
    Setting(
        "scheduler.tolerations",
        "Taints that it runs in spite of.",
        _TOLERATIONS,
        place=(*_SCHEDULER, (*_POD, "tolerations")),
    ),
    Setting(
        "scheduler.percentageOfNodesToScore",
        "How many nodes it looks at for a pod, and so names to the extender; 0: upstream's rule. `j10ce "
        "preflight` recommends one by the cluster's size (docs/which-pods.md).",
        {"type": "integer", "minimum": 0, "maximum": 100},
        0,
    ),
    Setting(
        "extender.resources",
        "Of the extender. Without a CPU limit: throttling would be paid by every pod that is scheduled.",
        _RESOURCES,
        place=(*_SCHEDULER, (*_POD, "initContainers", 0, "resources")),
    ),
    Setting(
        "manager.enabled",
        "With the manager, which says what is not on kube-scheduler's path.",
        {"type": "boolean"},
        True,
    ),
    Setting(
        "manager.replicas",
        "Managers; one leads, the others are ready.",
        {"type": "integer", "minimum": 0},
        place=(*_MANAGER, ("spec", "replicas")),
    ),
    Setting(
        "manager.resources",
        "Of the manager.",
        _RESOURCES,
        place=(*_MANAGER, (*_POD, "containers", 0, "resources")),
    ),
    Setting(
        "koordinator.reservations",
        "Hold what Koordinator's Reservations reserve (docs/koordinator.md); not where koord-scheduler does.",
        {"type": "boolean"},
        False,
    ),
    Setting(
        "quotas.enabled",
        "Keep pods to their ElasticQuota, refuse quotas that break a rule (docs/quota.md), start gangs whole "
        "(docs/gangs.md); not where koord-scheduler and koord-manager do.",
        {"type": "boolean"},
        False,
    ),
    Setting(
        "autoscaling.buffers",
        "Ask autoscalers for the nodes of slots that are held or unplaced (docs/autoscaling.md).",
        {"type": "boolean"},
        False,
    ),
    Setting(
        "agent.enabled",
        "With the agent on every node, which keeps floors in the kernel.",
        {"type": "boolean"},
        False,
    ),
    Setting(
        "agent.networkFloors",
        "Whether agents shape their node's network: None, Kept, or Leaving: they take away what they made, "
        "and have the right to; upgrade from Kept to Leaving first, then to None.",
        {"enum": list(NETWORK)},
        NETWORK[0],
    ),
    Setting(
        "agent.resources",
        "Of the agent. Without a CPU limit: throttled, it would repair late.",
        _RESOURCES,
        place=(*_AGENT, (*_POD, "containers", 0, "resources")),
    ),
    Setting(
        "agent.nodeSelector", "Nodes that have an agent.", _LABELS, place=(*_AGENT, (*_POD, "nodeSelector"))
    ),
    Setting(
        "agent.tolerations",
        "Taints that it runs in spite of.",
        _TOLERATIONS,
        place=(*_AGENT, (*_POD, "tolerations")),
    ),
    Setting(
        "crds.install",
        "With the custom resource definitions; false: somebody else applies them, before each upgrade.",
        {"type": "boolean"},
        True,
    ),
    Setting(
        "crds.keep",
        "Leave them, and so all policies and profiles, when the release is uninstalled.",
        {"type": "boolean"},
        True,
    ),
    Setting(
        "takeOver",
        "Go on with what `j10ce install` made, instead of refusing; together with helm's --take-ownership.",
        {"type": "boolean"},
        False,
    ),
)


def with_defaults(items: Mapping[tuple[str, str], Object]) -> list[tuple[Setting, Any]]:
    """Each setting with its default; items: the manifests' objects by kind and name."""
    return [(one, at(items[one.place[:2]], one.place[2]) if one.place else one.default) for one in SETTINGS]


def at(item: Any, path: tuple[str | int, ...]) -> Any:
    """The value at a path of an object."""
    for part in path:
        item = item[part]
    return item


def schema(defaults: list[tuple[Setting, Any]]) -> str:
    """values.schema.json: helm refuses what is against it, by the value's path."""
    root: dict[str, Any] = _object()
    for setting, default in defaults:
        *parents, name = setting.path.split(".")
        there = root
        for parent in parents:
            there = there["properties"].setdefault(parent, _object())
        there["properties"][name] = {
            **setting.schema,
            "description": setting.description,
            "default": default,
        }
    root["properties"]["global"] = {"type": "object", "description": "Charts above this one; not read."}
    document = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of j10ce-qos", **root}
    return json.dumps(document, indent=2) + "\n"


def _object() -> dict[str, Any]:
    return {"type": "object", "properties": {}, "additionalProperties": False}


def values(defaults: list[tuple[Setting, Any]], dump: Any) -> str:
    """values.yaml, each value below what it is."""
    lines = ["# Generated from cli/chart/settings.py by `j10ce dev generate`; values.schema.json says more."]
    parents: list[str] = []
    for setting, default in defaults:
        *above, name = setting.path.split(".")
        if above != parents:
            lines += ["", *(f"{'  ' * depth}{part}:" for depth, part in enumerate(above))]
            parents = above
        elif not above:
            lines.append("")
        indent = "  " * len(above)
        lines += [f"{indent}# {line}" for line in _wrapped(setting.description, 108 - len(indent))]
        lines += [f"{indent}{line}" for line in dump({name: default}).splitlines()]
    return "\n".join(lines) + "\n"


def readme(defaults: list[tuple[Setting, Any]]) -> str:
    """The chart's README.md: how to install it, and a table of the values."""
    return "\n".join((_README, *_table(defaults))) + "\n"


def _table(defaults: list[tuple[Setting, Any]]) -> Iterator[str]:
    yield "| value | default | what it is |\n| --- | --- | --- |"
    for setting, default in defaults:
        shown = default if isinstance(default, str) else json.dumps(default)
        said = setting.description
        if choices := setting.schema.get("enum"):
            said += f" One of {', '.join(f'`{choice}`' for choice in choices)}."
        yield f"| `{setting.path}` | {f'`{shown}`' if shown else 'empty'} | {said} |"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
