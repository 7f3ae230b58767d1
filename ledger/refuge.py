"""What is spare for holds at risk: where they find a place if pods in flight land on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ledger.board import Amounts, slots_that_fit
from ledger.table import Columns, Flags, Rows


@dataclass(slots=True)
class Refuge:
    """Places, as they are until anything changes.

    `rows`: flags of those with holds at risk, all of which may move. Places are slots as large as the largest
    of the demands with holds on such rows, where all of these demands may lie: `places` by row, beside all
    holds, in what is `left`; `cost`: how many of them the pods in flight can cost, wherever they land.
    """

    rows: Flags
    slot: Amounts
    left: Columns
    most: NDArray[np.int64]
    places: NDArray[np.int64]
    cost: int

    def spared(self, rows: Rows, need: Columns) -> Flags:
        """On which of these rows a pod that needs so much leaves places enough."""
        after = np.minimum(self.most[rows], slots_that_fit(self.left[:, rows] - need, self.slot))
        flags: Flags = self.places.sum() - self.places[rows] + after >= self.cost
        return flags
