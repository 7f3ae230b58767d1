"""Every name that crosses the edge of this project: API group, labels, annotations, conditions, reasons.

A key is written here once; no other file spells one.
"""

from typing import Final

GROUP: Final = "j10ce.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

# Labels on ClusterRoles.
SCALE_TARGETS_LABEL: Final = f"{GROUP}/aggregate-to-scale-targets"
"""Of rights to read scale targets, which the extender has then (manifests/base/extender-rights.yaml)."""

# Annotations on pods.
POLICY_ANNOTATION: Final = f"{GROUP}/policy"
"""namespace/name of the policy whose slot the pod fills; "" on a pod of a policy that fills none.

Merged by the Binding, and kept true by the extender, which alone counts slots. Without it nobody has counted.
"""
BOUND_BY_ANNOTATION: Final = f"{GROUP}/bound-by"
"""Identity of the extender that bound the pod; a pod without it came by another way."""
WAKE_ANNOTATION: Final = f"{GROUP}/wake"
"""Changed on a pending pod to make kube-scheduler try it again (trap T21)."""

PLACEHOLDER_LABEL: Final = f"{GROUP}/placeholder"
"""On placeholders, "true": monitoring leaves them out by it. In another namespace it says nothing."""
PLACEHOLDER_OF_ANNOTATION: Final = f"{GROUP}/placeholder-of"
"""On a placeholder: namespace/name of the policy whose hold it is."""
PLACEHOLDER_FORM_ANNOTATION: Final = f"{GROUP}/placeholder-form"
"""On a placeholder: qos.cluster.placeholders.form_of."""
PLACEHOLDER_NODE_ANNOTATION: Final = f"{GROUP}/placeholder-node"
"""On a placeholder: the node that its affinity names."""
HAND_OVER_GATE: Final = f"{GROUP}/hand-over"
"""A schedulingGate on an owner, until it is given a placeholder's place."""
GANG_GATE: Final = f"{GROUP}/gang"
"""A schedulingGate on a pod of a gang, until the gang has places (manifests/quotas/gangs.yaml)."""
RAISED_PRIORITY_LABEL: Final = f"{GROUP}/raised-priority"
"""On an owner, "true": the API server has raised its priority (manifests/hand-over/raising.yaml)."""
OWN_PRIORITY_ANNOTATION: Final = f"{GROUP}/own-priority"
"""On such an owner: the priority and, behind a space, the PriorityClass that it had before, if any."""

MIGRATION_LABEL: Final = f"{GROUP}/migration"
"""On Reservations, "true": each holds the place of a pod that is moved."""
MIGRATION_ANNOTATION: Final = f"{GROUP}/migration-of"
"""On such a Reservation: rescheduling.records.Migration, as JSON."""
MIGRATION_OUTCOME_ANNOTATION: Final = f"{GROUP}/migration-outcome"
"""And how it ended; without it the migration is under way."""

RAISED_ANNOTATION: Final = f"{GROUP}/raised-from"
"""What the pod had asked for, and its QoS class with that, before its requests were raised to its floor."""

OPT_OUT_LABEL: Final = f"{GROUP}/opt-out"
"""On a namespace: "true": none of its pods gets settings; "allowed": none that says "true" itself."""

SCHEDULE_LABEL: Final = f"{GROUP}/schedule"
"""On a namespace, "true": its new pods go to the second kube-scheduler; on a pod, "false": not this one."""

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
"""Upstream's: the kubelet's mirror of a static pod, which no scheduler places."""
DEFAULT_CONTAINER_ANNOTATION: Final = "kubectl.kubernetes.io/default-container"
"""Upstream's: the container that kubectl logs and execs into, where none is named."""
STATIC_UID_ANNOTATION: Final = "kubernetes.io/config.hash"
"""Upstream's, on such a mirror: the static pod's own uid, which its cgroups are named by."""

