"""What is wrong with a quota that is made, changed or deleted, and with a pod that is made. Pure.

The same that Koordinator's webhook refuses, and a circle of parents; each message names the object, the
field, the value, and what to do. Source: koordinator-sh/koordinator, pkg/webhook/elasticquota.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from qos import keys
from qos.cluster.objects import Pod, Resources
from qos.cluster.quota import BUILT_IN, ElasticQuota
from qos.quantity import render
from quota.account import origin_of
from quota.book import Book

_SHOWN = 3
"""So many names of what is in the way."""


def of_change(
    book: Book, new: ElasticQuota, old: ElasticQuota | None = None, pods: Sequence[str] = ()
) -> list[str]:
    """Why a quota may not be made (old is None) or changed so; nothing where no rule of it changes.

    book: the quotas before the change. pods: of this quota, by namespace/name.
    """
    if old is not None and _rules(old) == _rules(new):
        return []
    if old is not None and new.name in (keys.SYSTEM_QUOTA, keys.ROOT_QUOTA):
        return [f"ElasticQuota {new.key} is Koordinator's own: leave it as it is"]
    found = [*_own(new)]
    if not found and new.name not in BUILT_IN:
        found += [*_named(book, new), *_parent_label(book, new, old, pods), *_tree(book, new, old)]
        for above, child in _edges(book, new):
            found += [*_resources(above, child, new)]
        found += [*_sums(book, new)]
    return [f"ElasticQuota {new.key}: {problem}" for problem in found]


def of_deletion(book: Book, quota: ElasticQuota, pods: Sequence[str] = ()) -> list[str]:
    """Why a quota may not be deleted. pods: of this quota, by namespace/name."""
    if quota.name in BUILT_IN:
        return [f"ElasticQuota {quota.key} is Koordinator's own: it cannot be deleted"]
    found = []
    children = [one.key for one in _children(book, quota)]
    if children:
        found.append(f"it has {_listed(children, 'child')}: delete them first, or give them another parent")
    if pods:
        found.append(f"it has {_listed(pods, 'pod')}: delete them first, or give them another quota")
    return [f"ElasticQuota {quota.key}: {problem}" for problem in found]


def of_pod(book: Book, pod: Pod) -> list[str]:
    """Why a pod may not be of the quota it would be of: only those without children have pods."""
    key = book.quota_of(origin_of(pod))
    quota = book.get(key)
    if quota is None or not quota.is_parent or quota.name in BUILT_IN:
        return []
    children = [one.name for one in _children(book, quota)]
    instead = f"one of its children, {_first(children)}" if children else "another one"
    where = f"Pod {pod.key}: metadata.labels[{keys.QUOTA_NAME_LABEL}]"
    return [f"{where}: its quota, ElasticQuota {key}, is a parent, and those have no pods: name {instead}"]


def _rules(quota: ElasticQuota) -> ElasticQuota:
    return replace(quota, uid="", created=0.0, generation=0, resource_version="")


def _children(book: Book, quota: ElasticQuota) -> list[ElasticQuota]:
    """Those whose parent label means it, or will when it is there."""
    known = book.named(quota.name)
    if known is not None and known.key != quota.key:
        return []
    return sorted((one for one in book if one.parent == quota.name), key=lambda one: one.order)


def _parent_of(book: Book, quota: ElasticQuota) -> ElasticQuota | None:
    return book.named(quota.parent) if quota.parent and quota.parent not in BUILT_IN else None


def _edges(book: Book, new: ElasticQuota) -> Iterator[tuple[ElasticQuota, ElasticQuota]]:
    """Parent and child, of all pairs that it is one of."""
    parent = _parent_of(book, new)
    if parent is not None:
        yield parent, new
    for child in _children(book, new):
        yield new, child


def _own(new: ElasticQuota) -> Iterator[str]:
    yield from new.problems
    for field, amounts in (("spec.max", new.max), ("spec.min", new.min)):
        for name, amount in amounts.items():
            if amount < 0:
                yield f"{field}.{name}: {render(name, amount)} is negative: write zero or more"
    for name, amount in new.min.items():
        if name not in new.max:
            yield (
                f"spec.min.{name}: {render(name, amount)}, and spec.max does not name it: give {name} a max, "
                "or no min"
            )
        elif amount > new.max[name]:
            low, high = render(name, amount), render(name, new.max[name])
            yield f"spec.min.{name}: {low} is more than its max, {high}: lower min, or raise max"


def _named(book: Book, new: ElasticQuota) -> Iterator[str]:
    other = book.named(new.name)
    if other is not None and other.key != new.key and not new.plain:
        yield (
            f"metadata.name: ElasticQuota {other.key} has the same name, and labels mean that one: "
            "choose another name"
        )
    for namespace in new.namespaces:
        bound = book.bound(namespace)
        if bound is not None and bound.key != new.key:
            yield (
                f"metadata.annotations[{keys.QUOTA_NAMESPACES_ANNOTATION}]: {namespace} is bound to "
                f"ElasticQuota {bound.key}: take it out there first"
            )


def _parent_label(
    book: Book, new: ElasticQuota, old: ElasticQuota | None, pods: Sequence[str]
) -> Iterator[str]:
    """The parent is there, is one, and is not beneath it; who has children is one, who has pods is none."""
    field, is_parent = keys.QUOTA_PARENT_LABEL, keys.QUOTA_IS_PARENT_LABEL
    parent = _parent_of(book, new)
    if new.parent in BUILT_IN or (new.parent and parent is None):
        yield f"metadata.labels[{field}]: {new.parent} is no quota that can have children: name another one"
    elif parent is not None and _beneath(book, parent, new):
        yield f"metadata.labels[{field}]: {new.parent} is itself or beneath it: name another one"
    elif parent is not None and not parent.is_parent:
        yield (
            f"metadata.labels[{field}]: ElasticQuota {parent.key} is no parent: give it the label "
            f'{is_parent}: "true" first'
        )
    if old is None or old.is_parent == new.is_parent:
        return
    children = [one.key for one in _children(book, new)]
    if children and not new.is_parent:
        yield (
            f'metadata.labels[{is_parent}]: it has {_listed(children, "child")}: it stays "true" while there '
            "are any"
        )
    if pods and new.is_parent:
        yield (
            f"metadata.labels[{is_parent}]: it has {_listed(pods, 'pod')}, and parents have none: delete "
            "them first, or give them another quota"
        )


def _beneath(book: Book, at: ElasticQuota | None, new: ElasticQuota) -> bool:
    """Whether new is an ancestor of it, or it."""
    seen: set[str] = set()
    while at is not None and at.key not in seen:
        if at.key == new.key:
            return True
        seen.add(at.key)
        at = _parent_of(book, at)
    return False


def _tree(book: Book, new: ElasticQuota, old: ElasticQuota | None) -> Iterator[str]:
    """It stays in its tree, which is its parent's where it names none."""
    field = f"metadata.labels[{keys.QUOTA_TREE_LABEL}]"
    places = book.places()
    parent = _parent_of(book, new)
    place = places.get(parent.key) if parent is not None else None
    above = place.tree if place is not None else ""
    if old is not None:
        before, after = places[old.key].tree if old.key in places else old.tree, new.tree or above
        if before != after:
            yield f'{field}: "{before}" may not become "{after}": make another quota'
    if place is not None and parent is not None and new.tree and above != new.tree:
        yield f'{field}: "{new.tree}", and its parent {parent.key} has "{above}": give both the same'
    for child in _children(book, new):
        if new.tree and child.tree and child.tree != new.tree:
            yield f'{field}: "{new.tree}", and its child {child.key} has "{child.tree}": give both the same'


