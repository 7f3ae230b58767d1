"""From pydantic models to CustomResourceDefinitions that the API server takes.

A structural schema is less than JSON schema: no $ref, no union but int-or-string, no title, no const, no
pattern on keys. Each is turned into what says the same there. Source: the API conventions of
CustomResourceDefinition, "structural schemas".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from typing import Any, Final

from pydantic import BaseModel
from ruamel.yaml import YAML

from qos.api.budget import ReservationBudget
from qos.api.fields import cel
from qos.api.node_qos import NodeQoS
from qos.api.policy import MinimalReservationPolicy
from qos.api.profile import QoSProfile
from qos.keys import GROUP, VERSION

Schema = dict[str, Any]

_DROPPED: Final = frozenset({"title", "additionalProperties", "propertyNames", "patternProperties", "const"})
_ROOT: Final[Schema] = {
    "apiVersion": {"description": "The API version, j10ce.io/v1alpha1.", "type": "string"},
    "kind": {"description": "The kind of this object.", "type": "string"},
    "metadata": {"type": "object"},
}


def structural(model: type[BaseModel]) -> Schema:
    """The structural schema of a model. TypeError when the model says something such a schema cannot."""
    document = model.model_json_schema(mode="validation", by_alias=True)
    return _structural(document, document.get("$defs", {}), model.__name__)


def _structural(node: Schema, definitions: Mapping[str, Schema], path: str) -> Schema:
    node = _without_null(_resolved(node, definitions), definitions)
    result = {key: value for key, value in node.items() if key not in _DROPPED and not key.startswith("$")}
    if result.get("default", ...) is None:
        del result["default"]
    if "const" in node and "enum" not in result:
        result["enum"] = [node["const"]]
    if "properties" in node:
        result["properties"] = {
            name: _structural(part, definitions, f"{path}.{name}")
            for name, part in node["properties"].items()
        }
    if not result.get("properties", True):
        del result["properties"]  # the API server drops it, and another manager's apply would be a conflict
    if "items" in node:
        result["items"] = _structural(node["items"], definitions, f"{path}[]")
    if _is_map(node):
        _map_values(node, result, definitions, path)
    _refuse_the_rest(result, path)
    return dict(sorted(result.items()))


def _resolved(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """The node with its $ref inlined; what stands beside the $ref, such as a description, wins."""
    if "$ref" not in node:
        return dict(node)
    target = definitions[node["$ref"].rsplit("/", 1)[1]]
    beside = {key: value for key, value in node.items() if key != "$ref"}
    return _merged(_resolved(target, definitions), beside)


def _without_null(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """The node without `null` among its alternatives: a field that is unset is absent, never null."""
    if "x-kubernetes-int-or-string" in node or "anyOf" not in node:
        return node
    rest = [part for part in node["anyOf"] if part != {"type": "null"}]
    if len(rest) != 1:
        return node
    beside = {key: value for key, value in node.items() if key != "anyOf"}
    return _merged(_without_null(_resolved(rest[0], definitions), definitions), beside)


def _merged(inner: Schema, outer: Schema) -> Schema:
    """Both; the outer one wins, but rules add up."""
    rules = inner.get("x-kubernetes-validations", []) + outer.get("x-kubernetes-validations", [])
    return inner | outer | ({"x-kubernetes-validations": rules} if rules else {})


def _is_map(node: Schema) -> bool:
    return isinstance(node.get("additionalProperties"), dict) or "patternProperties" in node


def _map_values(node: Schema, result: Schema, definitions: Mapping[str, Schema], path: str) -> None:
    """The schema of a map's values; limits on its keys become a rule."""
    patterns = node.get("patternProperties", {})
    values = next(iter(patterns.values())) if patterns else node["additionalProperties"]
    result["additionalProperties"] = _structural(values, definitions, f"{path}{{}}")
    limit = node.get("propertyNames", {}).get("maxLength")
    tests = [f"size(key) <= {limit}"] if limit else []
    tests += [f"key.matches(r'{pattern}')" for pattern in patterns]
    if tests:
        keys = cel(
            f"self.all(key, {' && '.join(tests)})",
            "each key must be a qualified name, such as example.com/name",
        )
        result["x-kubernetes-validations"] = [keys, *result.get("x-kubernetes-validations", [])]