# What Koordinator's users have on pods: labels, and annotations that hold JSON.
KOORDINATOR_DOMAIN: Final = "koordinator.sh"
KOORDINATOR_CLASS_LABEL: Final = "koordinator.sh/qosClass"
KOORDINATOR_CORE_SCHED_GROUP_LABEL: Final = "koordinator.sh/core-sched-group-id"
KOORDINATOR_CORE_SCHED_POLICY_LABEL: Final = "koordinator.sh/core-sched-policy"
KOORDINATOR_MEMORY_ANNOTATION: Final = "koordinator.sh/memoryQOS"
KOORDINATOR_CPU_ANNOTATION: Final = "koordinator.sh/cpuQOS"
KOORDINATOR_BURST_ANNOTATION: Final = "koordinator.sh/cpuBurst"
KOORDINATOR_DISK_ANNOTATION: Final = "koordinator.sh/blkioQOS"
KOORDINATOR_NETWORK_ANNOTATION: Final = "koordinator.sh/networkQOS"
KOORDINATOR_OOM_ANNOTATION: Final = "koordinator.sh/oom-score-adj"
"""An integer, for all containers."""
KOORDINATOR_OOM_SPEC_ANNOTATION: Final = "koordinator.sh/oom-score-adj-spec"
"""Container name to integer; wins over the annotation above."""
KOORDINATOR_PRIORITY_CLASS_LABEL: Final = "koordinator.sh/priority-class"
KOORDINATOR_PRIORITY_LABEL: Final = "koordinator.sh/priority"
KOORDINATOR_EVICTION_PREFIX: Final = "koordinator.sh/eviction-"
EVICTION_COST_ANNOTATION: Final = "scheduling.koordinator.sh/eviction-cost"
DELETION_COST_ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"
"""Upstream's: which pods a ReplicaSet ends first."""
KOORDINATOR_EXTENDED_RESOURCES_ANNOTATION: Final = "node.koordinator.sh/extended-resource-spec"
KOORDINATOR_RESOURCE_SPEC_ANNOTATION: Final = "scheduling.koordinator.sh/resource-spec"
KOORDINATOR_SCHEDULING_PREFIX: Final = "scheduling.koordinator.sh/"
RESERVATION_GROUP: Final = "scheduling.koordinator.sh"
RESERVATION_ALLOCATED_ANNOTATION: Final = "scheduling.koordinator.sh/reservation-allocated"
"""On a pod, {"name", "uid"} of the Reservation that it uses; merged by the Binding."""
RESERVATION_AFFINITY_ANNOTATION: Final = "scheduling.koordinator.sh/reservation-affinity"
"""On a pod: it uses a Reservation that this selects, or is not scheduled."""
RESERVATION_IGNORED_LABEL: Final = "scheduling.koordinator.sh/reservation-ignored"
"""On a pod, "true": it uses no Reservation."""
RESERVATION_ORDER_LABEL: Final = "scheduling.koordinator.sh/reservation-order"
"""On a Reservation: lower ones are used first; 0 or none is last."""
RESERVATION_RESTRICTED_ANNOTATION: Final = "scheduling.koordinator.sh/reservation-restricted-options"
RESERVATION_RESIZE_ANNOTATION: Final = "scheduling.koordinator.sh/reservation-resize-allocatable"
RESERVATION_EXACT_ANNOTATION: Final = "scheduling.koordinator.sh/exact-match-reservation"
KOORDINATOR_QUOTA_PREFIX: Final = "quota.scheduling.koordinator.sh/"
# On pods, labels: which quota they are of, and "false": nobody may evict them for another.
QUOTA_NAME_LABEL: Final = "quota.scheduling.koordinator.sh/name"
QUOTA_PREEMPTIBLE_LABEL: Final = "quota.scheduling.koordinator.sh/preemptible"
# On ElasticQuotas, labels ...
QUOTA_PARENT_LABEL: Final = "quota.scheduling.koordinator.sh/parent"
QUOTA_IS_PARENT_LABEL: Final = "quota.scheduling.koordinator.sh/is-parent"
QUOTA_LENDS_LABEL: Final = "quota.scheduling.koordinator.sh/allow-lent-resource"
QUOTA_TREE_LABEL: Final = "quota.scheduling.koordinator.sh/tree-id"
QUOTA_IS_ROOT_LABEL: Final = "quota.scheduling.koordinator.sh/is-root"
"""Its annotation QUOTA_TOTAL_ANNOTATION is what its tree has."""
QUOTA_BESIDE_DEFAULT_LABEL: Final = "quota.scheduling.koordinator.sh/ignore-default-tree"
"""On a root, "true": what its tree has is not taken from the default tree."""
QUOTA_FORCE_LABEL: Final = "quota.scheduling.koordinator.sh/allow-force-update"
"""Sums of min are not checked."""
# ... and annotations, of JSON.
QUOTA_WEIGHT_ANNOTATION: Final = "quota.scheduling.koordinator.sh/shared-weight"
QUOTA_NAMESPACES_ANNOTATION: Final = "quota.scheduling.koordinator.sh/namespaces"
QUOTA_TOTAL_ANNOTATION: Final = "quota.scheduling.koordinator.sh/total-resource"
QUOTA_TURN_ANNOTATION: Final = f"{GROUP}/turn-seconds"
"""Ours: after so many seconds a pod of the quota that waits takes the place of one that has run as long."""
# Quotas that Koordinator's scheduler makes.
ROOT_QUOTA: Final = "koordinator-root-quota"
SYSTEM_QUOTA: Final = "koordinator-system-quota"
DEFAULT_QUOTA: Final = "koordinator-default-quota"
KOORDINATOR_GANG_PREFIX: Final = "gang.scheduling.koordinator.sh/"
# Of a gang: annotations on its pods; all but the first two on its PodGroup as well.
GANG_NAME_ANNOTATION: Final = "gang.scheduling.koordinator.sh/name"
GANG_MIN_ANNOTATION: Final = "gang.scheduling.koordinator.sh/min-available"
GANG_WAITING_ANNOTATION: Final = "gang.scheduling.koordinator.sh/waiting-time"
GANG_GROUPS_ANNOTATION: Final = "gang.scheduling.koordinator.sh/groups"
GANG_MATCH_ANNOTATION: Final = "gang.scheduling.koordinator.sh/match-policy"
POD_GROUP_LABEL: Final = "pod-group.scheduling.sigs.k8s.io"
"""Upstream's, on a pod: the name of its PodGroup."""
# Resources that Koordinator offers from what others leave idle.
BATCH_CPU: Final = "kubernetes.io/batch-cpu"
BATCH_MEMORY: Final = "kubernetes.io/batch-memory"
MID_CPU: Final = "kubernetes.io/mid-cpu"
MID_MEMORY: Final = "kubernetes.io/mid-memory"

