"""What one pod gets: which policy and profile it has, and so which class, promises and floor. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from qos import keys
from qos.classes import CLASSES
from qos.cluster.objects import Resources
from qos.cluster.policy import Policy, Profile
from qos.cluster.precedence import PriorityClasses, precedence, priority_of
from qos.cluster.selectors import matches
from qos.pods.containers import NodePod, request
from qos.pods.expectation import ANNOTATIONS, Expectation, expectation, states_class

OPTED_OUT: Final = "true"
MAY_OPT_OUT: Final = "allowed"
"""Values of keys.OPT_OUT_LABEL; the second one on namespaces alone."""
EXEMPT_NAMESPACES: Final = ("kube-system", "j10ce-system")
"""Namespaces whose pods get no class by default: the node's own, and our agent's."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What an administrator lets pods have that no policy and no profile gives them; nothing unless asked.

    `class_defaults`: what has no policy and states no class gets the class that follows from its QoS class.
    `author_oom_scores`: a pod's annotations may lower its oom_score_adj below what kubelet computed.
    """

    class_defaults: bool = False
    author_oom_scores: bool = False


NOTHING_CHOSEN: Final = Choices()


@dataclass(frozen=True, slots=True)
class Decided:
    """What one pod gets. `others`: policies that select it, too, and do not win; `floor`: the policy's.

    `bound`: what of the floor counts at most, by resource: what the pod requests, because nobody but it has
    been charged for it; a resource that is not named has no bound. `exempt`: it gets nothing, because
    nobody asks for anything (asks_nothing), or `opted_out`. `slotless`: it fills no slot of its policy, so it
    has no floor. `problem`: what is wrong with its policy, ""
    nothing. `choices`: the administrator's.
    """

    pod: NodePod
    expected: Expectation
    policy: Policy | None = None
    others: tuple[Policy, ...] = ()
    profile: Profile | None = None
    floor: Resources | None = None
    problem: str = ""
    exempt: bool = False
    bound: Resources = field(default_factory=dict)
    choices: Choices = NOTHING_CHOSEN
    opted_out: bool = False
    slotless: bool = False

    @property
    def kept(self) -> Resources:
        """The floor that is planned for: none in a class that has no floors, and no more than its bound."""
        if not CLASSES[self.expected.class_name].has_floor:
            return {}
        floor = self.floor or {}
        return {name: min(amount, self.bound.get(name, amount)) for name, amount in floor.items()}


def decide(
    pod: NodePod,
    annotated: str | None,
    policies: Mapping[str, Policy],
    profiles: Mapping[str, Profile],
    classes: PriorityClasses,
    *,
    requests_known: bool = True,
    choices: Choices = NOTHING_CHOSEN,
) -> Decided:
    """What the pod gets of these rules.

    requests_known: False for one of which a part only is known: its floor is not bounded by that.
    annotated: the policy whose slot it fills (namespace/name), which wins where it still selects the pod;
    "": it fills none, and has no floor; None: nobody has counted, and a policy that selects it is enough.
    """
    found = selecting(pod, policies.values(), profiles, classes)
    found.sort(key=lambda policy: policy.key != annotated)
    return decided(
        pod,
        found,
        profiles,
        requests_known=requests_known,
        choices=choices,
        slotless=annotated == "" and bool(found),
    )


def selecting(
    pod: NodePod,
    policies: Iterable[Policy],
    profiles: Mapping[str, Profile],
    classes: PriorityClasses,
) -> list[Policy]:
    """The policies that select a pod, in their precedence: the first wins."""
    found = [
        policy
        for policy in policies
        if (policy.namespace or "default") == pod.namespace and matches(policy.selector, pod.labels)
    ]
    return sorted(
        found, key=lambda one: precedence(priority_of(one, profiles, classes), one.created, one.name)
    )


def decided(
    pod: NodePod,
    found: list[Policy],
    profiles: Mapping[str, Profile],
    given: Profile | None = None,
    *,
    requests_known: bool = True,
    choices: Choices = NOTHING_CHOSEN,
    slotless: bool = False,
) -> Decided:
    """What the pod gets. found: the policies that select it, the winner first. requests_known: see decide().

    given: a profile for pods whose policy names none.
    """
    policy = found[0] if found else None
    named = policy.profile_name if policy else ""
    problem = f"there is no QoSProfile {named}" if named and named not in profiles else ""
    profile = profiles.get(named) if named else given
    floor = policy.floor if policy and not slotless else None
    return Decided(
        pod,
        expectation(pod, profile, floor=bool(floor)),
        policy,
        tuple(found[1:]),
        profile,
        floor,
        problem,
        (policy is None or slotless) and profile is None and asks_nothing(pod, choices),
        dict(zip((keys.CPU, keys.MEMORY), request(pod), strict=True)) if requests_known else {},
        choices,
        slotless=slotless,
    )


def asks_nothing(pod: NodePod, choices: Choices) -> bool:
    """Whether a pod without policy and profile is left alone: nothing on it asks for anything, or it is one
    of the node's own.
    """
    silent = not states_class(pod) and ANNOTATIONS.isdisjoint(pod.annotations)
    return is_exempt(pod) or (silent and not choices.class_defaults)


def is_opted_out(pod: NodePod, opt_outs: Mapping[str, str]) -> bool:
    """Whether it gets no settings because its namespace says so, or lets it say so.

    opt_outs: namespace -> what its label says. A pod's own label counts for nothing elsewhere: whoever may
    write pods could rid them of what bounds them.
    """
    said = opt_outs.get(pod.namespace, "")
    return said == OPTED_OUT or (said == MAY_OPT_OUT and pod.labels.get(keys.OPT_OUT_LABEL) == OPTED_OUT)


def opted_out(pod: NodePod) -> Decided:
    """Nothing: others' plans take it for what kubelet made of it."""
    return Decided(pod, expectation(pod), exempt=True, opted_out=True)


def is_exempt(pod: NodePod) -> bool:
    """Whether it is one of the node's own, which get no class by default: none of theirs becomes an idle one.

    By its namespace, its priority, or because it is static (kubelet gives those a uid without dashes); not
    where it states a class itself.
    """
    critical = (pod.priority or 0) >= keys.SYSTEM_CRITICAL_PRIORITY
    static = len(pod.uid) == 32 and "-" not in pod.uid
    return (pod.namespace in EXEMPT_NAMESPACES or critical or static) and not states_class(pod)