def _refuse_the_rest(result: Schema, path: str) -> None:
    int_or_string = result.get("x-kubernetes-int-or-string", False)
    union = [key for key in ("anyOf", "oneOf", "allOf") if key in result and not int_or_string]
    bounds = [
        key
        for key in ("exclusiveMinimum", "exclusiveMaximum")
        if not isinstance(result.get(key, False), bool)
    ]
    if union or bounds or ("type" not in result and not int_or_string):
        raise TypeError(f"{path}: not structural: {union + bounds or 'no type'}")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; a `wide` one is shown with -o wide."""

    name: str
    path: str
    description: str
    type: str = "string"
    wide: bool = False

    def to_json(self) -> Schema:
        """The column as the CRD has it."""
        column: Schema = {
            "name": self.name,
            "type": self.type,
            "jsonPath": self.path,
            "description": self.description,
        }
        return column | ({"priority": 1} if self.wide else {})


@dataclass(frozen=True, slots=True)
class Kind:
    """How a model is served."""

    model: type[BaseModel]
    plural: str
    short_name: str
    scope: str
    columns: tuple[Column, ...]
    subresources: Mapping[str, Any]


def _condition(type_: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{type_}")].{field}'


_AGE: Final = Column("Age", ".metadata.creationTimestamp", "Time since it was made.", type="date")

KINDS: Final = (
    Kind(
        MinimalReservationPolicy,
        "minimalreservationpolicies",
        "mrp",
        "Namespaced",
        (
            Column("Desired", ".status.slots.desired", "Slots asked for.", "integer"),
            Column("Filled", ".status.slots.filled", "Slots a pod has taken.", "integer"),
            Column("Held", ".status.slots.held", "Slots whose capacity is held free.", "integer"),
            Column("Unplaced", ".status.slots.unplaced", "Slots no node has room for.", "integer"),
            Column("Ready", _condition("Ready", "status"), "Whether all is as asked."),
            Column("Guarded", _condition("Guarded", "status"), "Whether kube-scheduler asks the extender."),
            _AGE,
            Column("Reason", _condition("Ready", "reason"), "Why it is, or is not, ready.", wide=True),
            Column("Profile", ".spec.profileName", "The QoSProfile.", wide=True),
            Column("Priority", ".spec.priorityClassName", "The PriorityClass of the holds.", wide=True),
            Column("Mode", ".spec.placement.mode", "Whether holds may move.", wide=True),
            Column("Workload", ".spec.slots.scaleTargetRef.name", "Whose replicas are the slots.", wide=True),
            Column("Suspended", ".spec.suspend", "Whether all holds are released.", "boolean", wide=True),
            Column("Enforcement", ".spec.nodeEnforcement", "Which nodes may hold its slots.", wide=True),
            Column("Applied", _condition("Applied", "status"), "Whether its pods have it.", wide=True),
            Column("Verified", _condition("Verified", "status"), "Whether that was read back.", wide=True),
        ),
        {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.slots.count",
                "statusReplicasPath": ".status.slots.filled",
                "labelSelectorPath": ".status.selector",
            },
        },
    ),
    Kind(
        QoSProfile,
        "qosprofiles",
        "qosp",
        "Cluster",
        (
            Column("Class", ".spec.class", "What its pods may expect of a node."),
            Column("Priority", ".spec.priorityClassName", "The PriorityClass of its policies' holds."),
            _AGE,
            Column("Description", ".spec.description", "What it is for.", wide=True),
        ),
        {},
    ),
    Kind(
        ReservationBudget,
        "reservationbudgets",
        "rbudget",
        "Cluster",
        (
            Column("Used/Total", ".status.usedOfTotal", "What all its namespaces have together."),
            Column("Fullest", ".status.fullest", "The namespace that has most of what it may have."),
            Column(
                "Namespaces", ".status.namespaces", "Namespaces with policies that it concerns.", "integer"
            ),
            Column("Exceeding", ".status.exceeding", "Policies that ask for more than it gives.", "integer"),
            _AGE,
            Column("Policies", ".status.policies", "Policies that it concerns.", "integer", wide=True),
            Column(
                "Default", ".spec.default", "Whether it is for namespaces without another.", "boolean", True
            ),
            Column("Classes", ".spec.priorityClassNames", "The PriorityClasses it permits.", wide=True),
            Column("Profiles", ".spec.profileNames", "The QoSProfiles it permits.", wide=True),
        ),
        {"status": {}},
    ),
    Kind(
        NodeQoS,
        "nodeqoses",
        "nqos",
        "Cluster",
        (
            Column("Ready", _condition("Ready", "status"), "Whether the agent is at work."),
            Column("Applied", _condition("Applied", "status"), "Whether every pod has its settings."),
            Column("Cgroup", ".status.cgroupVersion", "The version of cgroup."),
            Column("CPU", ".status.pressure.cpu", "How much processes wait for CPU."),
            Column("Memory", ".status.pressure.memory", "How much processes wait for memory."),
            Column("IO", ".status.pressure.io", "How much processes wait for disks."),
            Column(
                "Fights",
                ".status.drift.fights",
                "Files, or interfaces, that somebody keeps changing back.",
                "integer",
            ),
            Column("Heartbeat", ".status.lastHeartbeat", "Time since the agent last wrote.", "date"),
            _AGE,
            Column(
                "Repaired", ".status.drift.repairedLastHour", "Settings put back, last hour.", "integer", True
            ),
            Column(
                "Network",
                _condition("NetworkKept", "reason"),
                "Whether floors of the network can be kept: Shaped, or why not; empty: the agent keeps none.",
                wide=True,
            ),
            Column("Kernel", ".status.kernelVersion", "The kernel.", wide=True),
            Column("Runtime", ".status.containerRuntime", "The container runtime.", wide=True),
            Column("Agent", ".status.agentVersion", "The agent's version.", wide=True),
        ),
        {"status": {}},
    ),
)


def custom_resource_definition(kind: Kind) -> Schema:
    """The whole CRD, apiextensions.k8s.io/v1."""
    schema = structural(kind.model)
    schema["properties"] = dict(sorted((schema["properties"] | _ROOT).items()))
    schema["required"] = sorted(
        name for name, field in kind.model.model_fields.items() if field.is_required()
    )
    if not schema["required"]:
        del schema["required"]
    name = kind.model.__name__
    version: Schema = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [column.to_json() for column in kind.columns],
        "schema": {"openAPIV3Schema": schema},
    }
    if kind.subresources:
        version["subresources"] = dict(kind.subresources)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": name,
                "listKind": f"{name}List",
                "plural": kind.plural,
                "singular": name.lower(),
                "shortNames": [kind.short_name],
                "categories": ["j10ce"],
            },
            "scope": kind.scope,
            "versions": [version],
        },
    }


def files() -> dict[str, str]:
    """File name to content of manifests/crds; the same for the same models."""
    return {f"{GROUP}_{kind.plural}.yaml": _yaml(custom_resource_definition(kind)) for kind in KINDS}


def _yaml(document: Schema) -> str:
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 110
    out = StringIO()
    out.write("# Generated from qos/api by `j10ce dev generate`. Change the models, not this file.\n")
    yaml.dump(json.loads(json.dumps(document)), out)  # what is the same twice becomes no YAML alias
    return out.getvalue()
