"""A ledger with ready-made answers, for the loops that ask it."""

from __future__ import annotations

from ledger.decisions import DemandReport
from qos.cluster.objects import Pod


class Account:
    """A ledger with ready-made answers."""

    def __init__(self) -> None:
        self.reports: dict[str, DemandReport] = {}
        self.over: dict[str, str] = {}
        self.held: frozenset[str] = frozenset()
        self.waits: list[Pod] = []
        self.late: list[Pod] = []
        self.pods: dict[str, Pod] = {}
        self.removed: set[str] = set()
        self.done: list[tuple[str, str]] = []

    def report(self):
        return self.reports

    def gather_report(self):
        yield self.reports

    def gather_overlaps(self):
        yield self.over

    def exposed(self, nodes):
        return self.reports.keys() if nodes else frozenset()

    def held_nodes(self):
        return self.held

    def policy_of(self, pod):
        return "default/checkout"

    def gather_waiting(self, now):
        found, self.waits = self.waits, []
        yield []
        yield found

    def known(self, uid):
        return self.pods.get(uid)

    def gone(self, uid):
        return uid in self.removed

    def expired(self, now):
        return self.late

    def set_demand(self, demand):
        self.reports[demand.key] = DemandReport(demand.key, demand.desired, 0, demand.desired)

    def remove_demand(self, key):
        self.reports.pop(key, None)

    def __getattr__(self, name):
        return lambda *args: self.done.append((name, getattr(args[0], "uid", args[0])))


def calls(api, verb):
    return [name for called, _, name in api.calls if called == verb]