# What Katalyst's users have on pods: annotations; enhancements are JSON objects of text values.
KATALYST_DOMAIN: Final = "katalyst.kubewharf.io"
KATALYST_LEVEL: Final = "katalyst.kubewharf.io/qos_level"
"""An annotation; Katalyst's kubelet reads a label of the same key."""
KATALYST_MEMORY_ANNOTATION: Final = "katalyst.kubewharf.io/memory_enhancement"
KATALYST_CPU_ANNOTATION: Final = "katalyst.kubewharf.io/cpu_enhancement"
KATALYST_NETWORK_ANNOTATION: Final = "katalyst.kubewharf.io/network_enhancement"
KATALYST_RESOURCE_PREFIX: Final = "resource.katalyst.kubewharf.io/"
"""reclaimed_millicpu, reclaimed_memory, net_bandwidth ..."""

# What users of others have on pods: Crane, terway-qos, and the CNI plugins that limit bandwidth.
CRANE_DOMAIN: Final = "gocrane.io"
CRANE_CPU_MANAGER_ANNOTATION: Final = "qos.gocrane.io/cpu-manager"
CRANE_RESOURCE_PREFIX: Final = "gocrane.io/"
"""gocrane.io/cpu and gocrane.io/memory, reclaimed."""
TERWAY_CLASS_ANNOTATION: Final = "k8s.aliyun.com/qos-class"
INGRESS_BANDWIDTH_ANNOTATION: Final = "kubernetes.io/ingress-bandwidth"
EGRESS_BANDWIDTH_ANNOTATION: Final = "kubernetes.io/egress-bandwidth"

# Labels and taints of nodes, upstream's.
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
NODE_TAINT_PREFIX: Final = "node.kubernetes.io/"
"""Taints that the node lifecycle sets: not-ready, unreachable, disk-pressure ..."""

