"""Text made of what is known only when the graph runs: the message of a check that will not fail.

`f"{n_tokens} tokens do not match"` formats a tensor, or pins a size, for a message that is nearly always thrown away. Formatting gives
a `LateText` instead. It may be kept and passed on; whoever asks for the characters, and whatever outlives the capture, raises
`TextNeeded`: the capture begins again and formats at once, with the graph break or the pinned size that this costs.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from pliant.interpret.state import Restart, vm

TUPLES = {tuple, torch.Size}  # shapes, mostly


class TextNeeded(Restart):
    """Interpret again from the start, making every text when the program makes it."""

    def __init__(self) -> None:
        super().__init__(-1, -1, "PL0005", "the text of a value known only at run time is used")


class LateText:
    """Stands for a string that nobody has read yet."""

    __slots__ = ("__weakref__",)

    def __init__(self) -> None:
        vm.late_texts.append(weakref.ref(self))


def needed(self: Any, *_: Any) -> Any:
    """Every operator of a late text."""
    raise TextNeeded


for _name in (
    "eq ne lt le gt ge add radd mul rmul mod rmod bool hash str repr format len iter getitem contains int float index call reduce_ex"
).split():
    setattr(LateText, f"__{_name}__", needed)


def made_late(*values: Any) -> bool:
    """Whether text of these values is made late: tensors, symbolic numbers, what changes on every call, other late text."""
    return vm.late_texts is not None and any(map(late, values))


def late(value: Any) -> bool:
    t = type(value)
    return t in vm.late_types or t in TUPLES and any(map(late, value))


def check_forgotten() -> None:
    """At the end of a capture: a text that is still there may be read by somebody."""
    if vm.late_texts and any(ref() is not None for ref in vm.late_texts):
        raise TextNeeded


__all__ = ["LateText", "TextNeeded", "check_forgotten", "made_late", "needed"]
