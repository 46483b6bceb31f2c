"""Where an iterator of C stands, and setting it: `__reduce__` and `__setstate__`, which those of `itertools` warn of since CPython 3.12.

The program has not called them: it must not hear of it, nor have the warning raised. A filter stands before its own meanwhile; they are not
said to have changed, which would show warnings once more that are shown once.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

QUIET: Any = ("ignore", re.compile("Pickle, copy, and deepcopy support will be removed from itertools"), DeprecationWarning, None, 0)


def state_of(it: Any) -> Any:
    """`it.__reduce__()`."""
    return quietly(it.__reduce__) if warns(it) else it.__reduce__()


def set_state(it: Any, state: Any) -> None:
    """`it.__setstate__(state)`."""
    if warns(it):
        quietly(it.__setstate__, state)
    else:
        it.__setstate__(state)


def warns(it: Any) -> bool:
    return any([t.__module__ == "itertools" for t in type(it).__mro__])


def quietly(fn: Callable, *args: Any) -> Any:
    before = warnings.filters
    warnings.filters = now = [QUIET, *before]
    try:
        return fn(*args)
    finally:
        if warnings.filters is now:  # no other thread has others meanwhile
            warnings.filters = before
