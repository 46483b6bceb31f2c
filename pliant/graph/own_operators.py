"""Operators of pliant's own: what `torch.library.register_fake` does for one, without its look at each module of the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._library.simple_registry import singleton
from torch.library import Library


def register_fake(library: Library, name: str, fake: Callable[..., Any]) -> None:
    """`fake` tells what the operator makes of tensors without data. It goes when the library does.

    PyTorch's own function first asks which module its caller is, for which it reads the names of the files of all modules: with a large
    library imported that takes as long as a fifth of what pliant's import does.
    """
    handle = singleton.find(f"{library.ns}::{name}").fake_impl.register(fake, __name__, lib=library)
    library._registration_handles.append(handle)
