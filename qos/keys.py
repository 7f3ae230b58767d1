"""Every name that crosses the edge of this project: API group, labels, annotations, conditions, reasons.

A key is written here once; no other file spells one.
"""

from typing import Final

GROUP: Final = "j10ce.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

# Annotations on pods.
POLICY_ANNOTATION: Final = f"{GROUP}/policy"
"""namespace/name of the policy whose slot the pod fills; merged by the Binding: as durable as nodeName."""
BOUND_BY_ANNOTATION: Final = f"{GROUP}/bound-by"
"""Identity of the extender that bound the pod; a pod without it came by another way."""
WAKE_ANNOTATION: Final = f"{GROUP}/wake"
"""Changed on a pending pod to make kube-scheduler try it again (trap T21)."""

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
"""Upstream's: the kubelet's mirror of a static pod, which no scheduler places."""

# Labels and taints of nodes, upstream's.
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
NODE_TAINT_PREFIX: Final = "node.kubernetes.io/"
"""Taints that the node lifecycle sets: not-ready, unreachable, disk-pressure ..."""

# Labels on what a scenario creates in a lab cluster.
SCENARIO_LABEL: Final = f"{GROUP}/scenario"
"""Which run of which scenario an object belongs to."""
SCENARIO_WORKLOAD_LABEL: Final = f"{GROUP}/scenario-workload"
"""On pods: the workload, as the scenario names it."""

# Annotation on nodes.
SCALE_DOWN_DISABLED_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
"""cluster-autoscaler's own key: keeps it from removing a node that only holds stand on (trap T22)."""
HELD_ANNOTATION: Final = f"{GROUP}/held"
"""On nodes where we set the annotation above, so that we take back only our own."""

# Conditions of a MinimalReservationPolicy.
READY: Final = "Ready"
FEASIBLE: Final = "Feasible"
HELD: Final = "Held"
GUARDED: Final = "Guarded"
SLOTS_USABLE: Final = "SlotsUsable"
OVERLAPPING: Final = "Overlapping"

# Resource names with a meaning of their own.
CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
HUGEPAGES_PREFIX: Final = "hugepages-"

SYSTEM_CRITICAL_PRIORITY: Final = 2_000_000_000
"""Pods of this priority and above always pass (system-cluster-critical, system-node-critical)."""
