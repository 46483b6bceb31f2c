"""What the results of a training region have in common in their histories, and so which nodes the region becomes.

The engine calls every node below one that it has called, also with no gradient at all: hooks there are called with None, and what was saved
there is freed. So an input may hang only under results that come from it (`nodes`); and results that eager could send backward one after
the other are nodes of their own (`together`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from pliant.graph.trace import saves_tensors
from pliant.lower.leaves import nodes_under
from pliant.lower.sections import begun_at


def heads_above(heads: list[Any], ends: Set[Any]) -> dict[Any, int]:
    """The nodes of the histories of these heads, which begin at `ends`, each before those below it: of each, as bits, which heads come
    from it."""
    order: list[Any] = []
    seen: set[Any] = set(ends)
    todo = [(h.grad_fn, False) for h in heads if h.grad_fn is not None]
    while todo:
        node, left = todo.pop()
        if left:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            todo.append((node, True))
            todo += [(below, False) for below, _ in node.next_functions if below is not None]
    above = dict.fromkeys(reversed(order), 0)
    for i, h in enumerate(heads):
        if h.grad_fn in above:
            above[h.grad_fn] |= 1 << i
    for node in above:
        for below, _ in node.next_functions:
            if below in above:
                above[below] |= above[node]
    return above


def on_the_way(heads: list[Any], ends: Set[Any], begins: Set[int]) -> set[Any]:
    """The nodes of the histories of these heads from which the engine comes to `ends`, or to leaves in `begins` (vids). It calls no others
    where gradients of these alone are asked for."""
    found: set[Any] = set()
    for node in reversed(heads_above(heads, ends)):
        below = [n for n, _ in node.next_functions if n is not None]
        if begun_at(node) in begins or any([n in found or n in ends for n in below]):
            found.add(node)
    return found


def sharing(heads: list[Any], ends: Set[Any]) -> list[int]:
    """For each of the heads, as bits, those whose history, which begins at `ends`, has a node with saved tensors in common with its own."""
    together = {bits for node, bits in heads_above(heads, ends).items() if saves_tensors(node)}
    return [functools.reduce(int.__or__, [bits for bits in together if bits >> i & 1], 0) for i in range(len(heads))]


def together(heads: list[Any], shared: list[int], ends: Set[Any]) -> list[tuple[bool, ...]]:
    """The heads by parts that eager could send backward one after the other, as masks: heads with saved tensors in common (`sharing`) are
    in one part, and so are those whose histories begin at the same leaves."""
    own = list(range(len(heads)))  # of each head, the part that it is in
    for i, bits in enumerate(shared):
        for j in range(i):
            if bits >> j & 1 and own[j] != own[i]:
                own = [own[j] if at == own[i] else at for at in own]
    if len(set(own)) == 1:
        return [(True,) * len(heads)]
    begins: dict[int, set[Any]] = {}
    for at, h in zip(own, heads, strict=True):
        begins.setdefault(at, set()).update(n for n in nodes_under([h.grad_fn], ends) if n in ends or not n.next_functions)
    parts: dict[frozenset[Any], list[bool]] = {}
    for i, at in enumerate(own):
        parts.setdefault(frozenset(begins[at]), [False] * len(heads))[i] = True
    return [tuple(mask) for mask in parts.values()]


def as_bits(mask: Sequence[bool]) -> int:
    """A set of heads as bits."""
    return sum(1 << i for i, on in enumerate(mask) if on)


def reaching(heads: list[Any], crossing: Sequence[Any], ends: Set[Any]) -> dict[int, int]:
    """Of leaves, and of tensors that have crossed into this section (vids): as bits, the heads whose histories begin there."""
    above = heads_above(heads, ends)
    found = {vid: bits for node, bits in above.items() if (vid := begun_at(node)) is not None}
    at = {(t.grad_fn, t.output_nr): t.vid for t in crossing}
    for node, bits in above.items():
        for edge in node.next_functions:
            if edge in at:
                found[at[edge]] = found.get(at[edge], 0) | bits
    return found


@dataclass(frozen=True, slots=True)
class Share:
    """A node that a region is to become: its heads, as a mask; the vids of the inputs that have gradients of it (None: all that its heads
    come from); whether it stands above the node that its heads are results of, to which their gradients go on (`through`)."""

    mask: tuple[bool, ...]
    slots: frozenset[int] | None
    through: bool


def nodes(masks: Sequence[tuple[bool, ...]], reached: Mapping[int, int]) -> list[Share]:
    """The nodes of a region whose heads are to be parted so (`together`), such that the engine calls nothing below an input from which the
    heads that it has gradients of do not come. Inputs that all heads of a part come from stay together in one node, whose backward program
    is one; above it stand nodes for those that only some heads come from."""
    found: list[Share] = []
    for mask in masks:
        bits = as_bits(mask)
        own = {vid: r & bits for vid, r in reached.items() if r & bits}
        apart = {vid for vid, r in own.items() if r != bits}
        groups: dict[frozenset[int], list[bool]] = {}
        for i in [i for i, on in enumerate(mask) if on and apart]:
            groups.setdefault(frozenset(vid for vid in apart if own[vid] >> i & 1), [False] * len(mask))[i] = True
        common = frozenset(own.keys() - apart)
        if common and apart:
            found.append(Share(mask, common, False))
            found += [Share(tuple(group), slots, True) for slots, group in groups.items() if slots]
        elif apart and all(groups):
            found += [Share(tuple(group), slots, False) for slots, group in groups.items()]
        else:
            found.append(Share(mask, None, False))
    return found


def parted(masks: Sequence[tuple[bool, ...]], reached: Mapping[int, int]) -> set[int]:
    """The inputs (vids) that some heads of a part come from, and some do not."""
    return {vid for vid, r in reached.items() if any([r & bits not in (0, bits) for bits in map(as_bits, masks)])}
