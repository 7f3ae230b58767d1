"""`j10ce preflight`: whether a cluster is fit for an installation, and what that would change."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from adapters.output import Output, OutputOption
from cli import admission, bypassing, installation, keeping, koordinator, sampling
from cli.keeping import Keeper, KeeperOption
from cli.koordinator import Koordinator
from cli.kubectl import Kubectl, KubectlError, Object, find
from ledger.decisions import Mode

OLDEST: Final = (1, 33)
"""Sidecar containers are stable since 1.33; admission policies since 1.30."""
TESTED: Final = ((1, 34), (1, 35), (1, 36))
"""Those that lab/minors.py knows: the scenarios run on each."""
NEEDED: Final = (
    ("create", "customresourcedefinitions.apiextensions.k8s.io"),
    ("create", "namespaces"),
    ("create", "clusterroles.rbac.authorization.k8s.io"),
    ("create", "clusterrolebindings.rbac.authorization.k8s.io"),
    ("create", "roles.rbac.authorization.k8s.io"),
    ("create", "rolebindings.rbac.authorization.k8s.io"),
    ("create", "validatingadmissionpolicies.admissionregistration.k8s.io"),
    ("create", "validatingadmissionpolicybindings.admissionregistration.k8s.io"),
    ("create", "serviceaccounts"),
    ("create", "configmaps"),
    ("create", "deployments.apps"),
    ("create", "daemonsets.apps"),
    ("create", "poddisruptionbudgets.policy"),
)
NEEDED_FOR_PLACEHOLDERS: Final = (
    ("create", "services"),
    ("create", "secrets"),
    ("create", "mutatingwebhookconfigurations.admissionregistration.k8s.io"),
)
NEEDED_FOR_QUOTAS: Final = (
    ("create", "services"),
    ("create", "secrets"),
    ("create", "validatingwebhookconfigurations.admissionregistration.k8s.io"),
)
_LEASE_SECONDS: Final = 60.0
_POD_SECURITY: Final = "pod-security.kubernetes.io/enforce"


class Outcome(Enum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding, and what to do about it."""

    name: str
    outcome: Outcome
    message: str

    def to_json(self) -> dict[str, str]:
        """For -o json."""
        return {"name": self.name, "level": self.outcome.value, "message": self.message}


@dataclass(frozen=True, slots=True)
class Facts:
    """What was read from the cluster. agent: its DaemonSet. mode: the second scheduler's, "" for none.

    autoscales: autoscalers are asked for nodes; buffers: the kind is there by which they are.
    quotas: ElasticQuotas are kept, and quotas_served: their definition is there; quota_checks: what else
    checks them, where they are to be kept.
    reserves: Koordinator's Reservations are held; koordinator: what of it is there, where they are to be.
    release: the Helm release that made what is there, as namespace/name, "" for none.
    raising: the version by which the API server itself can raise requests to a floor, "" where it cannot.
    percentage: the second scheduler's percentageOfNodesToScore. nodes: how many, -1 where nobody asked for
    nodes and pods. load: what pods request, None where that may not be read. second: the second scheduler is
    there, both: with both keepers. placeholders: the program that keeps them alone is; room: their namespace,
    where they are to keep holds.
    """

    version: str
    missing_rights: tuple[str, ...] = ()
    definitions: tuple[Object, ...] = ()
    namespace: Object | None = None
    agent: Object | None = None
    mode: str = ""
    release: str = ""
    leases: tuple[Object, ...] = ()
    schedulers: tuple[Object, ...] = ()
    wanted_definitions: tuple[Object, ...] = field(default_factory=tuple)
    raising: str = admission.VERSIONS[0]
    reserves: bool = False
    quotas: bool = False
    quotas_served: bool = False
    quota_checks: tuple[str, ...] = ()
    autoscales: bool = False
    buffers: bool = False
    koordinator: Koordinator = field(default_factory=Koordinator)
    percentage: int = 0
    nodes: int = -1
    load: bypassing.Load | None = None
    second: bool = False
    both: bool = False
    placeholders: bool = False
    room: keeping.Room = field(default_factory=keeping.Room)


