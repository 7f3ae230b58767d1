"""What an installation consists of, and what applying it would change. Nothing here changes anything."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

import manifests
from cli.kubectl import Kubectl, Object, identity

NAMESPACE: Final = "j10ce-system"
PART_OF: Final = {"app.kubernetes.io/part-of": "j10ce-qos"}
EXTENDER_IMAGE: Final = "j10ce-qos"
SCHEDULER_IMAGE: Final = "kube-scheduler"
HOST_FILES: Final = ("README.md", "extender.yaml", "scheduler.yaml", "static-pod.yaml")
"""Of overlay default-scheduler: what goes onto control-plane hosts."""

# The server's own bookkeeping: differs between any two reads.
_BOOKKEEPING: Final = (
    "managedFields",
    "resourceVersion",
    "generation",
    "uid",
    "creationTimestamp",
    "selfLink",
)


LEASES: Final = ((NAMESPACE, "j10ce-extender"), ("kube-system", "j10ce-extender"))
"""Where extenders elect who writes status: as installed here, and by default."""


@dataclass(frozen=True, slots=True)
class Change:
    """What happens to one object; `action` is create, change or keep, `difference` a unified diff of YAML."""

    action: str
    api_version: str
    kind: str
    namespace: str
    name: str
    difference: str = ""

    def to_json(self) -> Object:
        """For -o json."""
        return {
            "action": self.action,
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "difference": self.difference,
        }


@dataclass(frozen=True, slots=True)
class Images:
    """Images of the two programs; empty: as the manifests have it."""

    extender: str = ""
    scheduler: str = ""


def definitions() -> list[Object]:
    """The custom resource definitions."""
    with manifests.crds() as folder:
        return [YAML(typ="safe", pure=True).load(path) for path in sorted(folder.glob("*.yaml"))]


def objects(kubectl: Kubectl, overlay: str, images: Images) -> list[Object]:
    """What the overlay makes, the CRDs aside, with the images filled in."""
    with manifests.overlay(overlay) as folder:
        made = kubectl.kustomize(folder)
    for item in made:
        for container in _containers(item):
            container["image"] = _image(str(container["image"]), images)
    return made


def wants_scheduler_image(overlay: str) -> bool:
    """Whether the overlay runs a kube-scheduler, whose image only the cluster knows."""
    return overlay == "second-scheduler"


def changes(kubectl: Kubectl, wanted: Iterable[Object], *, force_conflicts: bool) -> list[Change]:
    """What applying the objects would do, by the API server's own dry run.

    It cannot try an object in a namespace that is not there yet: such objects are created, and not checked.
    """
    wanted = list(wanted)
    before = {identity(item): item for item in kubectl.existing(wanted)}
    new_namespaces = {item["metadata"]["name"] for item in wanted if item["kind"] == "Namespace"}
    new_namespaces -= {name for group, kind, _, name in before if (group, kind) == ("", "Namespace")}
    testable = [item for item in wanted if item["metadata"].get("namespace", "") not in new_namespaces]
    after = kubectl.apply(testable, dry_run=True, force_conflicts=force_conflicts)
    tried = {identity(item): item for item in after}
    return [_change(before.get(identity(item)), tried.get(identity(item)), item) for item in wanted]


def _change(before: Object | None, after: Object | None, wanted: Object) -> Change:
    _, kind, namespace, name = identity(wanted)
    if before is None:
        return Change("create", wanted["apiVersion"], kind, namespace, name)
    difference = _difference(before, after or before)
    return Change("change" if difference else "keep", wanted["apiVersion"], kind, namespace, name, difference)


def _difference(before: Object, after: Object) -> str:
    old, new = (_yaml(_essence(item)).splitlines(keepends=True) for item in (before, after))
    return "".join(difflib.unified_diff(old, new, "before", "after", n=2))


def _essence(item: Mapping[str, Any]) -> Object:
    """The object without status and bookkeeping."""
    rest = {key: value for key, value in item.items() if key not in ("status", "metadata")}
    metadata = {key: value for key, value in item["metadata"].items() if key not in _BOOKKEEPING}
    return rest | {"metadata": metadata}


def _yaml(document: Object) -> str:
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    out = StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _containers(item: Object) -> list[Object]:
    pod = item.get("spec", {}).get("template", {}).get("spec", {}) if item["kind"] == "Deployment" else {}
    return [*pod.get("initContainers", []), *pod.get("containers", [])]


def _image(image: str, images: Images) -> str:
    name = image.partition(":")[0]
    chosen = {EXTENDER_IMAGE: images.extender, SCHEDULER_IMAGE: images.scheduler}.get(name, "")
    return chosen or image


def extender_leases() -> list[Object]:
    """The Leases of extenders, to be looked up."""
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    return [kind | {"metadata": {"namespace": namespace, "name": name}} for namespace, name in LEASES]


def kube_scheduler_pods(kubectl: Kubectl) -> list[Object]:
    """The pods of the cluster's own kube-scheduler, as kubeadm labels them; none where it is managed."""
    return kubectl.objects(
        "get", "pods", "--namespace", "kube-system", "--selector", "component=kube-scheduler"
    )


def image_of(pods: Iterable[Mapping[str, Any]]) -> str:
    """The image of kube-scheduler in its pods, or ""."""
    for pod in pods:
        for container in pod["spec"]["containers"]:
            if "kube-scheduler" in container["image"]:
                return str(container["image"])
    return ""


def overlay_file(overlay: str, name: str) -> str:
    """The text of a file of an overlay."""
    with manifests.overlay(overlay) as folder:
        return (folder / name).read_text(encoding="utf-8")


def write_host_files(folder: Path, *, image: str) -> list[Path]:
    """Write what a control-plane host needs for overlay default-scheduler; the paths written."""
    texts = {name: overlay_file("default-scheduler", name) for name in HOST_FILES}
    if image:
        texts["static-pod.yaml"] = texts["static-pod.yaml"].replace(
            "image: j10ce-qos:0.1.0", f"image: {image}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]
