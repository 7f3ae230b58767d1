"""The configuration file of the extender, and what the command line may override in it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from adapters import configuration
from adapters.configuration import HostPort, ObjectPath, Section
from adapters.serving.addresses import is_loopback, split_address
from adapters.webhooks.settings import WebhookPlace
from ledger.decisions import Mode
from ledger.lost_nodes import NOT_READY_SECONDS
from qos.cluster.keeping import Keepers
from qos.cluster.objects import Keeper
from qos.keys import HIGHEST_USER_PRIORITY, HOSTNAME_LABEL


class TLSFiles(Section):
    """Files for mutual TLS on the verbs' port, PEM; all three or none."""

    cert_file: Path = Field(description="The extender's certificate, with its chain.")
    key_file: Path = Field(description="Its private key.")
    client_ca_file: Path = Field(
        description="The authority whose client certificates may call the verbs. Use one of its own."
    )


class Webhook(WebhookPlace):
    """Where the API server asks whether a new pod waits for a placeholder's place."""

    service: ObjectPath = Field(
        default="j10ce-system/j10ce-extender", description="namespace/name of its Service, port 443."
    )


class Placeholders(Section):
    """How placeholders keep holds."""

    namespace: str = Field(
        default="j10ce-placeholders",
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        description="The namespace of placeholders. Nobody else may create pods there.",
    )
    scheduler_name: str = Field(
        default="",
        max_length=253,
        description="The scheduler that binds placeholders; without it the first of schedulerNames. Owners "
        "should have the same: what is about to be theirs is kept from pods of that scheduler alone.",
    )
    image: str = Field(
        default="",
        pattern=r"^\S*$",
        max_length=1024,
        description="An image that only waits, such as registry.k8s.io/pause:3.10: placeholders run it, so "
        "that kubelet does not evict them first when memory is short. Without it they never start, which "
        "costs a node a tenth of that.",
    )
    webhook: Webhook | None = Field(
        default=None,
        description="Without it owners are not gated: they preempt a placeholder, or another pod, or get its "
        "place once kube-scheduler has refused them.",
    )


class Koordinator(Section):
    """What of Koordinator's own objects is taken over."""

    reservations: bool = Field(
        default=False,
        description="Hold what Reservations (scheduling.koordinator.sh) reserve, and write their status. Not "
        "where koord-scheduler does so.",
    )


class GiveBack(Section):
    """How quotas get back what others owe them."""

    enabled: bool = Field(
        default=True,
        description="Evict pods of quotas that owe, and of lower priority inside a quota; not in Observe.",
    )
    grace_seconds: float = Field(
        default=30.0,
        ge=0,
        description="How long a quota must be owed before pods of others are evicted.",
    )
    evictions_per_minute: int = Field(default=60, ge=1, description="The most, of all quotas together.")


class Quotas(Section):
    """Elastic quotas."""

    enabled: bool = Field(
        default=False,
        description="Refuse pods beyond what their ElasticQuota (scheduling.sigs.k8s.io) may use now "
        "(docs/quota.md). Not where koord-scheduler, or a plugin of scheduler-plugins, does so.",
    )
    give_back: GiveBack = Field(default=GiveBack(), description="How quotas get back what others owe them.")
    gangs: bool = Field(
        default=True,
        description="Let the pods of a gang go to kube-scheduler together, once all have places; false: let "
        "each go at once (docs/gangs.md).",
    )


class Autoscaling(Section):
    """What autoscalers are told."""

    buffers: bool = Field(
        default=False,
        description="Ask for the nodes of slots that are held or unplaced, by a CapacityBuffer "
        "(autoscaling.x-k8s.io) for each policy without placeholders that wait (docs/autoscaling.md).",
    )