def gather(kubectl: Kubectl) -> Facts:
    """Read what the checks need. Raises KubectlError when the cluster cannot be reached."""
    version = json.loads(kubectl.run("version", "-o", "json"))["serverVersion"]["gitVersion"]
    everything = kubectl.allowed("*", "*.*")
    missing = () if everything else tuple(f"{v} {r}" for v, r in NEEDED if not kubectl.allowed(v, r))
    if missing:
        return Facts(version, missing)
    wanted = installation.definitions()
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": installation.NAMESPACE}}
    ours = [
        namespace,
        installation.account_itself(),
        installation.agent_itself(),
        installation.second_scheduler_itself(),
        installation.placeholders_program_itself(),
    ]
    found = kubectl.existing(ours)
    there = {item["kind"]: item for item in found if item["kind"] != "Deployment"}
    programs = {item["metadata"]["name"]: item for item in found if item["kind"] == "Deployment"}
    placing = installation.placeholders_program_itself()["metadata"]["name"]
    program = programs.get(installation.SCHEDULER) or programs.get(placing) or {}
    configuration = installation.configuration_of(kubectl, program)
    extender = configuration.get("extender.yaml", "")
    return Facts(
        version,
        definitions=tuple(kubectl.existing(wanted)),
        namespace=there.get("Namespace"),
        agent=there.get("DaemonSet"),
        mode=installation.mode_in(extender),
        reserves=installation.reserves(extender),
        quotas=installation.keeps_quotas(extender),
        percentage=installation.percentage_in(configuration.get("scheduler.yaml", "")),
        autoscales=installation.autoscales(extender),
        release=installation.helm_release(there.get("ServiceAccount")),
        leases=tuple(kubectl.existing(installation.extender_leases())),
        schedulers=tuple(installation.kube_scheduler_pods(kubectl)),
        wanted_definitions=tuple(wanted),
        raising=admission.raising(kubectl),
        second=installation.SCHEDULER in programs,
        both=installation.SCHEDULER in programs and installation.keeps_both(extender),
        placeholders=placing in programs,
    )


def keeper_after(facts: Facts, overlay: Overlay, wanted: Keeper | None) -> Keeper:
    """Who shall keep holds; wanted: as the user says, None: as it is installed. typer.BadParameter."""
    if wanted is Keeper.BOTH and overlay is not Overlay.SECOND:
        text = (
            "both needs --overlay second-scheduler; docs/keepers.md says what is to be done by hand beside "
            "the cluster's own"
        )
        raise typer.BadParameter(text, param_hint="--keeper")
    if wanted is not None:
        return wanted
    if facts.both and overlay is Overlay.SECOND:
        return Keeper.BOTH
    return Keeper.PLACEHOLDERS if facts.placeholders and not facts.second else Keeper.EXTENDER


def with_placeholders(kubectl: Kubectl, facts: Facts, choices: installation.Choices) -> Facts:
    """The facts, with what is where placeholders are to be."""
    if not choices.makes_placeholders or facts.missing_rights:
        return facts
    missing = tuple(f"{v} {r}" for v, r in NEEDED_FOR_PLACEHOLDERS if not kubectl.allowed(v, r))
    if missing:
        return replace(facts, missing_rights=missing)
    return replace(facts, room=keeping.found(kubectl))


def with_autoscaler(kubectl: Kubectl, facts: Facts, choices: installation.Choices) -> Facts:
    """The facts, with whether an autoscaler has brought CapacityBuffers, where it is to be asked."""
    if not choices.autoscaling or facts.missing_rights:
        return facts
    return replace(
        facts, buffers=bool(kubectl.existing_named("customresourcedefinitions", [installation.BUFFERS]))
    )


def with_koordinator(kubectl: Kubectl, facts: Facts, choices: installation.Choices) -> Facts:
    """The facts, with what there is of Koordinator where its Reservations are to be held, or quotas kept."""
    if not (choices.reservations or choices.quotas) or facts.missing_rights:
        return facts
    facts = replace(facts, koordinator=koordinator.found(kubectl))
    if not choices.quotas:
        return facts
    missing = tuple(f"{v} {r}" for v, r in NEEDED_FOR_QUOTAS if not kubectl.allowed(v, r))
    if missing:
        return replace(facts, missing_rights=missing)
    served = kubectl.existing_named("customresourcedefinitions", [koordinator.QUOTAS])
    checks = koordinator.other_checks(kubectl)
    return replace(facts, quotas_served=bool(served), quota_checks=checks)


