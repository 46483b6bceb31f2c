"""Where instructions go on, which locals are still read, and where ways out of a loop meet. Instructions are told by their index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pliant.bytecode import kinds as K
from pliant.bytecode.kinds import Kind

Table = Sequence[tuple[int, int, int, int, bool]]
READS = frozenset((K.LOAD_LOCAL, K.DELETE_LOCAL, K.LOAD_LOCAL_AND_CLEAR, K.LOAD_CELL))


def successors(kinds: Sequence[Kind], operands: Sequence[Any], i: int) -> tuple[int, ...]:
    """The instructions that may run after instruction `i`, handlers left aside."""
    kind = kinds[i]
    if kind is K.JUMP:
        return (operands[i],)
    following = () if kind.ends or i + 1 >= len(kinds) else (i + 1,)
    return (operands[i], *following) if kind in K.JUMPS else following


def reached(after: Sequence[Iterable[int]], starts: Iterable[int], without: int) -> set[int]:
    """The instructions that ways from `starts` come to (these among them), if none goes through `without`."""
    found, todo = set(), [i for i in starts if i != without]
    while todo:
        i = todo.pop()
        if i not in found:
            found.add(i)
            todo += [j for j in after[i] if j != without]
    return found


def live_locals(kinds: Sequence[Kind], operands: Sequence[Any], table: Table) -> list[int]:
    """For each instruction, a bit for each local whose value may still be read from there on."""
    n = len(kinds)
    live = [0] * n
    after = [successors(kinds, operands, i) for i in range(n)]
    handlers = [[target for start, stop, target, _, _ in table if start <= i < stop] for i in range(n)]
    changed = True
    while changed:
        changed = False
        for i in reversed(range(n)):
            out = 0
            for j in after[i]:
                out |= live[j]
            kind = kinds[i]
            if kind is K.STORE_LOCAL or kind is K.LOAD_LOCAL_AND_CLEAR or kind is K.DELETE_LOCAL:
                out &= ~(1 << operands[i])
            if kind in READS:
                out |= 1 << operands[i]
            for j in handlers[i]:
                out |= live[j]
            if out != live[i]:
                live[i], changed = out, True
    return live


def natural_loop(kinds: Sequence[Kind], operands: Sequence[Any], header: int) -> frozenset[int]:
    """The instructions of the loop with this header: those from which a jump back to it is reached without passing it."""
    before: list[list[int]] = [[] for _ in kinds]
    for i in range(len(kinds)):
        for j in successors(kinds, operands, i):
            before[j].append(i)
    found = {header}
    todo = [i for i in before[header] if i >= header]
    while todo:
        i = todo.pop()
        if i not in found:
            found.add(i)
            todo += before[i]
    return frozenset(found)


def meeting_point(kinds: Sequence[Kind], operands: Sequence[Any], inside: frozenset[int], starts: Iterable[int]) -> tuple[int, ...]:
    """The first instruction outside of `inside` that every way from `starts` comes to, if there is one before the end. If it is a jump,
    the other jumps to its target follow: to stand at one of them is the same. (Since 3.12 each way out has its own at the end of a loop.)

    What raises is no way. (Post-dominators, as the field calls them, by iteration over bit sets.)
    """
    n = len(kinds)
    every = (1 << n) - 1
    after = [successors(kinds, operands, i) for i in range(n)]
    alike: dict[int, list[int]] = {}
    for i in range(n):
        if kinds[i] is K.JUMP and i not in inside:
            alike.setdefault(operands[i], []).append(i)
    bits = [1 << i for i in range(n)]
    for jumps in alike.values():
        for i in jumps:
            bits[i] = 1 << jumps[-1]
    found = [every] * n
    changed = True
    while changed:
        changed = False
        for i in reversed(range(n)):
            out = 0 if kinds[i] is K.RETURN else every
            for j in after[i]:
                out &= found[j]
            out |= bits[i]
            if out != found[i]:
                found[i], changed = out, True
    common = every
    for i in starts:
        common &= found[i]
    meets = [i for i in range(n) if common >> i & 1 and i not in inside and found[i] != every]
    first = max(meets, key=lambda i: found[i].bit_count(), default=None)
    if first is None:
        return ()
    return (first, *[i for i in alike.get(operands[first], ()) if i != first]) if kinds[first] is K.JUMP else (first,)
