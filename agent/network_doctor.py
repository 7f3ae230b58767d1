"""What the doctor says of the node's network. Pure.

Of an agent that shapes it counts what it says; where none does, what was tried just now.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from agent.findings import Finding, Grade
from agent.network.ladder import Means
from agent.network.seen import SeenNetwork
from agent.network.standing import Standing, floor_obstacle, limit_obstacle, network_state
from agent.network.unkept import FOREIGN
from qos.cluster.network_state import FROM_LINK, QUEUES, TO_LINK, TO_PODS, LinkState, Technique
from qos.quantity import render

FLOORS: Final = "network floors"
LIMITS: Final = "network limits"
SWITCH_ON: Final = "to have them: j10ce install --agent --network-floors"
_SUBJECTS: Final = {
    TO_LINK: "network: pods send",
    FROM_LINK: "network: link receives",
    TO_PODS: "network: pods receive",
    QUEUES: "network: queues",
}
_DO: Final = {
    "tcx:": "Linux 6.6 and newer have TCX",
    "fq_codel:": "load the module sch_fq_codel, where this kernel has it",
    "htb:": "load the module sch_htb, where this kernel has it",
    "tbf:": "load the module sch_tbf, where this kernel has it",
    "bpf:": "give CAP_BPF, on a kernel with CONFIG_BPF_SYSCALL",
    "no network namespace": "run it as root on the node",
}
"""What to do about a reason that names one of these; the first one counts."""
_OF_OBSTACLE: Final = {
    FOREIGN: "leave network floors off on this node, or have its owner take that qdisc away",
}


@dataclass(frozen=True, slots=True)
class NetworkFacts:
    """shaping: whether an agent shapes now. said: what one said last, None: nothing. tried: as it would be
    here. left: what an agent that has ended left in the kernel.
    """

    shaping: bool
    said: SeenNetwork | None
    tried: Standing
    left: tuple[str, ...] = ()


def network_findings(facts: NetworkFacts) -> Iterator[Finding]:
    """The most important first."""
    if facts.shaping and facts.said is None:
        text = "an agent is just beginning to shape this node's network"
        yield Finding(FLOORS, Grade.LIMITED, text, "ask again in some seconds")
        return
    if facts.shaping and facts.said is not None:
        yield from _of_agent(facts.said)
        return
    yield from _of_trial(facts.tried)
    if facts.left:
        text = f"no agent shapes now; one that has ended left here: {', '.join(facts.left)}"
        yield Finding(
            "network: left", Grade.LIMITED, text, "start the agent again, or: j10ce network uninstall"
        )


def _of_agent(said: SeenNetwork) -> Iterator[Finding]:
    for subject, obstacle in ((FLOORS, said.floors), (LIMITS, said.limits)):
        if obstacle is None:
            yield Finding(subject, Grade.WORKS, "an agent shapes this node's network: they can be kept")
        else:
            yield Finding(subject, Grade.BROKEN, str(obstacle), _OF_OBSTACLE.get(obstacle.reason, ""))
    yield _link(said.link, said.link_problem)
    yield from _ladder(said.techniques)
    for one in said.contradictions:
        yield Finding("network: bands", Grade.LIMITED, one, "mend the minima and maxima that contradict")


def _of_trial(tried: Standing) -> Iterator[Finding]:
    state = network_state(tried, None)
    for subject, obstacle in ((FLOORS, floor_obstacle(tried)), (LIMITS, limit_obstacle(tried))):
        if obstacle is None:
            yield Finding(subject, Grade.WORKS, "off; they could be kept here", SWITCH_ON)
        else:
            text = f"off, and could not be kept: {obstacle}"
            yield Finding(subject, Grade.LIMITED, text, _OF_OBSTACLE.get(obstacle.reason, ""))
    problem = tried.link_problem
    yield _link(state.link, f"{problem} (what labels of the Node say is not asked here)" if problem else "")
    yield from _ladder(state.techniques)


def _link(link: LinkState | None, problem: str) -> Finding:
    if link is None or problem:
        return Finding("network: link", Grade.LIMITED, problem)
    ways = ("sends", link.egress, link.egress_source), ("receives", link.ingress, link.ingress_source)
    speeds = [f"{word} {render('', rate)} bits/s ({source})" for word, rate, source in ways if rate]
    return Finding("network: link", Grade.WORKS, f"{link.interface} {', '.join(speeds)}")


def _ladder(techniques: tuple[Technique, ...]) -> Iterator[Finding]:
    """What is used for each kind of traffic; what the link receives is shaped where it is asked for."""
    for one in techniques:
        if one.traffic == FROM_LINK and one.technique == Means.NONE.value:
            continue
        text = f"{one.technique} ({one.message})" if one.message else one.technique
        do = next((what for word, what in _DO.items() if word in one.message), "")
        grade = Grade.LIMITED if one.message else Grade.WORKS
        yield Finding(_SUBJECTS[one.traffic], grade, text, do)