def with_load(kubectl: Kubectl, facts: Facts, overlay: Overlay) -> Facts:
    """The facts, with the number of nodes and what pods request, which takes a while in a large cluster."""
    if facts.missing_rights:
        return facts
    nodes = len(kubectl.run("get", "nodes", "-o", "name").splitlines())
    return replace(facts, nodes=nodes, load=bypassing.found(kubectl, _SCHEDULERS[overlay]))


def assess(facts: Facts, overlay: str, choices: installation.Choices, now: datetime) -> list[Check]:
    """The checks, in the order people read them; without rights only those that need none."""
    first = [_version(facts.version), _rights(facts.missing_rights)]
    if facts.missing_rights:
        return first
    return [
        *first,
        *_definitions(facts.definitions, facts.wanted_definitions),
        _namespace(facts.namespace),
        *_chart(facts.release),
        *_agent(facts, agent=choices.agent),
        *(_koordinator(facts.koordinator) if choices.reservations else ()),
        *((*_quotas(facts), _gangs(facts.raising)) if choices.quotas else ()),
        *(_autoscaler(facts, choices) if choices.autoscaling else ()),
        _requests(facts.raising),
        _extenders(facts.leases, now),
        *_keeper(facts, choices),
        *([] if choices.placeholders else [_schedulers(facts.schedulers, overlay, choices)]),
        *(_load(facts, Overlay(overlay), choices.percentage) if facts.nodes >= 0 else ()),
    ]


def _version(version: str) -> Check:
    match = re.match(r"v?(\d+)\.(\d+)", version)
    if match is None:
        return Check("version", Outcome.WARNING, f"the API server's version {version!r} cannot be read")
    found = int(match[1]), int(match[2])
    if found < OLDEST:
        return Check("version", Outcome.FAILED, f"{version}: needs {_dotted(OLDEST)} or newer")
    if found not in TESTED:
        tested = ", ".join(_dotted(one) for one in TESTED)
        return Check("version", Outcome.WARNING, f"{version}: tested with {tested} only")
    return Check("version", Outcome.OK, f"{version}, as tested")


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(str(part) for part in version)


def _rights(missing: tuple[str, ...]) -> Check:
    if missing:
        return Check("rights", Outcome.FAILED, f"you may not: {', '.join(missing)}")
    return Check("rights", Outcome.OK, "you may create all that is needed")


def _definitions(found: Iterable[Object], wanted: Iterable[Object]) -> list[Check]:
    there = {item["metadata"]["name"]: item for item in found}
    return [_definition(there.get(item["metadata"]["name"]), item) for item in wanted]


def _definition(found: Object | None, wanted: Object) -> Check:
    name = f"crd {wanted['spec']['names']['plural']}"
    if found is None:
        return Check(name, Outcome.OK, "will be created")
    versions = [version["name"] for version in wanted["spec"]["versions"]]
    stored = found.get("status", {}).get("storedVersions", [])
    unknown = sorted(set(stored) - set(versions))
    if unknown:
        return Check(
            name,
            Outcome.FAILED,
            (
                f"objects are stored as {', '.join(unknown)}, which this version does not know: use a newer"
                f" j10ce"
            ),
        )
    if _schemas(found) != _schemas(wanted):
        return Check(
            name, Outcome.WARNING, "is there with another schema, from another version; will be changed"
        )
    return Check(name, Outcome.OK, "is there, the same")


def _schemas(definition: Mapping[str, Any]) -> dict[str, Any]:
    return {version["name"]: version["schema"] for version in definition["spec"]["versions"]}


def _namespace(namespace: Object | None) -> Check:
    name = f"namespace {installation.NAMESPACE}"
    if namespace is None:
        return Check(name, Outcome.OK, "will be created")
    if installation.is_ours(namespace):
        return Check(name, Outcome.OK, "is there from an earlier installation")
    return Check(
        name, Outcome.WARNING, "is there and not ours: install takes it as it is, and uninstall leaves it"
    )


def _chart(release: str) -> list[Check]:
    """Two that both say what an installation is would undo each other's changes."""
    if not release:
        return []
    namespace, _, name = release.partition("/")
    message = (
        f"Helm release {name} in namespace {namespace} made what is here: go on with `helm upgrade`, or "
        f"remove it first, by `j10ce uninstall` and `helm uninstall {name} --namespace {namespace}`"
    )
    return [Check("chart", Outcome.FAILED, message)]


