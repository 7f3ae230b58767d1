"""What an installation consists of, and what applying it would change. Nothing here changes anything."""

from __future__ import annotations

import difflib
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from ruamel.yaml import YAML

import manifests
from cli import admission
from cli.kubectl import Kubectl, Object, identity

NAMESPACE: Final = "j10ce-system"
PLACEHOLDERS: Final = "j10ce-placeholders"
"""The namespace of placeholders."""
PROGRAMS: Final = ("Deployment", "DaemonSet")
"""Kinds of what runs: extender and second kube-scheduler, manager, agent."""
PART_OF: Final = {"app.kubernetes.io/part-of": "j10ce-qos"}
SCHEDULER: Final = "j10ce-scheduler"
"""The second kube-scheduler, as pods name it, and its Deployment."""
NAMING: Final = "j10ce-schedule"
"""What names that scheduler in pods of namespaces with keys.SCHEDULE_LABEL."""
IMAGE: Final = "j10ce-qos"
"""The image of extender, manager and agent."""
OBSERVE: Final = "J10CE_AGENT_OBSERVE"
"""The agent's variable: 1 for one that writes nothing."""
BUFFERS: Final = "capacitybuffers.autoscaling.x-k8s.io"
"""The definition that autoscalers bring."""
QUOTAS: Final = "J10CE_QUOTAS"
"""The manager's variable: 1 for one that refuses quotas which break a rule."""
NETWORK: Final = "J10CE_NETWORK_FLOORS"
"""The agent's variable: 1 for one that shapes its node's network."""
SHAPING_RIGHT: Final = "NET_ADMIN"
"""The capability that it needs for that, and for taking away what it made."""
PERCENTAGE: Final = r"^(percentageOfNodesToScore: )\d+"
"""In a configuration of kube-scheduler; a regular expression, of one line."""
SCHEDULER_IMAGE: Final = "kube-scheduler"
HOST_CONFIGURATION: Final = ("extender.yaml", "scheduler.yaml")

_EXTENDERS: Final = "\nextenders:\n"  # kube-scheduler's configurations have it last
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


class Network(Enum):
    """What agents do with their node's network. LEAVING: nothing more, but they have the right to take away
    what they made.
    """

    OFF = "off"
    LEAVING = "leaving"
    ON = "on"


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user chooses; empty: as the manifests have it. agent: with the agent on every node; observe:
    that writes nothing there; network: whether it shapes the node's. raising: the version by which the API
    server itself can raise requests, "" where it cannot (cli.admission). manager: with the manager.
    reservations: Koordinator's Reservations are held, too. percentage: kube-scheduler's
    percentageOfNodesToScore. autoscaling: autoscalers are asked for nodes. quotas: ElasticQuotas are kept.
    placeholders: they keep holds, in place of an overlay with an extender; both: beside the second
    scheduler's.
    """

    image: str = ""
    scheduler_image: str = ""
    mode: str = ""
    agent: bool = False
    observe: bool = False
    network: Network = Network.OFF
    raising: str = admission.VERSIONS[0]
    manager: bool = True
    reservations: bool = False
    percentage: int = 0
    autoscaling: bool = False
    quotas: bool = False
    placeholders: bool = False
    both: bool = False

    @property
    def makes_placeholders(self) -> bool:
        """Whether they keep any policy's holds."""
        return self.placeholders or self.both


@cache
def definitions() -> tuple[Object, ...]:
    """The custom resource definitions; read once, for it takes a third of a second. Not to be changed."""
    with manifests.crds() as folder:
        return tuple(YAML(typ="safe", pure=True).load(path) for path in sorted(folder.glob("*.yaml")))


def objects(kubectl: Kubectl, overlay: str, choices: Choices) -> list[Object]:
    """What the overlay makes, or placeholders as keeper, or both, with what else is chosen; no CRDs."""
    with TemporaryDirectory(prefix="j10ce-") as scratch, manifests.overlay(overlay) as folder:
        # kustomize has to see the choice: the ConfigMap's name is a hash of its content.
        tree = shutil.copytree(folder.parents[1], Path(scratch) / "manifests")
        configured = tree / "placeholders" if choices.placeholders else tree / "overlays" / overlay
        for path in (configured / name for name in HOST_CONFIGURATION if (configured / name).exists()):
            path.write_text(chosen(path.read_text(encoding="utf-8"), choices), encoding="utf-8")
        main = tree / "both-keepers" if choices.both else configured
        made = {identity(item): item for item in kubectl.kustomize(main)}
        for part in _parts(choices):
            made |= {identity(item): item for item in kubectl.kustomize(tree / part)}
    observe = choices.observe or choices.mode.lower() == "observe"
    for item in made.values():
        for container in _containers(item):
            container["image"] = _image(str(container["image"]), choices)
        if choices.observe and item["kind"] == "DaemonSet":
            _set(item, OBSERVE, "1")
        if choices.network is Network.LEAVING and item["kind"] == "DaemonSet":
            _set(item, NETWORK, "0")
        if choices.quotas and not observe and _names(item, "j10ce-manager"):
            _set(item, QUOTAS, "1")
    return admission.fitting(made.values(), raising=choices.raising, observe=observe)


