"""What an emitted function lets go of before it calls: the variables that it will not read again.

CPython's frame holds nothing but its variables and its stack while it calls. An emitted function that goes on in a resume function
would hold whatever it has handed over in variables of its own, and with it what the program has deleted since: tensors, and objects
whose weak references and finalizers the program watches. So the variables that no later line mentions are set to None, before the
breaking call and behind the state that is handed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

NAMES = re.compile(r"\b_(?:[giouv]\d+|r)\b")
"""Variables of emitted functions that hold objects; others are constants, numbers, and what is short-lived."""
TARGETS = re.compile(r"\s*(\[?_(?:[giouv]\d+|r)(?:, ?_(?:[giouv]\d+|r))*,?\]?) = ")
STATES = re.compile(r"\b_st\d+\b")
DROPPED = re.compile(r"\s*(?:_\w+ = )+None")
"""A line that only sets variables to None."""
GONE = "# gone: "
"""Begins a line that names variables of what a frame has let go of: they become None there, unless another frame goes on with them."""


def letting_go(lines: list[str], begin: int, states: dict[str, str], bound: Iterable[str]) -> list[str]:
    """`lines` of a function that sets variables to None where they are not read again, before the calls in `lines[begin:]`.

    Each of `states` (variable -> list display) is made before the line that hands it over. `bound`: the variables that are set already.
    """
    held = dict.fromkeys(name for name in bound if NAMES.fullmatch(name))
    out: list[str] = []
    for i, line in enumerate(lines):
        if line.lstrip().startswith(GONE):
            kept = set(read_behind([*lines[: i + 1], reading(lines[i + 1]), *lines[i + 2 :]], i, states))
            gone = [name for name in line.strip().removeprefix(GONE).split() if name not in kept]
            out += [f"{line[: indent(line)]}{' = '.join(gone)} = None"] if gone else []
            continue
        if i >= begin and "(" in line:
            pad = line[: indent(line)]
            handed = dict.fromkeys(STATES.findall(line))
            out += [f"{pad}{name} = {states[name]}" for name in handed]
            target = TARGETS.match(line)
            behind = set(read_behind(lines, i, states))
            if target is not None:  # what it held before the call is read by nobody behind it, nor where the call raises
                behind.difference_update(NAMES.findall(target[1]))
            read = {*NAMES.findall(line if target is None else line[target.end() :]), *behind}
            freed = [name for name in held if name not in read]
            if freed:
                out.append(f"{pad}{' = '.join(freed)} = None")
            if not pad:  # whatever way the function goes
                for name in freed:
                    del held[name]
        out.append(line)
        if i >= begin and not line.lstrip().startswith("return"):  # a frame that has returned has let go of what it was handed
            out += [f"{line[: indent(line)]}{name} = None" for name in dict.fromkeys(STATES.findall(line))]
        targets = TARGETS.match(line)
        if targets is not None:
            held.update(dict.fromkeys(NAMES.findall(targets[1])))
    return out


def read_behind(lines: list[str], i: int, states: dict[str, str]) -> Iterable[str]:
    """The variables that may be read after line `i` has run: not those of the `else` to whose `if` it belongs."""
    level = indent(lines[i])
    skipped = False
    for line in lines[i + 1 :]:
        at = indent(line)
        if at < level:
            level = at
            skipped = line.startswith("else:", at)
        elif skipped and at == level:
            skipped = False
        if not skipped and not DROPPED.fullmatch(line):
            yield from NAMES.findall(line)
            for name in STATES.findall(line):
                yield from NAMES.findall(states[name])


def reading(line: str) -> str:
    """A line without the variables that it sets."""
    target = TARGETS.match(line)
    return line if target is None else line[: indent(line)] + line[target.end() :]


def indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
