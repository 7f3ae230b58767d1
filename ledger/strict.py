"""Demands that take only nodes which say they enforce every promise (nodeEnforcement Strict)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ledger.table import Flags, Rows, Table, reshaped
from qos.cluster.needs import UNREPORTED, Enforcement, obstacle

_MOST_NAMED = 3


class Strict:
    """What each node says, and by the number of each such demand which rows do.

    `able`: the node says that it enforces all. `willing`: it would hold slots if it were able.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._said: dict[str, Enforcement] = {}
        self._needs: dict[int, frozenset[str]] = {}
        self.able: dict[int, Flags] = {}
        self.willing: dict[int, Flags] = {}

    def resize(self) -> None:
        """Follow the table's growth."""
        for flags in (self.able, self.willing):
            for number, rows in flags.items():
                flags[number] = np.asarray(reshaped(rows, self._table.shape[1:]), dtype=np.bool_)

    def set_needs(self, number: int, needs: frozenset[str] | None) -> None:
        """What a demand needs; None: nothing, it is not one of these. Its nodes are to be judged anew."""
        if needs is None:
            for known in (self._needs, self.able, self.willing):
                known.pop(number, None)
            return
        self._needs[number] = needs
        for flags in (self.able, self.willing):
            flags[number] = np.zeros(self._table.shape[1], dtype=np.bool_)

    def judge(self, number: int, row: int, willing: bool) -> bool:
        """Whether a demand may hold on a row. `willing`: the node is ready and its placement allows it."""
        if number not in self._needs:
            return willing
        self.able[number][row] = not self.obstacle(number, row)
        self.willing[number][row] = willing
        return willing and bool(self.able[number][row])

    def judge_all(self, number: int, willing: Flags) -> Flags:
        """Whether a demand may hold, for all rows at once."""
        if number not in self._needs:
            return willing
        able, answers = self.able[number], dict[int, bool]()
        for name, row in self._table.index.items():
            said = self._said.get(name, UNREPORTED)
            answer = answers.get(id(said))
            if answer is None:
                answer = answers[id(said)] = not obstacle(self._needs[number], said)
            able[row] = answer
        self.willing[number][:] = willing
        return willing & able

    def say(self, name: str, said: Enforcement | None) -> Sequence[int]:
        """Take a node's report (None: it reports nothing any more); answers the demands whose answer it
        changes.
        """
        if said == self._said.get(name):
            return ()
        if said is None:
            del self._said[name]
        else:
            self._said[name] = said
        row = self._table.index.get(name)
        if row is None:
            return ()
        return [n for n in self._needs if self.able[n][row] == bool(self.obstacle(n, row))]

    def obstacle(self, number: int, row: int) -> str:
        """Why the row's node cannot enforce what the demand needs; "" when it can."""
        return obstacle(self._needs[number], self._said.get(self._table.names[row], UNREPORTED))

    def obstacles(self, number: int, names: Iterable[str], words: str) -> dict[str, str]:
        """`words` and the obstacle of each: one text for all nodes of a kind, which share what they say."""
        needs, texts, found = self._needs[number], dict[int, str](), dict[str, str]()
        for name in names:
            said = self._said.get(name, UNREPORTED)
            text = texts.get(id(said))
            if text is None:
                text = texts[id(said)] = words + obstacle(needs, said)
            found[name] = text
        return found

    def reach(self, number: int, rows: Rows) -> Rows:
        """The rows with -1, which no node has, in place of those that are not able."""
        able = self.able.get(number)
        return rows if able is None else np.where(able.take(rows), rows, -1)

    def withheld(self, number: int) -> Rows:
        """Rows that would do if they were able, by name."""
        if number not in self._needs:
            return np.zeros(0, dtype=np.intp)
        rows = np.flatnonzero(self.willing[number] & ~self.able[number])
        return rows[np.argsort(self._table.rank()[rows])]

    def explained(self, number: int, rows: Rows) -> str:
        """Why these are not able, by node; at most three named."""
        named = [
            f"{self._table.names[row]}: {self.obstacle(number, row)}" for row in rows[:_MOST_NAMED].tolist()
        ]
        more = rows.size - len(named)
        if more > 0:
            named.append(f"and {more} other node{'s' if more > 1 else ''}")
        return "; ".join(named)
