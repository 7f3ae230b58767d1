"""What can happen in a history: one function a kind of step.

What does not apply any more does nothing, so that a history stays playable when steps are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adapters.api import (
    BUDGETS,
    DAEMON_SETS,
    NAMESPACES,
    NODES,
    PODS,
    POLICIES,
    PRIORITY_CLASSES,
    RESERVATIONS,
    NotFound,
    Resource,
)
from simulation import objects
from simulation.api import Client, Fault
from simulation.books import PLACEHOLDERS
from simulation.cluster import OTHER_SCHEDULER, App
from simulation.play import Play
from simulation.store import EPOCH, Body, timestamp

RESOURCES: dict[str, Resource] = {
    one.plural: one
    for one in (NODES, PODS, POLICIES, PRIORITY_CLASSES, DAEMON_SETS, BUDGETS, NAMESPACES, RESERVATIONS)
}

_COUNTED_OUT = 2.0
"""Seconds at most until a node that is not ready for long is seen to be so."""


def node(play: Play, name: str, cpu: int, memory: int, pods: int, link: int = 0) -> None:
    """A node comes, or comes back with another size."""
    known = play.store.find(NODES, "", name)
    body = objects.node(name, cpu, memory, pods, link)
    if known is not None:
        body = {**known, "status": {**known["status"], "allocatable": body["status"]["allocatable"]}}
    play.store.write(NODES, body)


def node_gone(play: Play, name: str) -> None:
    """A node is deleted."""
    if play.store.find(NODES, "", name) is not None:
        play.store.remove(NODES, "", name)


def node_ready(play: Play, name: str, ready: bool) -> None:
    """A node becomes Ready or not, tainted accordingly."""
    status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    _change_node(play, name, {} if ready else {"taints": [objects.NOT_READY]}, status)
    if not ready:  # its pods are counted out later, so that others are owed their slots
        play.loop.call_later(play.world.not_ready + _COUNTED_OUT, play.watcher.counted_out, name)


def cordon(play: Play, name: str, cordoned: bool) -> None:
    """A node takes new pods or not."""
    _change_node(play, name, {"unschedulable": cordoned}, {})


def _change_node(play: Play, name: str, spec: Body, status: Body) -> None:
    body = play.store.find(NODES, "", name)
    if body is not None:
        kept = {k: v for k, v in body["spec"].items() if k != "taints" or not status}
        play.store.write(NODES, {**body, "spec": {**kept, **spec}, "status": {**body["status"], **status}})


def pod(play: Play, name: str, cpu: int, memory: int, priority: int, link: int = 0) -> None:
    """An ordinary pod."""
    if play.store.find(PODS, "default", name) is None:
        play.store.create(PODS, objects.pod(name, cpu, memory, priority, {"plain": name}, link=link))


def flood(play: Play, name: str, count: int, cpu: int, memory: int, priority: int) -> None:
    """Many ordinary pods at once."""
    for number in range(count):
        pod(play, f"{name}-{number}", cpu, memory, priority)


def user(play: Play, name: str, cpu: int, memory: int, priority: int, how: Body) -> None:
    """A pod that may use Reservations."""
    if play.store.find(PODS, "default", name) is None:
        play.store.create(PODS, objects.user(name, cpu, memory, priority, how))


def reservation(play: Play, name: str, spec: Body) -> None:
    """A Reservation comes; `endsIn` of its spec, in seconds from now, becomes `expires`."""
    if play.store.find(RESERVATIONS, "", name) is not None:
        return
    if "endsIn" in spec:
        ends = timestamp(EPOCH + play.loop.time() + spec["endsIn"])
        spec = {name: value for name, value in spec.items() if name != "endsIn"} | {"expires": ends}
    play.store.create(RESERVATIONS, objects.reservation(name, spec))


def reservation_gone(play: Play, name: str) -> None:
    """A Reservation is deleted."""
    if play.store.find(RESERVATIONS, "", name) is not None:
        play.store.remove(RESERVATIONS, "", name)


def reservation_closed(play: Play, name: str, closed: bool) -> None:
    """Nobody new may use a Reservation, or pods may again."""
    body = play.store.find(RESERVATIONS, "", name)
    if body is not None:
        play.store.write(RESERVATIONS, {**body, "spec": {**body["spec"], "unschedulable": closed}})


def other(play: Play, name: str, cpu: int, memory: int, priority: int) -> None:
    """A pod for the second scheduler, which asks no extender."""
    if play.store.find(PODS, "default", name) is None:
        body = objects.pod(name, cpu, memory, priority, {"plain": name}, scheduler=OTHER_SCHEDULER)
        play.store.create(PODS, body)


def static(play: Play, name: str, cpu: int, memory: int, node_name: str) -> None:
    """A pod that is created on its node."""
    if play.store.find(PODS, "default", name) is None and play.store.find(NODES, "", node_name):
        play.store.create(PODS, objects.pod(name, cpu, memory, 0, {"plain": name}, nodeName=node_name))


def delete(play: Play, name: str, grace: float) -> None:
    """A pod is deleted."""
    try:
        play.cluster.delete(name, grace=grace)
    except NotFound:
        return


def finish(play: Play, name: str) -> None:
    """A pod on a node succeeds."""
    play.cluster.finish(name)


def a_little_room(play: Play) -> None:
    """On every node an ordinary pod ends, and none waits any more: there is room everywhere, but not much."""
    ended = {""}
    for body in list(play.store.bodies(PODS)):
        node = body["spec"].get("nodeName", "")
        if "plain" in body["metadata"]["labels"] and (not node or node not in ended):
            ended.add(node)
            play.cluster.delete(body["metadata"]["name"], grace=0.0)


def placeholder_gone(play: Play, which: int) -> None:
    """Somebody deletes a placeholder."""
    there = [
        body["metadata"] for body in play.store.bodies(PODS) if body["metadata"]["namespace"] == PLACEHOLDERS
    ]
    if there:
        play.store.remove(PODS, PLACEHOLDERS, there[which % len(there)]["name"])


def app(
    play: Play, name: str, replicas: int, cpu: int, memory: int, priority: int, deployed: bool = False
) -> None:
    """A workload, new or changed."""
    play.cluster.set_app(App(name, replicas, cpu, memory, priority, deployed))


def crash(play: Play, name: str, which: int, grace: float) -> None:
    """One of a workload's pods goes; it is replaced."""
    pods = play.cluster.pods_of(name)
    if pods:
        play.cluster.delete(pods[which % len(pods)]["metadata"]["name"], grace=grace)