def _agent(facts: Facts, *, agent: bool) -> list[Check]:
    """Pod security refuses a DaemonSet's pods in silence: the DaemonSet itself is made."""
    if not agent:
        return []
    namespace = facts.namespace
    if namespace is not None and not installation.is_ours(namespace):
        level = namespace["metadata"].get("labels", {}).get(_POD_SECURITY, "")
        if level in ("baseline", "restricted"):
            message = (
                f"namespace {installation.NAMESPACE} has {_POD_SECURITY}: {level}, which refuses host paths "
                "and capabilities: label it privileged"
            )
            return [Check("agent", Outcome.FAILED, message)]
    return [Check("agent", Outcome.OK, "is there, will be kept" if facts.agent else "will run on every node")]


def _keeper(facts: Facts, choices: installation.Choices) -> list[Check]:
    """Two programs that hold the same policies would hold each slot twice."""
    other = facts.second if choices.placeholders else facts.placeholders
    if other:
        name = installation.SCHEDULER if choices.placeholders else "j10ce-extender"
        message = f"Deployment {name} keeps holds here by the other keeper: j10ce uninstall first"
        return [Check("keeper", Outcome.FAILED, message)]
    if facts.both and not choices.both:
        message = (
            f"the extender of Deployment {installation.SCHEDULER} keeps placeholders, too, and they and the "
            "gates of their owners would be left: j10ce uninstall first, or --keeper both"
        )
        return [Check("keeper", Outcome.FAILED, message)]
    if not choices.makes_placeholders:
        return []
    if refusals := keeping.refusals(facts.room):
        return [Check("keeper", Outcome.FAILED, one) for one in refusals]
    message = "placeholders, which need nothing of kube-scheduler's configuration"
    if choices.both:
        message = "the second scheduler's extender, one of it, and placeholders of policies that name them"
    return [Check("keeper", Outcome.OK, message), _owners(facts.raising)]


def _owners(raising: str) -> Check:
    best, beta = admission.VERSIONS
    if raising == best:
        message = "preempt placeholders while nothing of ours runs: the API server raises them by one then"
        return Check("owners", Outcome.OK, message)
    if raising == beta:
        message = (
            "preempt placeholders while nothing of ours runs, if kube-apiserver's feature gate "
            "MutatingAdmissionPolicy is on, which cannot be asked; else they wait"
        )
        return Check("owners", Outcome.WARNING, message)
    message = (
        "wait while nothing of ours runs: the API server serves no MutatingAdmissionPolicy (v1: Kubernetes "
        "1.36; 1.34, 1.35: v1beta1, where it is switched on), which would raise them above placeholders"
    )
    return Check("owners", Outcome.WARNING, message)


def _autoscaler(facts: Facts, choices: installation.Choices) -> list[Check]:
    """Without the kind all works but that: the extender notices when it comes."""
    if choices.placeholders:
        text = "nodes are asked for by placeholders that wait"
        if not facts.buffers:
            text += f"; not for policies that spread their slots, as {installation.BUFFERS} is not there"
        return [Check("autoscaler", Outcome.OK, text)]
    if facts.buffers:
        return [Check("autoscaler", Outcome.OK, "CapacityBuffers are there: nodes are asked for by them")]
    message = (
        f"{installation.BUFFERS} is not there, so no autoscaler can be asked for nodes: switch on its "
        "feature, which brings it (docs/autoscaling.md)"
    )
    return [Check("autoscaler", Outcome.WARNING, message)]


def _quotas(facts: Facts) -> list[Check]:
    """Two schedulers that both keep quotas are no harm to pods; but theirs knows nothing of what is lent."""
    if not facts.quotas_served:
        message = f"{koordinator.QUOTAS} is not there: no quota limits pods until it is (docs/quota.md)"
        return [Check("quotas", Outcome.WARNING, message)]
    if facts.koordinator.schedulers:
        names = ", ".join(facts.koordinator.schedulers)
        message = f"Deployment {names} runs and keeps the same ElasticQuotas: scale it to 0 first"
        return [Check("quotas", Outcome.WARNING, message)]
    if facts.quota_checks:
        names = ", ".join(facts.quota_checks)
        message = f"ValidatingWebhookConfiguration {names} checks ElasticQuotas, too: remove it, or both do"
        return [Check("quotas", Outcome.WARNING, message)]
    return [Check("quotas", Outcome.OK, "ElasticQuotas are kept, and no koord-scheduler runs")]


