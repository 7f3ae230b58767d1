"""Trees of quotas as rows, as text with bars, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from qos.cluster.quota import BESIDE
from qos.quantity import render
from quota.account import Account, Standing
from quota.checks import of_change
from quota.node import Node
from quota.owing import Debt, debts

_WIDTH: Final = 20
"""Characters of a bar."""
LEGEND: Final = "█ used  ▓ held by floors  ░ may be used now  · up to max  | min"
_NOTED: Final = ("lent", "borrowed", "owed", "due")


@dataclass(frozen=True, slots=True)
class Row:
    """A quota, or the whole of a tree (`quota` is ""). `last`: of each level above, whether it ends there."""

    quota: str
    tree: str
    parent: str
    last: tuple[bool, ...]
    standings: Mapping[str, Standing]
    problems: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As it stands in the picture."""
        if not self.quota:
            return f"tree {self.tree}" if self.tree else "all nodes"
        guides = "".join("   " if ends else "│  " for ends in self.last[:-1])
        return guides + ("└─ " if self.last[-1] else "├─ ") + self.quota.lstrip("/")


def rows(account: Account) -> Iterator[Row]:
    """Each tree as a whole, then its quotas, those beneath another after it."""
    known = {one.key for one in account.quotas()}
    for tree, root in sorted(account.tree.roots.items()):
        children = [child for child in _in_order(root) if child.quota.key in known]
        if children:
            yield Row("", tree, "", (), account.whole(tree))
            for position, child in enumerate(children):
                yield from _beneath(account, child, tree, (position == len(children) - 1,))


def _beneath(account: Account, node: Node, tree: str, last: tuple[bool, ...]) -> Iterator[Row]:
    key = node.quota.key
    parent = account.places[key].parent
    prefix = f"ElasticQuota {key}: "
    problems = tuple(text.removeprefix(prefix) for text in of_change(account.book, node.quota))
    yield Row(key, tree, parent, last, account.standing(key), problems)
    for position, child in enumerate(node.children):
        yield from _beneath(account, child, tree, (*last, position == len(node.children) - 1))


def _in_order(root: Node) -> list[Node]:
    """Koordinator's own last."""
    return sorted(root.children, key=lambda node: (node.quota.name in BESIDE, node.quota.order))


def owed(account: Account) -> list[Debt]:
    """Who owes what to whom, of all resources."""
    named = {name for one in account.quotas() for name in one.max}
    return [debt for name in sorted(named) for debt in debts(account, name)]


def document(found: Iterable[Row], owing: Iterable[Debt]) -> dict[str, Any]:
    """For programs: each quota, with amounts as Kubernetes writes them, null where there is no limit."""
    trees, quotas = [], []
    for row in found:
        stands = [_amounts(name, one) for name, one in row.standings.items()]
        if row.quota:
            quotas.append(
                {"quota": row.quota.lstrip("/"), "tree": row.tree, "parent": row.parent, "resources": stands}
                | {"problems": list(row.problems)}
            )
        else:
            trees.append({"tree": row.tree, "resources": stands})
    said = [asdict(debt) | {"amount": render(debt.resource, debt.amount)} for debt in owing]
    return {"trees": trees, "quotas": quotas, "debts": said}


def _amounts(resource: str, standing: Standing) -> dict[str, str | None]:
    said: dict[str, str | None] = {"resource": resource}
    for field in fields(standing):
        amount = getattr(standing, field.name)
        said[field.name] = None if amount is None else render(resource, amount)
    return said


def show(found: Iterable[Row], owing: Iterable[Debt], console: Console) -> None:
    """As a picture."""
    whole = [
        Column(name, no_wrap=True) for name in ("quota", "resource", "", "taken", "runtime", "min", "max")
    ]
    table = Table(*whole, "", box=None)
    problems: list[str] = []
    for row in found:
        problems += [f"{row.quota}: {problem}" for problem in row.problems]
        name = row.name
        stands = {resource: one for resource, one in row.standings.items() if _matters(row, one)}
        if not stands:
            table.add_row(escape(name))
        for resource, one in stands.items():
            table.add_row(escape(name), *_cells(resource, one))
            name = _continued(row)
    if not table.row_count:
        console.print("There is no ElasticQuota.")
        return
    console.print(table, LEGEND, "", sep="\n")
    for debt in owing:
        amount = render(debt.resource, debt.amount)
        said = f"{debt.debtor} has {amount} of {debt.resource} that is owed to {debt.creditor}"
        console.print(escape(said), soft_wrap=True)
    for problem in problems:
        console.print(escape(problem), soft_wrap=True)


def _matters(row: Row, standing: Standing) -> bool:
    """Of a whole tree only what somebody asks for; of a quota what its max names, or it takes."""
    if not row.quota:
        return bool(standing.request)
    return standing.max is not None or bool(standing.used or standing.held)


def _continued(row: Row) -> str:
    return "".join("   " if ends else "│  " for ends in row.last)


def _cells(resource: str, one: Standing) -> list[str]:
    def shown(amount: int | None) -> str:
        return "-" if amount is None else render(resource, amount)

    noted = [f"{name} {shown(getattr(one, name))}" for name in _NOTED if getattr(one, name)]
    if one.guaranteed < one.min:
        noted.append(f"guaranteed {shown(one.guaranteed)}")
    taken = shown(one.used + one.held)
    return [resource, bar(one), taken, *map(shown, (one.runtime, one.min, one.max)), ", ".join(noted)]


def bar(one: Standing) -> str:
    """Used, held, and what else may be used, of max; "" without one."""
    if not one.max or one.runtime is None:
        return ""
    whole = max(one.max, one.used + one.held)

    def at(amount: int) -> int:
        return (amount * _WIDTH + whole // 2) // whole

    ends = [at(one.used), at(one.used + one.held)]
    ends += [max(ends[-1], at(one.runtime)), _WIDTH]
    drawn, before = "", 0
    for end, sign in zip(ends, "█▓░·", strict=True):
        drawn += sign * (end - before)
        before = max(before, end)
    place = at(min(one.min, whole))
    return drawn[:place] + ("|" if one.min else "") + drawn[place:]
