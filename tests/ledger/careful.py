"""A ledger that is held to its word that nothing is to be tended."""

from __future__ import annotations

from ledger.ledger import Ledger


class Careful(Ledger):
    """Where it says that nothing is to be tended, tending changes nothing; and it has an end."""

    def tend(self) -> bool:
        if self.unsettled:
            more = super().tend()
            assert self.unsettled or not more
            return more
        before = self._fingerprint()
        assert not super().tend()
        assert not self.unsettled
        assert self._fingerprint() == before
        return False

    def _fingerprint(self) -> object:
        state = self._state
        holds = state.holds.count.tobytes(), dict(state.counters), [*state.flights.by_uid]
        return state.stamp, state.moment, holds, dict(state.failed), dict(state.capped)