def _gangs(raising: str) -> Check:
    best, beta = admission.VERSIONS
    if raising == best:
        return Check("gangs", Outcome.OK, "their pods are gated by the API server, and let go together")
    text = f"served as {beta}, if the feature gate is on, which cannot be asked" if raising else "not served"
    message = (
        f"are pods like others where nobody gates them: MutatingAdmissionPolicy is {text} (docs/gangs.md)"
    )
    return Check("gangs", Outcome.WARNING, message)


def _koordinator(there: Koordinator) -> list[Check]:
    """Two that both hold what Reservations reserve, and write their status, undo each other's work."""
    if there.schedulers:
        names = ", ".join(there.schedulers)
        message = f"Deployment {names} runs and writes the same Reservations: scale it to 0 first"
        return [Check("reservations", Outcome.FAILED, message)]
    if not there.served:
        message = f"{koordinator.DEFINITION} is not there: the extender waits for it"
        return [Check("reservations", Outcome.WARNING, message)]
    if there.pods:
        message = f"{there.pods} pods name {koordinator.SCHEDULER}: they never come to a Reservation of ours"
        return [Check("reservations", Outcome.WARNING, message)]
    return [Check("reservations", Outcome.OK, "are held, and no koord-scheduler runs")]


def _requests(raising: str) -> Check:
    best, beta = admission.VERSIONS
    if raising == best:
        return Check("requests", Outcome.OK, "below a policy's floor are raised or refused by the API server")
    if raising == beta:
        message = (
            "below a policy's floor are raised by MutatingAdmissionPolicy v1beta1, if kube-apiserver's "
            "feature gate of that name is on, too, which cannot be asked. They are refused in any case"
        )
        return Check("requests", Outcome.WARNING, message)
    message = (
        "below a policy's floor stay as they are with requestPolicy Raise: the API server serves no "
        "MutatingAdmissionPolicy (v1: Kubernetes 1.36; 1.34, 1.35: v1beta1, where it is switched on); the "
        "extender alone counts the floor. Reject works"
    )
    return Check("requests", Outcome.WARNING, message)


def running_extenders(leases: Iterable[Object], now: datetime) -> list[str]:
    """The extenders that lead now, each as "holder (Lease namespace/name)"."""
    found = []
    for lease in leases:
        spec = lease.get("spec", {})
        renewed = datetime.fromisoformat(spec.get("renewTime", "1970-01-01T00:00:00Z"))
        if spec.get("holderIdentity") and (now - renewed).total_seconds() < _LEASE_SECONDS:
            metadata = lease["metadata"]
            found.append(f"{spec['holderIdentity']} (Lease {metadata['namespace']}/{metadata['name']})")
    return found


def _extenders(leases: Iterable[Object], now: datetime) -> Check:
    running = running_extenders(leases, now)
    if running:
        return Check(
            "extender",
            Outcome.WARNING,
            f"already running: {', '.join(running)}; two that do not share a Lease both write status",
        )
    return Check("extender", Outcome.OK, "none is running")


def _schedulers(pods: tuple[Object, ...], overlay: str, choices: installation.Choices) -> Check:
    seen = (
        f"{len(pods)} pods of the cluster's own, image {installation.image_of(pods)}"
        if pods
        else "none visible"
    )
    if overlay == "default-scheduler":
        if pods:
            return Check(
                "kube-scheduler", Outcome.OK, f"{seen}; each needs --config, see the overlay's README.md"
            )
        return Check(
            "kube-scheduler",
            Outcome.WARNING,
            f"{seen} in kube-system: overlay default-scheduler needs control-plane hosts that you run; "
            "where you do not, use --overlay second-scheduler",
        )
    image = choices.scheduler_image or installation.image_of(pods)
    if not image:
        return Check(
            "kube-scheduler",
            Outcome.FAILED,
            f"{seen} in kube-system, so the image is not known: name it with --scheduler-image, "
            "of the API server's version",
        )
    return Check("kube-scheduler", Outcome.OK, f"{seen}; a second one will run {image}")


