"""Names of PyTorch 2.13 that 2.11 has not, so that pliant can be tried where only that is: import it before pliant.

Nobody has run the tests there.
What is missing is filled in with what serves no program of `benchmarks/gpu.py`; nothing else of PyTorch is changed.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
from typing import Any

import torch

os.environ["PLIANT_UNTESTED_TORCH"] = "1"


class Absent:
    """Stands for something that is not there: has every attribute, and equals nothing."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{self.__name__} is not in PyTorch {torch.__version__}")


MODULES = ("torch._higher_order_ops.register_hook",)
OPEN = ("torch._functorch.eager_transforms", "torch._functorch.predispatch", "torch.distributed._functional_collectives", "torch._utils")
"""Modules that are asked for names which only 2.13 has."""


def absent_in(module: types.ModuleType) -> None:
    def ask(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = Absent(f"{module.__name__}.{name}")
        setattr(module, name, made)
        return made

    module.__getattr__ = ask  # type: ignore[method-assign]


def fill() -> None:
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = types.ModuleType(name)
            absent_in(sys.modules[name])
    for name in OPEN:
        absent_in(importlib.import_module(name))


if not torch.__version__.startswith("2.13."):
    fill()
