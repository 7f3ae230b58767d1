"""What our kustomizations make, without kubectl: a generator runs where there is none yet.

Only what manifests/ uses: resources, labels, image tags, patches, files of a ConfigMap (whose name gets no
hash here). tests/cluster/test_chart.py compares what comes of it with kubectl's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from cli.kubectl import Object

FILE: Final = "kustomization.yaml"
_KNOWN: Final = frozenset(
    {"apiVersion", "kind", "labels", "resources", "images", "patches", "configMapGenerator"}
)
_KEYS_OF_LISTS: Final = ("mountPath", "name")
"""What makes items of a list the same one in a strategic merge: the first that all of them have."""


class KustomizationError(Exception):
    """A kustomization says what is not understood here; the message names file and key."""


@dataclass(frozen=True, slots=True)
class Made:
    """One object, and the file that it comes from."""

    source: Path
    item: Object


def render(folder: Path) -> list[Made]:
    """The objects of a kustomization in the order of its files. Raises KustomizationError."""
    text = _one(folder / FILE)
    if unknown := text.keys() - _KNOWN:
        raise KustomizationError(f"{folder / FILE}: {', '.join(sorted(unknown))} is not understood here")
    made = [one for name in text.get("resources", []) for one in _resource((folder / name).resolve())]
    made += [_config_map(folder, one) for one in text.get("configMapGenerator", [])]
    for patch in text.get("patches", []):
        _patch(folder, patch, made)
    for one in made:
        for labels in text.get("labels", []):
            metadata = one.item["metadata"]
            metadata["labels"] = metadata.get("labels", {}) | labels["pairs"]
        _tag(one.item, text.get("images", []))
    return made


def _resource(path: Path) -> list[Made]:
    if path.is_dir():
        return render(path)
    found = documents(path.read_text(encoding="utf-8"))
    items = [one for item in found for one in (item["items"] if item["kind"] == "List" else [item])]
    # Aliases within a file are objects of their own from here on.
    return [Made(path, deepcopy(item)) for item in items]


def documents(text: str) -> list[Object]:
    """The YAML documents of a text, as plain dicts and lists; empty ones are left out."""
    return deepcopy(_parsed(text))


@lru_cache(maxsize=512)  # reading is slow, and the same file is read for each part that names it
def _parsed(text: str) -> list[Object]:
    return [item for item in YAML(typ="safe", pure=True).load_all(text) if item]


def _one(path: Path) -> Any:
    (item,) = documents(path.read_text(encoding="utf-8"))
    return item


def _config_map(folder: Path, wanted: Mapping[str, Any]) -> Made:
    data = {name: (folder / name).read_text(encoding="utf-8") for name in sorted(wanted["files"])}
    metadata = {"name": wanted["name"], "namespace": wanted["namespace"]}
    item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    return Made(folder.resolve() / f"{wanted['name']}.yaml", item)


def _patch(folder: Path, patch: Mapping[str, Any], made: Iterable[Made]) -> None:
    text = documents(patch["patch"])[0] if "patch" in patch else _one(folder / patch["path"])
    target = patch.get("target") or {"kind": text["kind"], "name": text["metadata"]["name"]}
    for one in made:
        if (one.item["kind"], one.item["metadata"]["name"]) != (target["kind"], target["name"]):
            continue
        if isinstance(text, list):
            for operation in text:
                _operate(one.item, operation, folder)
        else:
            merged = _merged(one.item, text)
            one.item.clear()
            one.item.update(merged)


def _operate(item: Object, operation: Mapping[str, Any], folder: Path) -> None:
    """One operation of RFC 6902: only `add` at the end of a list."""
    *path, last = [part.replace("~1", "/") for part in operation["path"].split("/")[1:]]
    if (operation["op"], last) != ("add", "-"):
        raise KustomizationError(
            f"{folder / FILE}: {operation['op']} {operation['path']} is not understood here"
        )
    there: Any = item
    for part in path:
        there = there[int(part) if isinstance(there, list) else part]
    there.append(operation["value"])


def _merged(old: Any, new: Any) -> Any:
    """Kubernetes' strategic merge, as far as it is used: maps by key, lists of named things by name."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {key: _merged(old[key], value) if key in old else value for key, value in new.items()}
    if isinstance(old, list) and isinstance(new, list) and (key := _list_key([*old, *new])):
        before = {item[key]: item for item in old}
        changed = {item[key] for item in new}
        # What the patch names comes first, as kustomize has it.
        return [
            *(_merged(before[item[key]], item) if item[key] in before else deepcopy(item) for item in new),
            *(item for item in old if item[key] not in changed),
        ]
    return deepcopy(new)


def _list_key(items: list[Any]) -> str:
    if not all(isinstance(item, dict) for item in items):
        return ""
    return next((key for key in _KEYS_OF_LISTS if all(key in item for item in items)), "")


def _tag(item: Object, images: Iterable[Mapping[str, str]]) -> None:
    tags = {image["name"]: image["newTag"] for image in images}
    pod = (
        item.get("spec", {}).get("template", {}).get("spec", {}) if isinstance(item.get("spec"), dict) else {}
    )
    for container in [*pod.get("initContainers", []), *pod.get("containers", [])]:
        if container["image"] in tags:
            container["image"] += f":{tags[container['image']]}"