# Labels on namespaces.
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""Upstream's: the API server keeps the namespace's name there."""

# Labels on what a scenario creates in a lab cluster.
SCENARIO_LABEL: Final = f"{GROUP}/scenario"
"""Which run of which scenario an object belongs to."""
SCENARIO_WORKLOAD_LABEL: Final = f"{GROUP}/scenario-workload"
"""On pods: the workload, as the scenario names it."""

# Labels on pods, by the controllers of apps/v1: which pod template they were made from.
TEMPLATE_LABEL: Final = "pod-template-hash"
REVISION_LABEL: Final = "controller-revision-hash"

# Annotations by which autoscalers leave a node alone, and how we tell ours from a person's (trap T22).
SCALE_DOWN_DISABLED_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
"""cluster-autoscaler's own key, on nodes."""
DO_NOT_DISRUPT_ANNOTATION: Final = "karpenter.sh/do-not-disrupt"
"""Karpenter's own key, on nodes: no consolidation, no drift; a node's expiry goes on."""
KARPENTER_NODE_LABEL: Final = "karpenter.sh/nodepool"
"""Karpenter's, on the nodes that it made."""
HELD_ANNOTATION: Final = f"{GROUP}/held"
"""On nodes where we set one of the two above, which it names (below): we take back only our own."""
HELD_FROM: Final = {"true": SCALE_DOWN_DISABLED_ANNOTATION, "karpenter": DO_NOT_DISRUPT_ANNOTATION}
"""What its value says was set."""

# Label on CapacityBuffers and PodTemplates.
BUFFER_LABEL: Final = f"{GROUP}/capacity-buffer"
"""On those by which the extender asks autoscalers for the nodes of a policy, which owns them."""

# Labels on nodes: what people say of a node's link, over the options of its agent.
LINK_INTERFACE_LABEL: Final = f"{GROUP}/link-interface"
"""The interface through which pods leave the node, such as eth0."""
LINK_EGRESS_LABEL: Final = f"{GROUP}/link-egress"
LINK_INGRESS_LABEL: Final = f"{GROUP}/link-ingress"
"""How fast it is: bits a second, such as 10G, before headroom is taken off."""

# Conditions of a MinimalReservationPolicy.
READY: Final = "Ready"
FEASIBLE: Final = "Feasible"
HELD: Final = "Held"
GUARDED: Final = "Guarded"
SLOTS_USABLE: Final = "SlotsUsable"
OVERLAPPING: Final = "Overlapping"
APPLIED: Final = "Applied"
"""A condition of a policy and of a NodeQoS."""
VERIFIED: Final = "Verified"
PROVISIONED: Final = "Provisioned"
"""Where autoscalers are asked for nodes: what they answer."""
EXPIRED: Final = "Expired"
"""Of policies that have an end: ttlSeconds or expirationTime."""

# Of a ReservationBudget:
EXCEEDED: Final = "Exceeded"

# Of a NodeQoS: READY, APPLIED, and:
UNDISTURBED: Final = "Undisturbed"
ALLOCATABLE_KEPT: Final = "AllocatableKept"
NETWORK_KEPT: Final = "NetworkKept"
NETWORK_CONSISTENT: Final = "NetworkConsistent"

# Resource names with a meaning of their own.
CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
HUGEPAGES_PREFIX: Final = "hugepages-"

# Extended resources that the agent publishes in node.status: what a link can promise, in whole bits a second.
EGRESS_BANDWIDTH: Final = f"{GROUP}/egress-bandwidth"
"""What pods together may send."""
INGRESS_BANDWIDTH: Final = f"{GROUP}/ingress-bandwidth"
"""What pods together may receive."""
BANDWIDTHS: Final = {"egress": EGRESS_BANDWIDTH, "ingress": INGRESS_BANDWIDTH}
"""By the name of the direction in a policy's spec."""

HIGHEST_USER_PRIORITY: Final = 1_000_000_000
"""No PriorityClass but Kubernetes' own may have a higher value."""
SYSTEM_CRITICAL_PRIORITY: Final = 2_000_000_000
"""Pods of this priority and above always pass (system-cluster-critical, system-node-critical)."""