def resize(play: Play, name: str, cpu: int) -> None:
    """A pod's request changes in place; `name` is a pod's, or a workload's: then its oldest pod's."""
    pods = play.cluster.pods_of(name)
    body = pods[0] if pods else play.store.find(PODS, "default", name)
    if body is not None:
        play.store.write(PODS, objects.resized(body, cpu))


def policy(play: Play, name: str, spec: Body) -> None:
    """A policy, new or changed; `endsIn` of its spec, in seconds from now, becomes its expirationTime."""
    if "endsIn" in spec:
        ends = timestamp(EPOCH + play.loop.time() + spec["endsIn"])
        spec = {name: value for name, value in spec.items() if name != "endsIn"} | {"expirationTime": ends}
    if play.world.skew and "scaleTargetRef" not in spec["slots"]:
        constraints = [objects.spread(name, play.world.skew)]
        spec = {**spec, "placement": {**spec.get("placement", {}), "topologySpreadConstraints": constraints}}
    body = objects.policy(name, spec)
    known = play.store.find(POLICIES, "default", name)
    play.store.write(POLICIES, {**known, "spec": body["spec"]} if known else body)


def policy_gone(play: Play, name: str) -> None:
    """A policy is deleted."""
    if play.store.find(POLICIES, "default", name) is not None:
        play.store.remove(POLICIES, "default", name)