def _load(facts: Facts, overlay: Overlay, percentage: int) -> list[Check]:
    """Which pods never come to the extender, and how many nodes it is told of for those that do."""
    sample = Check("sample", Outcome.OK, sampling.said(facts.nodes, percentage))
    load = facts.load
    if load is None:
        message = "you may not list all pods, so it is not known which of them bypass the extender"
        return [Check("pods", Outcome.WARNING, message), sample]
    said = bypassing.said(load, _SCHEDULERS[overlay])
    if not any(load.free.values()):
        return [Check("pods", Outcome.OK, said), sample]
    remedy = bypassing.remedy(load, can_name=facts.raising != "") if overlay is Overlay.SECOND else ""
    message = ". ".join(part for part in (said, "No floor is kept against these pods", remedy) if part)
    return [Check("pods", Outcome.WARNING, message), sample]


def show(checks: Iterable[Check], changes: Iterable[installation.Change], console: Console) -> None:
    """The findings and the plan as tables."""
    colours = {Outcome.OK: "green", Outcome.WARNING: "yellow", Outcome.FAILED: "red"}
    table = Table("check", "result", Column("finding", overflow="fold"), box=None)
    for check in checks:
        table.add_row(
            check.name, f"[{colours[check.outcome]}]{check.outcome.value}[/]", escape(check.message)
        )
    console.print(table)
    show_changes(changes, console)


def show_changes(changes: Iterable[installation.Change], console: Console) -> None:
    """What is created, changed or kept."""
    folded = [Column(title, overflow="fold") for title in ("kind", "namespace", "name")]
    table = Table("action", *folded, box=None)
    for change in changes:
        table.add_row(change.action, change.kind, change.namespace, change.name)
    if table.row_count:
        console.print()
        console.print(table)


class Overlay(StrEnum):
    """Where the extender runs."""

    SECOND = "second-scheduler"
    DEFAULT = "default-scheduler"


KubeconfigOption = Annotated[
    Path | None, typer.Option("--kubeconfig", help="The kubeconfig; without it, as kubectl finds it.")
]
ContextOption = Annotated[str, typer.Option("--context", help="The kubeconfig's context.")]
OverlayOption = Annotated[
    Overlay,
    typer.Option(
        "--overlay",
        help="second-scheduler: beside a kube-scheduler of its own, for pods that name it. "
        "default-scheduler: beside the cluster's own, on hosts you run.",
    ),
]
ImageOption = Annotated[
    str,
    typer.Option("--image", help="The image of extender, manager and agent.", show_default="j10ce-qos:0.1.0"),
]
SchedulerImageOption = Annotated[
    str,
    typer.Option(
        "--scheduler-image",
        help="kube-scheduler's image, of the API server's version.",
        show_default="as the cluster's own",
    ),
]


_SCHEDULERS: Final = {
    Overlay.SECOND: installation.SCHEDULER,
    Overlay.DEFAULT: "default-scheduler",
}
"""Whose pods come to the extender."""


class Part(StrEnum):
    """What may be left out."""

    MANAGER = "manager"


WithoutOption = Annotated[
    list[Part] | None,
    typer.Option("--without", help="Leave this out; one that is there stays as it is."),
]
AgentOption = Annotated[
    bool, typer.Option("--agent", help="With the agent on every node, which keeps floors in the kernel.")
]
NetworkFloorsOption = Annotated[
    bool | None,
    typer.Option(
        "--network-floors/--no-network-floors",
        show_default="as it is installed; at first without",
        help="With or without agents that shape their node's network. They need CAP_NET_ADMIN for it.",
    ),
]
PercentageOption = Annotated[
    int | None,
    typer.Option(
        "--percentage-of-nodes-to-score",
        min=0,
        max=100,
        show_default="as it is installed; at first 0",
        help="Of kube-scheduler's configuration; the names in a call of the extender (docs/which-pods.md).",
    ),
]
ReservationsOption = Annotated[
    bool | None,
    typer.Option(
        "--reservations/--no-reservations",
        show_default="as it is installed; at first without",
        help="Hold what Koordinator's Reservations reserve, too (docs/koordinator.md).",
    ),
]
QuotasOption = Annotated[
    bool | None,
    typer.Option(
        "--quotas/--no-quotas",
        show_default="as it is installed; at first without",
        help="Keep pods to their ElasticQuota, refuse quotas that break a rule, start gangs whole "
        "(docs/quota.md, docs/gangs.md).",
    ),
]
AutoscalingOption = Annotated[
    bool | None,
    typer.Option(
        "--autoscaling/--no-autoscaling",
        show_default="as it is installed; at first without",
        help="Ask autoscalers for the nodes of slots that are held or unplaced (docs/autoscaling.md).",
    ),
]
ModeOption = Annotated[
    Mode | None,
    typer.Option(
        "--mode",
        case_sensitive=False,
        show_default="as it is installed; at first guard",
        help="Observe: report, refuse nothing; an agent writes nothing on its node. "
        "Guard: keep floors while the extender is there. "
        "Strict: refuse rather than break a floor.",
    ),
]