def _resources(above: ElasticQuota, child: ElasticQuota, new: ElasticQuota) -> Iterator[str]:
    """A child's max names what its parent's does, its min no more than its parent's."""
    other = f"parent {above.key}" if child is new else f"child {child.key}"
    apart = sorted(set(above.max) ^ set(child.max))
    if apart:
        yield (
            f"spec.max: it and its {other} do not name the same resources: {', '.join(apart)}: name each of "
            "them in both, or in none"
        )
    more = sorted(set(child.min) - set(above.min))
    if more:
        where = f"its {other} has no min of" if child is new else f"it has no min of what its {other} has"
        yield f"spec.min: {where}: {', '.join(more)}: state one there first"


def _sums(book: Book, new: ElasticQuota) -> Iterator[str]:
    """The mins of children are within their parent's."""
    if new.forced or new.is_root:
        return
    parent = _parent_of(book, new)
    if parent is not None:
        brothers = [one for one in _children(book, parent) if one.key != new.key]
        yield from _beyond([*brothers, new], parent.min, f"those of all children of {parent.key}", "its min")
    yield from _beyond(_children(book, new), new.min, "those of its children", "its own")


def _beyond(children: Sequence[ElasticQuota], most: Resources, whose: str, limit: str) -> Iterator[str]:
    for name, amount in most.items():
        total = sum(one.min.get(name, 0) for one in children)
        if total > amount:
            yield (
                f"spec.min.{name}: {whose} are {render(name, total)} together, more than {limit}, "
                f"{render(name, amount)}: lower one of them, or raise that"
            )


def _listed(names: Sequence[str], kind: str) -> str:
    """`2 pods (shop/a, shop/b)`."""
    plural = {"child": "children", "pod": "pods"}[kind]
    return f"{len(names)} {kind if len(names) == 1 else plural} ({_first(names)})"


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (" ..." if len(names) > _SHOWN else "")