def budget(play: Play, name: str, spec: Body) -> None:
    """A budget, new or changed."""
    play.store.write(BUDGETS, objects.budget(name, spec))


def budget_gone(play: Play, name: str) -> None:
    """A budget is deleted."""
    if play.store.find(BUDGETS, "", name) is not None:
        play.store.remove(BUDGETS, "", name)


def tier(play: Play, name: str) -> None:
    """The namespace of all policies gets another label."""
    play.store.write(NAMESPACES, objects.namespace(name))


def priority(play: Play, name: str, value: int) -> None:
    """A PriorityClass, new or changed."""
    play.store.write(PRIORITY_CLASSES, objects.priority_class(name, value))


def priority_gone(play: Play, name: str) -> None:
    """A PriorityClass is deleted."""
    if play.store.find(PRIORITY_CLASSES, "", name) is not None:
        play.store.remove(PRIORITY_CLASSES, "", name)


def daemon(play: Play, name: str, cpu: int, memory: int) -> None:
    """A DaemonSet, new or changed; its pods follow."""
    play.store.write(DAEMON_SETS, objects.daemon_set(name, cpu, memory))
    play.loop.call_later(0.2, play.cluster.reconcile_daemons)


def daemon_gone(play: Play, name: str) -> None:
    """A DaemonSet is deleted; its pods stay."""
    if play.store.find(DAEMON_SETS, "default", name) is not None:
        play.store.remove(DAEMON_SETS, "default", name)


def fault(play: Play, who: str, verb: str, kind: str, seconds: float) -> None:
    """The next request of that verb meets a fault."""
    _client(play, who).faults.append(Fault(verb, kind, seconds))


def lag(play: Play, who: str, plural: str, seconds: float) -> None:
    """A watch shows everything so much later from now on."""
    _client(play, who).stream(RESOURCES[plural]).lag = seconds


def stall(play: Play, who: str, plural: str, seconds: float) -> None:
    """A watch shows nothing for a while."""
    _client(play, who).stream(RESOURCES[plural]).stalled_until = play.loop.time() + seconds


def repeat(play: Play, who: str, plural: str) -> None:
    """A watch shows its next event twice."""
    _client(play, who).stream(RESOURCES[plural]).repeat = True


def cut(play: Play, who: str, plural: str) -> None:
    """A watch is cut and resumes."""
    _client(play, who).cut(RESOURCES[plural])


def expire(play: Play, who: str, plural: str) -> None:
    """A watch is too old: 410 Gone."""
    _client(play, who).expire(RESOURCES[plural])


def slow(play: Play, who: str, seconds: float) -> None:
    """Every request takes up to so long from now on."""
    _client(play, who).latency = seconds


def restart_extender(play: Play, away: float) -> None:
    """The extender is killed; another one starts after a while."""
    play.restart_extender(away)


def restart_scheduler(play: Play, away: float) -> None:
    """kube-scheduler is killed; another one starts after a while."""
    play.restart_scheduler(away)


def standby(play: Play, seconds: float) -> None:
    """The extender leads no more for a while: nobody writes a status."""
    play.extender.leads_from = play.loop.time() + seconds


def hang(play: Play, seconds: float) -> None:
    """The extender answers nothing for a while, and then what nobody waits for any more."""
    play.extender.hung_until = play.loop.time() + seconds
    play.watcher.blind(seconds)


def jump(play: Play, seconds: float) -> None:
    """The extender's wall clock jumps."""
    play.extender.jump += seconds


def nothing(_play: Play) -> None:
    """Time passes."""


def _client(play: Play, who: str) -> Client:
    return play.extender_api if who == "extender" else play.scheduler_api


ACTIONS: dict[str, Callable[..., Any]] = {
    name.replace("_", "-"): function
    for name, function in list(globals().items())
    if callable(function) and getattr(function, "__module__", "") == __name__ and not name.startswith("_")
}