def preflight(
    overlay: OverlayOption = Overlay.SECOND,
    keeper: KeeperOption = None,
    image: ImageOption = "",
    scheduler_image: SchedulerImageOption = "",
    agent: AgentOption = False,
    without: WithoutOption = None,
    network_floors: NetworkFloorsOption = None,
    reservations: ReservationsOption = None,
    percentage: PercentageOption = None,
    autoscaling: AutoscalingOption = None,
    quotas: QuotasOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Say whether a cluster is fit for j10ce-qos, and what installing would change. Changes nothing.

    Exit code 1 when something has to be done first.
    """
    kubectl = find(os.environ, kubeconfig, context)
    facts = gather(kubectl)
    kept_by = keeper_after(facts, overlay, keeper)
    choices = installation.Choices(
        image,
        scheduler_image or installation.image_of(facts.schedulers),
        facts.mode if overlay is Overlay.SECOND else "",
        agent=agent or facts.agent is not None,
        observe=installation.observes(facts.agent),
        network=installation.network_after(installation.network_of(facts.agent), network_floors),
        raising=facts.raising,
        manager=Part.MANAGER not in (without or ()),
        reservations=facts.reserves if reservations is None else reservations,
        percentage=percentage_after(facts, overlay, percentage),
        autoscaling=facts.autoscales if autoscaling is None else autoscaling,
        quotas=facts.quotas if quotas is None else quotas,
        placeholders=kept_by is Keeper.PLACEHOLDERS,
        both=kept_by is Keeper.BOTH,
    )
    refuse_what_verbs_do(choices)
    facts = with_autoscaler(kubectl, with_koordinator(kubectl, facts, choices), choices)
    facts = with_placeholders(kubectl, facts, choices)
    if not choices.placeholders:
        facts = with_load(kubectl, facts, overlay)
    checks = assess(facts, overlay.value, choices, datetime.now(UTC))
    changes: list[installation.Change] = []
    if not facts.missing_rights:
        wanted = installation.sparing(installation.objects(kubectl, overlay.value, choices), facts.namespace)
        changes, checks = _planned(kubectl, wanted, checks)
    if output is Output.JSON:
        document = {"checks": [c.to_json() for c in checks], "changes": [c.to_json() for c in changes]}
        typer.echo(json.dumps(document, indent=2))
    else:
        show(checks, changes, Console())
    if any(check.outcome is Outcome.FAILED for check in checks):
        raise typer.Exit(1)


def refuse_what_verbs_do(choices: installation.Choices) -> None:
    """What placeholders do not: they hold no Reservations and keep no quotas. typer.BadParameter."""
    wanted = {"--reservations": choices.reservations, "--quotas": choices.quotas}
    for option in (option for option, asked in wanted.items() if asked and choices.placeholders):
        raise typer.BadParameter("needs --keeper extender or both", param_hint=option)


def percentage_after(facts: Facts, overlay: Overlay, wanted: int | None) -> int:
    """kube-scheduler's percentageOfNodesToScore; wanted: as the user says, None: as it is installed."""
    if wanted is not None:
        return wanted
    return facts.percentage if overlay is Overlay.SECOND else 0


def _planned(
    kubectl: Kubectl, wanted: list[Object], checks: list[Check]
) -> tuple[list[installation.Change], list[Check]]:
    """What installing would change; a dry run that the API server refuses is a failed check."""
    try:
        return installation.changes(
            kubectl, [*installation.definitions(), *wanted], force_conflicts=False
        ), checks
    except KubectlError as error:
        return [], [*checks, Check("dry run", Outcome.FAILED, str(error))]