def _parts(choices: Choices) -> Iterator[str]:
    """Kustomizations beside the overlay; of what is in several, the last one's."""
    beside = {
        "manager": choices.manager,
        "autoscaling": choices.autoscaling,
        "koordinator": choices.reservations,
        "quotas": choices.quotas,
    }
    yield from (part for part, wanted in beside.items() if wanted)
    if choices.agent:  # its namespace admits it
        yield "agent" if choices.network is Network.OFF else "agent-network"


def is_ours(item: Mapping[str, Any]) -> bool:
    """Whether an object in the cluster carries the label that everything installed carries."""
    labels: dict[str, str] = item["metadata"].get("labels", {})
    return PART_OF.items() <= labels.items()


def sparing(wanted: Iterable[Object], namespace: Object | None) -> list[Object]:
    """What is wanted, without our namespace where somebody else made it: so it never gets our label.

    namespace: as it is in the cluster, None when it is not there.
    """
    spared = namespace is not None and not is_ours(namespace)
    return [item for item in wanted if not (spared and is_our_namespace(item))]


def is_our_namespace(item: Mapping[str, Any]) -> bool:
    """Whether an object is the namespace that everything is in but placeholders."""
    return bool(item["kind"] == "Namespace" and item["metadata"]["name"] == NAMESPACE)


def chosen(text: str, choices: Choices) -> str:
    """A configuration of extender or kube-scheduler, as shipped, made to fit what was chosen."""
    if choices.reservations:
        text = re.sub(r"^( +reservations: )false", r"\1true", text, flags=re.MULTILINE)
    if choices.quotas:
        text = re.sub(r"^(quotas:\n +enabled: )false", r"\1true", text, flags=re.MULTILINE)
    if choices.both:
        text = re.sub(r"^(bothKeepers: )false", r"\1true", text, flags=re.MULTILINE)
    text = re.sub(PERCENTAGE, rf"\g<1>{choices.percentage}", text, flags=re.MULTILINE)
    if choices.autoscaling:
        text = re.sub(r"^( +buffers: )false", r"\1true", text, flags=re.MULTILINE)
    return in_mode(text, choices.mode)


def in_mode(text: str, mode: str) -> str:
    """A configuration of extender or kube-scheduler, as shipped (Guard), made to fit a mode.

    kube-scheduler's gets the extender entries of the mode's file in scheduler-config/.
    """
    text = re.sub(r"^mode: \w+", f"mode: {mode}", text, flags=re.MULTILINE) if mode else text
    _, extenders, _ = text.partition(_EXTENDERS)
    if not extenders or mode.lower() not in manifests.MODES:
        return text
    # The shipped file's opening comment tells of Guard.
    rest = text[text.index("\napiVersion:") :].partition(_EXTENDERS)[0]
    entries = manifests.mode(mode.lower()).partition(_EXTENDERS)[2]
    opening = (
        f"# kube-scheduler with the j10ce extender, mode {mode}; made by `j10ce install --mode {mode}`.\n"
        f"# The extender entries are those of scheduler-config/{mode.lower()}.yaml."
    )
    return opening + rest + _EXTENDERS + entries


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
    old, new = (_yaml(essence(item)).splitlines(keepends=True) for item in (before, after))
    return "".join(difflib.unified_diff(old, new, "before", "after", n=2))


def essence(item: Mapping[str, Any]) -> Object:
    """The object as one would apply it: without status and the server's own bookkeeping."""
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
    pod = item.get("spec", {}).get("template", {}).get("spec", {}) if item["kind"] in PROGRAMS else {}
    return [*pod.get("initContainers", []), *pod.get("containers", [])]


def _names(item: Object, program: str) -> bool:
    return bool(item["kind"] == "Deployment" and item["metadata"]["name"] == program)


def _set(program: Object, variable: str, value: str) -> None:
    for container in _containers(program):
        env = {
            one["name"]: one for one in container.get("env", [])
        }  # a variable that is there keeps its place
        container["env"] = [*(env | {variable: {"name": variable, "value": value}}).values()]


def observes(daemon_set: Mapping[str, Any] | None) -> bool:
    """Whether the agent is installed to observe; None: it is not there."""
    return _says(daemon_set, OBSERVE)


