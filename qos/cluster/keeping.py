"""Which keeper makes schedulers respect a policy's holds."""

from __future__ import annotations

from dataclasses import dataclass

from qos.cluster.objects import Keeper
from qos.cluster.policy import Policy


@dataclass(frozen=True, slots=True)
class Keepers:
    """The keepers that an installation runs. usual: that of policies that name none; both: the other, too."""

    usual: Keeper = Keeper.EXTENDER
    both: bool = False

    def runs(self, keeper: Keeper) -> bool:
        """Whether this installation has it."""
        return self.both or keeper is self.usual

    def of(self, policy: Policy) -> Keeper:
        """Who keeps a policy: whom it names, if that one runs."""
        return policy.keeper if policy.keeper is not None and self.runs(policy.keeper) else self.usual

    def lacking(self, policy: Policy) -> str:
        """What is to be said of a policy that names a keeper that does not run, or ""."""
        if policy.keeper is None or self.runs(policy.keeper):
            return ""
        return (
            f"spec.keeper is {policy.keeper.value}, which this installation does not run: {self.usual.value} "
            "keeps the holds; leave the field out, or set bothKeepers in the extender's configuration"
        )
