"""What quotas let pods take, as the ledger asks it: the account, and the quotas that are to come into it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from qos.cluster.objects import Pod, Resources
from qos.cluster.quota import ElasticQuota, is_preemptible
from quota import fitting
from quota.account import Account, origin_of
from quota.book import Origin
from quota.taking import Taking


class Limits:
    """The account of all quotas, and the judge of whether a pod may take what it asks for.

    Quotas that are set or removed come in when somebody asks: a list of 1,000 costs as much as one of them.
    """

    def __init__(self) -> None:
        self.account = Account()
        self._news: dict[str, ElasticQuota | None] = {}

    def set(self, quota: ElasticQuota) -> bool:
        """Take a quota as it is now. False: no rule of it has changed, but its status maybe."""
        before = self._news.get(quota.key, self.account.book.get(quota.key))
        if before == replace(quota, resource_version=before.resource_version if before else ""):
            return False
        self._news[quota.key] = quota
        return True

    def remove(self, key: str) -> None:
        """A quota, by namespace/name, is gone: its pods are of another one."""
        self._news[key] = None

    def settle(self) -> None:
        """Bring in what was set and removed."""
        if self._news:
            put = [one for one in self._news.values() if one is not None]
            drop = [key for key, one in self._news.items() if one is None and self.account.book.get(key)]
            self._news = {}
            self.account.change(put, drop)

    def set_cluster(self, amounts: Resources) -> None:
        """What all nodes have together that pods can go to."""
        self.account.set_cluster(amounts)

    def count(self, pod: Pod, *, bound: bool) -> None:
        """Count a pod as it is now; bound: it takes what it asks for, or may any moment."""
        self.account.count(pod, bound=bound)

    def forget(self, uid: str) -> bool:
        """Count a pod no longer. True: others may have what it asked for and did not take."""
        waited = self.account.counts(uid) is False
        self.account.forget(uid)
        return waited

    def hold(self, key: str, origin: Origin, amounts: Resources) -> None:
        """What a policy holds now for pods of this origin, in place of what it did before."""
        self.account.hold(key, origin, amounts)

    def refusal(
        self,
        pod: Pod,
        floor: tuple[Origin, Resources] | None = None,
        leaving: Iterable[Pod] = (),
        coming: Iterable[Pod] = (),
    ) -> str:
        """Why a pod may not take what it asks for; "" where it may. floor: what a policy holds for it, and
        for pods of which origin. leaving: pods that are out of account; coming: those that come before it.
        """
        self._count(pod)
        freed = self._freed(pod, floor)
        found = fitting.refusal(self.account, pod, freed, fitting.outlook(self.account, leaving, coming))
        return "" if found is None else found.text

    def permitted(
        self,
        pod: Pod,
        victims: Mapping[str, Collection[Pod]],
        floor: tuple[Origin, Resources] | None = None,
        coming: Iterable[Pod] = (),
    ) -> list[str]:
        """Of these ways to let a pod in, by whose end, those that quotas permit (quota.taking), and in which
        its own lets it in.
        """
        self._count(pod)
        taking, freed = Taking(self.account, pod, coming=coming), self._freed(pod, floor)
        return [way for way, ending in victims.items() if taking.allows(ending, freed)]

    def taking(self, pod: Pod, leaving: Iterable[Pod] = (), coming: Iterable[Pod] = ()) -> Taking:
        """Whose pods may end for this one (quota.taking), with those that are being deleted gone."""
        self._count(pod)
        return Taking(self.account, pod, leaving=leaving, coming=coming, ended=True)

    def _count(self, pod: Pod) -> None:
        if self.account.counts(pod.uid) is None:
            self.account.count(pod, bound=False)

    def _freed(self, pod: Pod, floor: tuple[Origin, Resources] | None) -> Resources:
        if floor is None or self.account.node_of(floor[0]) is not self.account.node_of(origin_of(pod)):
            return fitting.NOTHING
        return floor[1]

    def kind(self, pod: Pod) -> tuple[str, bool]:
        """Pods of one kind, that ask for the same, are judged alike."""
        return self.account.quota_of(pod).key, is_preemptible(pod.labels)

    def room(self, pod: Pod) -> int | None:
        """How many such pods may come; None: as many as you like."""
        return fitting.room(self.account, pod)