def network_of(daemon_set: Mapping[str, Any] | None) -> Network:
    """What the agent that is installed does with its node's network; None: it is not there."""
    if _says(daemon_set, NETWORK):
        return Network.ON
    added = [
        name
        for container in _containers(dict(daemon_set or {"kind": ""}))
        for name in container.get("securityContext", {}).get("capabilities", {}).get("add", [])
    ]
    return Network.LEAVING if SHAPING_RIGHT in added else Network.OFF


def network_after(installed: Network, wanted: bool | None) -> Network:
    """What it shall do; wanted: switched on or off by the user, None: as it is.

    Switched off, agents first take away what they made: the right to do that goes with the next installation.
    """
    if wanted is None:
        return installed
    if wanted:
        return Network.ON
    return Network.LEAVING if installed is Network.ON else Network.OFF


def _says(daemon_set: Mapping[str, Any] | None, variable: str) -> bool:
    said = [
        one.get("value")
        for container in _containers(dict(daemon_set or {"kind": ""}))
        for one in container.get("env", [])
        if one["name"] == variable
    ]
    return said == ["1"]


def _image(image: str, choices: Choices) -> str:
    name = image.partition(":")[0]
    chosen = {IMAGE: choices.image, SCHEDULER_IMAGE: choices.scheduler_image}.get(name, "")
    return chosen or image


def extender_leases() -> list[Object]:
    """The Leases of extenders, to be looked up."""
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    return [kind | {"metadata": {"namespace": namespace, "name": name}} for namespace, name in LEASES]


def agent_itself() -> Object:
    """The agent's DaemonSet, to be looked up."""
    metadata = {"namespace": NAMESPACE, "name": "j10ce-agent"}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata}


def account_itself() -> Object:
    """The extender's account, which every installation has, to be looked up."""
    metadata = {"namespace": NAMESPACE, "name": "j10ce-extender"}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def helm_release(item: Mapping[str, Any] | None) -> str:
    """The Helm release that an object belongs to, as namespace/name, or "": Helm notes it on all it makes."""
    noted = (item or {}).get("metadata", {}).get("annotations", {})
    namespace, name = (noted.get(f"meta.helm.sh/release-{part}", "") for part in ("namespace", "name"))
    return f"{namespace}/{name}" if name else ""


def second_scheduler_itself() -> Object:
    """The Deployment of the second kube-scheduler with its extender, to be looked up."""
    metadata = {"namespace": NAMESPACE, "name": SCHEDULER}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}


def placeholders_program_itself() -> Object:
    """The Deployment of the program that keeps placeholders, to be looked up."""
    metadata = {"namespace": NAMESPACE, "name": "j10ce-extender"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}


def configuration_of(kubectl: Kubectl, scheduler: Mapping[str, Any]) -> Mapping[str, str]:
    """The files of HOST_CONFIGURATION that a Deployment mounts as it is installed; empty for none."""
    volumes = scheduler.get("spec", {}).get("template", {}).get("spec", {}).get("volumes", [])
    names = [volume["configMap"]["name"] for volume in volumes if "configMap" in volume]
    maps = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": NAMESPACE, "name": name}}
        for name in names
    ]
    for found in kubectl.existing(maps):
        if "extender.yaml" in found.get("data", {}):
            return {name: str(text) for name, text in found["data"].items()}
    return {}


def percentage_in(configuration: str) -> int:
    """percentageOfNodesToScore of a kube-scheduler's configuration; 0 where it says none."""
    said = re.search(PERCENTAGE, configuration, re.MULTILINE)
    return int(said[0].removeprefix(said[1])) if said else 0


def mode_in(configuration: str) -> str:
    """The mode that an extender's configuration says, or ""."""
    said = re.search(r"^mode: (\w+)", configuration, re.MULTILINE)
    return said[1] if said else ""


def reserves(configuration: str) -> bool:
    """Whether an extender's configuration says that Koordinator's Reservations are held."""
    return re.search(r"^koordinator:\n +reservations: true", configuration, re.MULTILINE) is not None


def keeps_quotas(configuration: str) -> bool:
    """Whether an extender's configuration says that pods keep to their ElasticQuota."""
    return re.search(r"^quotas:\n +enabled: true", configuration, re.MULTILINE) is not None


def keeps_both(configuration: str) -> bool:
    """Whether an extender's configuration says that placeholders keep holds beside it."""
    return re.search(r"^bothKeepers: true", configuration, re.MULTILINE) is not None


def autoscales(configuration: str) -> bool:
    """Whether an extender's configuration says that autoscalers are asked for nodes."""
    return re.search(r"^autoscaling:\n +buffers: true", configuration, re.MULTILINE) is not None


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