class ExtenderConfig(Section):
    """Everything that can be configured; JSON names are camelCase, unknown fields are refused."""

    mode: Mode = Field(
        default=Mode.GUARD,
        description="Observe reports and refuses nothing; Guard keeps floors and lets pods be scheduled "
        "while the extender is away; Strict refuses rather than break a floor.",
    )
    keeper: Keeper = Field(
        default=Keeper.EXTENDER,
        description="The keeper of policies that name none. Extender: kube-scheduler calls the verbs. "
        "Placeholders: a pod of ours stands where each hold lies; kube-scheduler needs no configuration.",
    )
    both_keepers: bool = Field(
        default=False,
        description="Policies may have the other keeper, too, by spec.keeper; else one that names it holds "
        "nothing. Run one extender then, and let kube-scheduler call it.",
    )
    placeholders: Placeholders = Field(
        default=Placeholders(), description="How placeholders keep holds, where they do."
    )
    verbs_address: HostPort = Field(
        default="127.0.0.1:10260",
        description="Where kube-scheduler calls filter, prioritize, preempt and bind. An address that is not "
        "loopback needs tls.",
    )
    address: HostPort = Field(
        default="127.0.0.1:10261", description="Where /healthz, /readyz, /metrics and /holds are served."
    )
    tls: TLSFiles | None = Field(default=None, description="Mutual TLS for the verbs.")
    kubeconfig: Path | None = Field(
        default=None, description="How to reach the API server; without it, as the pod's service account."
    )
    context: str | None = Field(
        default=None, description="The kubeconfig's context; without it, the current one."
    )
    identity: str = Field(
        default="",
        max_length=253,
        description="Written on every pod that is bound, and as holder of the Lease; without it, the host's "
        "name and the verbs' port, which outlive a restart.",
    )
    lease: ObjectPath = Field(
        default="kube-system/j10ce-extender",
        description="namespace/name of the Lease; its holder writes the policies' status.",
    )
    scheduler_names: list[str] = Field(
        default=["default-scheduler"],
        min_length=1,
        description="The schedulers that call this extender; pods of others count as bypassing.",
    )
    cap_percent: int = Field(
        default=40,
        ge=1,
        le=100,
        description="The most of the cluster's allocatable that all holds may take, in any dimension.",
    )
    cap_pool_labels: list[str] = Field(
        default=[],
        max_length=4,
        description="Labels of nodes, such as node.kubernetes.io/instance-type. Nodes with the same value of "
        "one are a pool, in which capPercent holds as well; nodes without the label are in none. Not "
        "kubernetes.io/hostname: a pool is many nodes. The values beyond the first 64 are one pool.",
    )
    binds: bool = Field(
        default=True,
        description="False where kube-scheduler does not bind through this extender: pods in flight are then "
        "charged until they are seen.",
    )
    most_nodes: int = Field(
        default=100,
        ge=0,
        description="How many nodes at the most filter answers a pod that prefers none, by turns: "
        "kube-scheduler decodes and scores each (docs/which-pods.md). 0: all. 100 is the least that it looks "
        "for itself in larger clusters.",
    )
    bind_deadline_seconds: float = Field(
        default=1.5,
        gt=0,
        le=60,
        description="How long a bind may take before it is answered with Error; keep it below httpTimeout of "
        "kube-scheduler's extender entry. The Binding's outcome is settled all the same.",
    )
    stale_seconds: float = Field(
        default=90.0,
        gt=0,
        description="How long a watch may be without contact before the verbs answer 503.",
    )
    settle_seconds: float = Field(
        default=600.0,
        gt=0,
        description="After so long in flight, a pod is looked up by a quorum read.",
    )
    warmup_seconds: float = Field(
        default=10.0,
        ge=0,
        description="How long after the start ordinary pods get no node with holds, because pods in flight "
        "from before it are not known. In Guard with binds at most twice bindDeadlineSeconds; in Strict with "
        "binds, where bind refuses, and in Observe not at all.",
    )
    not_ready_seconds: float = Field(
        default=NOT_READY_SECONDS,
        ge=0,
        description="How long a node may be NotReady before the slots that its pods fill are held elsewhere "
        "as well. Keep it below the pods' tolerationSeconds (300 by default), after which they are evicted "
        "and made again; pods that terminate on such a node fill no slot at once.",
    )
    guard_window_seconds: float = Field(
        default=300.0,
        gt=0,
        description="How long a pod that was bound without us keeps the condition Guarded at False.",
    )
    owner_wait_seconds: float = Field(
        default=15.0,
        ge=0,
        description="How long an owner may wait while slots are held before SlotsUsable is False.",
    )
    max_policy_priority: int = Field(
        default=HIGHEST_USER_PRIORITY,
        description="The highest value of a PriorityClass that a policy may have, whoever made it and when; "
        "a policy above it holds nothing. Default: everything but Kubernetes' own system classes.",
    )
    reference_grace_seconds: float = Field(
        default=60.0,
        ge=0,
        description="How long slots stay held after the PriorityClass, the QoSProfile or the workload of "
        "their policy was deleted: it may be made again. A restart in between ends it.",
    )
    koordinator: Koordinator = Field(
        default=Koordinator(), description="Koordinator's objects as a second source of holds."
    )
    quotas: Quotas = Field(default=Quotas(), description="Elastic quotas.")
    autoscaling: Autoscaling = Field(default=Autoscaling(), description="What autoscalers are told.")
    annotate_held_nodes: bool = Field(
        default=True,
        description="Annotate nodes with holds so that cluster-autoscaler and Karpenter do not remove them.",
    )

    @model_validator(mode="after")
    def _pools_are_of_many_nodes(self) -> ExtenderConfig:
        if HOSTNAME_LABEL in self.cap_pool_labels:
            raise ValueError(
                f"capPoolLabels has {HOSTNAME_LABEL}: every node would be a pool of its own, and the verbs "
                "too slow; to hold less on each node, set placement.maxSlotsPerNode in the policies"
            )
        return self

    @model_validator(mode="after")
    def _placeholders_hold_policies(self) -> ExtenderConfig:
        if self.koordinator.reservations and not self.keepers.runs(Keeper.EXTENDER):
            raise ValueError(
                "keeper Placeholders does not hold what Reservations reserve: leave koordinator.reservations "
                "out, or set keeper: Extender, or bothKeepers"
            )
        return self

    @model_validator(mode="after")
    def _verbs_keep_quotas(self) -> ExtenderConfig:
        if self.quotas.enabled and not self.keepers.runs(Keeper.EXTENDER):
            raise ValueError(
                "keeper Placeholders does not keep quotas, because kube-scheduler asks nobody: leave "
                "quotas.enabled out, or set keeper: Extender, or bothKeepers"
            )
        return self

    @model_validator(mode="after")
    def _remote_verbs_need_tls(self) -> ExtenderConfig:
        host, _ = split_address(self.verbs_address)
        if self.tls is None and not is_loopback(host):
            raise ValueError(
                f"verbsAddress {self.verbs_address} is not loopback: anyone who reaches it could bind pods; "
                "set tls (certFile, keyFile, clientCaFile) or use 127.0.0.1"
            )
        return self

    @property
    def warmup(self) -> float:
        """Seconds of the warm-up, as the mode and bind need it."""
        if self.mode is Mode.OBSERVE or (self.binds and self.mode is Mode.STRICT):
            return 0.0
        # A bind comes within milliseconds of filter's answer, unless those before it are slow.
        return min(self.warmup_seconds, 2 * self.bind_deadline_seconds) if self.binds else self.warmup_seconds

    def named(self) -> ExtenderConfig:
        """With an identity: one that no other extender has at the same time."""
        _, port = split_address(self.verbs_address)
        return (
            self if self.identity else self.model_copy(update={"identity": f"{socket.gethostname()}-{port}"})
        )

    @property
    def binds_placeholders(self) -> str:
        """The scheduler that does."""
        return self.placeholders.scheduler_name or self.scheduler_names[0]

    @property
    def keepers(self) -> Keepers:
        """Those that run."""
        return Keepers(self.keeper, self.both_keepers)

    @property
    def lease_namespace(self) -> str:
        """The Lease's namespace."""
        return self.lease.partition("/")[0]

    @property
    def lease_name(self) -> str:
        """The Lease's name."""
        return self.lease.partition("/")[2]


def load(path: Path | None, overrides: dict[str, Any]) -> ExtenderConfig:
    """The file's configuration with the overrides on top; ConfigError says what is wrong and where."""
    return configuration.load(ExtenderConfig, path, overrides)
