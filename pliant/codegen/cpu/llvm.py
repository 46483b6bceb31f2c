"""LLVM, imported when code is first made: a program that is loaded with its machine code needs none."""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any


class Later:
    """A module that is imported when something of it is first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(importlib.import_module(self._name), attribute)
        self.__dict__[attribute] = found
        return found


llvm = Later("llvmlite.binding")


@functools.cache
def library_version() -> tuple:
    """What tells one LLVM from another without loading it: llvmlite's version, and its library's size and date."""
    package = importlib.import_module("llvmlite")
    with os.scandir(os.path.join(os.path.dirname(package.__file__ or ""), "binding")) as entries:
        found = [(e.name, e.stat()) for e in entries if "llvmlite." in e.name]
    return package.__version__, tuple(sorted((name, status.st_size, status.st_mtime_ns) for name, status in found))


@functools.cache
def versions() -> tuple:
    """Of llvmlite and of the LLVM in it."""
    return importlib.import_module("llvmlite").__version__, llvm.llvm_version_info
