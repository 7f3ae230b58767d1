"""The bind verb's act: claim, make the Binding, settle its outcome whatever happens (traps T01, T03, T04).

Ledger.bind is the commit point; nothing is awaited between its check and its claim. After it, one task per
pod makes the API call and settles what came of it, even if kube-scheduler went away or our own deadline
passed.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from adapters.api import PODS, APIError, ClusterAPI, Conflict, Ended, NotFound, NotTaken, Unreachable
from adapters.kubernetes import decode
from adapters.pace import Turns
from extender.metrics import Metrics
from extender.wire import BindingArgs
from ledger.decisions import BindDecision
from ledger.demands import NO_SLOT
from ledger.ledger import Ledger
from qos import keys
from qos.cluster.objects import Pod

log = logging.getLogger(__name__)

UNKNOWN_SECONDS: Final = 65.0
"""Seconds for which a Binding without an answer can still land: the API server ends requests after 60 s."""
READS_A_SECOND: Final = 50.0
"""Of pods whose Binding brought no answer. An API server that answers nobody leaves thousands in doubt: it is
not to be kept down by those who ask what it did.
"""
READS_AT_ONCE: Final = 8
_FIRST_WAIT: Final = 0.05
_LONGEST_WAIT: Final = 5.0


class Binder:
    """Makes Bindings and settles them; `bind` never raises and answers within the deadline.

    `apart`: whether a pod is in no account, a placeholder: it is bound, and nothing claimed.
    """

    def __init__(
        self,
        api: ClusterAPI,
        ledger: Ledger,
        metrics: Metrics,
        *,
        identity: str,
        deadline: float,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        apart: Callable[[Pod], bool] = lambda _pod: False,
    ) -> None:
        self._api = api
        self._ledger = ledger
        self._metrics = metrics
        self._identity = identity
        self._deadline = deadline
        self._clock = clock
        self._sleep = sleep
        self._apart = apart
        self._attempts: dict[str, tuple[str, asyncio.Task[str]]] = {}
        self._doubtful: dict[str, asyncio.Task[None]] = {}
        self._reads = Turns(READS_A_SECOND, READS_AT_ONCE, clock, sleep)

    async def bind(self, args: BindingArgs) -> str:
        """Empty when the pod is bound to that node; else the Error for kube-scheduler."""
        node, task = self._attempts.get(args.pod_uid) or self._start(args)
        if node != args.node:
            return f"an earlier Binding of {args.pod_namespace}/{args.pod_name} to node {node} is under way"
        # asyncio.wait never cancels the task: it goes on after the deadline and after a client that left.
        await asyncio.wait({task}, timeout=self._deadline)
        if not task.done():
            self._metrics.bind_outcome("late")
            return f"the Binding of {args.pod_namespace}/{args.pod_name} takes longer than the deadline"
        return task.result()

    def _start(self, args: BindingArgs) -> tuple[str, asyncio.Task[str]]:
        task = asyncio.create_task(self._attempt(args), name=f"bind {args.pod_uid}")
        task.add_done_callback(lambda _: self._attempts.pop(args.pod_uid, None))
        self._attempts[args.pod_uid] = args.node, task
        return args.node, task

    async def drain(self) -> None:
        """Wait for the attempts under way; what is in doubt is left to the watch."""
        if self._attempts:
            await asyncio.wait({task for _, task in self._attempts.values()})
        for task in list(self._doubtful.values()):
            task.cancel()

    def settles(self, uid: str) -> bool:
        """Whether a Binding of the pod is under way or in doubt: what became of it is found out here."""
        return uid in self._attempts or uid in self._doubtful

    @property
    def unsettled(self) -> int:
        """Bindings whose outcome is not known."""
        return len(self._doubtful)

    async def _attempt(self, args: BindingArgs) -> str:
        try:
            return await self._decide_and_bind(args)
        except Exception as error:
            # Whether the Binding happened is not known here: the claim stays until a read settles it.
            log.exception("bind failed pod=%s/%s", args.pod_namespace, args.pod_name)
            self._metrics.bind_outcome("crashed")
            return f"{type(error).__name__}: {error}"

    async def _decide_and_bind(self, args: BindingArgs) -> str:
        pod = self._ledger.known(args.pod_uid) or await self._look_up(args)
        if isinstance(pod, str):
            self._metrics.bind_outcome("gone")
            return pod
        if self._apart(pod):
            return await self._make_binding(
                pod, args.node, BindDecision(), in_doubt=self._forget_doubt(pod.uid)
            )
        decision = self._ledger.bind(pod, args.node, self._clock())
        if decision.awaited:
            gone = await self._read_gone(decision.awaited)
            decision = self._ledger.bind(pod, args.node, self._clock(), gone)
        if decision.refusal:
            self._metrics.bind_outcome("refused")
            return decision.refusal
        in_doubt = self._forget_doubt(pod.uid)
        return await self._make_binding(pod, args.node, decision, in_doubt=in_doubt)

    async def _look_up(self, args: BindingArgs) -> Pod | str:
        """A pod that neither the watch nor filter has shown (trap T06)."""
        name = f"{args.pod_namespace}/{args.pod_name}"
        try:
            pod = decode.pod(await self._api.get(PODS, args.pod_namespace, args.pod_name))
        except NotFound:
            self._ledger.release(args.pod_uid)
            return f"pod {name} does not exist"
        except (APIError, Unreachable) as error:
            return f"pod {name} is not known here and cannot be read: {error}"
        if pod.uid != args.pod_uid:
            self._ledger.release(args.pod_uid)
            return f"pod {name} has another UID"
        return pod

    async def _read_gone(self, victims: Sequence[Pod]) -> frozenset[str]:
        """UIDs of those that the API server has no more, or that ended; one that cannot be read is not."""
        gone = set()
        for victim in victims:
            try:
                seen = decode.pod(await self._api.get(PODS, victim.namespace, victim.name))
            except NotFound:
                gone.add(victim.uid)
            except (APIError, Unreachable) as error:
                log.info("a victim cannot be read pod=%s error=%s", victim.key, error)
            else:
                if seen.uid != victim.uid or seen.terminal:
                    gone.add(victim.uid)
        return frozenset(gone)

    async def _make_binding(self, pod: Pod, node: str, decision: BindDecision, *, in_doubt: bool) -> str:
        annotations = {keys.BOUND_BY_ANNOTATION: self._identity}
        if decision.policy:
            annotations[keys.POLICY_ANNOTATION] = decision.policy if decision.slot else NO_SLOT
        if (used := decision.reservation) is not None:
            said = {"name": used.name, "uid": used.uid}
            annotations[keys.RESERVATION_ALLOCATED_ANNOTATION] = json.dumps(said, separators=(",", ":"))
        try:
            await self._api.bind(pod.namespace, pod.name, pod.uid, node, annotations)
        except Conflict as error:
            return await self._settle_conflict(pod, node, error, in_doubt=in_doubt)
        except Ended as error:
            return await self._settle_ended(pod, node, error, in_doubt=in_doubt)
        except (APIError, NotTaken) as error:
            # Any other answer says that nothing was written: by this attempt.
            if in_doubt:
                return await self._settle_unknown(pod, node, error)
            return self._rolled_back(pod, str(error))
        except Unreachable as error:
            return await self._settle_unknown(pod, node, error)
        self._ledger.bound(pod.uid, node)
        self._metrics.bind_outcome("bound")
        return ""

    def _rolled_back(self, pod: Pod, why: str) -> str:
        self._ledger.release(pod.uid)
        self._metrics.bind_outcome("failed")
        return f"pod {pod.key} was not bound: {why}"

    async def _settle_conflict(self, pod: Pod, node: str, error: Conflict, *, in_doubt: bool) -> str:
        """409: someone bound it, or the UID is another's. Only a read can say which; where the pod is unbound
        all the same, an earlier Binding may still arrive.
        """
        try:
            settled = await self._read_outcome(pod, node)
        except (APIError, Unreachable) as unread:
            return self._doubt(pod, node, f"{error}; and the pod cannot be read: {unread}")
        if settled is not None:
            return settled
        return self._doubt(pod, node, str(error)) if in_doubt else self._rolled_back(pod, str(error))

    async def _settle_ended(self, pod: Pod, node: str, error: Ended, *, in_doubt: bool) -> str:
        """The server's own error: what it sent to its store can still land there while the pod is unchanged.

        So the pod is changed: by what comes back it is bound, or this Binding never will be. An earlier one,
        whose request may still be at work, would only try again.
        """
        if in_doubt:
            return await self._settle_unknown(pod, node, error)
        mark = {keys.WAKE_ANNOTATION: f"{self._identity} {self._clock():.6f}"}
        body = {"metadata": {"uid": pod.uid, "annotations": mark}}
        try:
            seen = decode.pod(await self._api.patch(PODS, pod.namespace, pod.name, body))
        except (APIError, Unreachable):
            return await self._settle_unknown(pod, node, error)
        settled = self._outcome(pod, node, seen)
        return self._rolled_back(pod, str(error)) if settled is None else settled

    async def _settle_unknown(self, pod: Pod, node: str, error: APIError | Unreachable) -> str:
        if not self._reads.free:  # another attempt, which settles this one, must not wait for its turn
            return self._doubt(pod, node, str(error))
        try:
            async with self._reads.turn():
                settled = await self._read_back(pod, node)
        except (APIError, Unreachable) as unread:
            return self._doubt(pod, node, f"{error}; and the pod cannot be read: {unread}")
        # Not bound yet: the request may still be under way, so the claim stays.
        return self._doubt(pod, node, str(error)) if settled is None else settled

    async def _read_outcome(self, pod: Pod, node: str) -> str | None:
        """A quorum read: "" bound as asked, text when settled otherwise, None when still unbound."""
        try:
            seen = decode.pod(await self._api.get(PODS, pod.namespace, pod.name))
        except NotFound:
            return self._rolled_back(pod, "it was deleted")
        return self._outcome(pod, node, seen)

    async def _read_back(self, pod: Pod, node: str) -> str | None:
        """The same, counted; only when it is this pod's turn."""
        try:
            settled = await self._read_outcome(pod, node)
        except (APIError, Unreachable):
            self._metrics.bind_read("failed")
            raise
        self._metrics.bind_read("open" if settled is None else "settled")
        return settled

    def _outcome(self, pod: Pod, node: str, seen: Pod) -> str | None:
        """What became of the Binding, by the pod as it is; None when it is unbound."""
        if seen.uid != pod.uid:
            return self._rolled_back(pod, "it was deleted and made again")
        if not seen.node_name:
            return self._rolled_back(pod, "it is being deleted") if seen.deleting else None
        self._ledger.bound(pod.uid, seen.node_name)
        if seen.node_name == node:
            self._metrics.bind_outcome("bound")
            return ""
        self._metrics.bind_outcome("elsewhere")
        return f"pod {pod.key} is bound to node {seen.node_name}"

    def _doubt(self, pod: Pod, node: str, why: str) -> str:
        """Keep the claim, and read until the outcome shows."""
        self._metrics.bind_outcome("unknown")
        log.warning("outcome of a Binding is unknown pod=%s node=%s why=%s", pod.key, node, why)
        task = asyncio.create_task(self._resolve_doubt(pod, node), name=f"settle {pod.uid}")
        self._doubtful[pod.uid] = task
        task.add_done_callback(lambda done: self._clear_doubt(pod.uid, done))
        return f"whether pod {pod.key} was bound is not known yet: {why}"

    def _clear_doubt(self, uid: str, task: asyncio.Task[None]) -> None:
        if self._doubtful.get(uid) is task:
            del self._doubtful[uid]

    def _forget_doubt(self, uid: str) -> bool:
        """A new attempt settles the earlier one: of two Bindings the API server accepts one, and says so.

        True when there was one in doubt.
        """
        task = self._doubtful.pop(uid, None)
        if task is not None:
            task.cancel()
        return task is not None

    async def _resolve_doubt(self, pod: Pod, node: str) -> None:
        give_up = self._clock() + UNKNOWN_SECONDS
        wait = _FIRST_WAIT
        while True:
            await self._sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT)
            try:
                async with self._reads.turn():
                    late = self._clock() >= give_up  # before the read, which may take long itself
                    if await self._read_back(pod, node) is not None:
                        return
            except (APIError, Unreachable) as error:
                log.info("settling a Binding goes on pod=%s error=%s", pod.key, error)
                continue
            if late:
                self._rolled_back(pod, "its Binding never arrived")
                return
