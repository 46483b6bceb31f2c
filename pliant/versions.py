"""Which Python and PyTorch pliant runs on: both are read below their public surface, so others are refused at import."""

from __future__ import annotations

import sys

import torch

from pliant.errors import UnsupportedVersion

PYTHON = (3, 11)
TORCH = "2.13."


def check(python: tuple[int, ...] = sys.version_info[:2], torch_version: str = torch.__version__) -> None:
    """Raise UnsupportedVersion, with the fix, unless both are supported."""
    if tuple(python[:2]) != PYTHON:
        raise UnsupportedVersion(
            f"pliant interprets CPython {PYTHON[0]}.{PYTHON[1]} bytecode and this is Python {'.'.join(map(str, python))}: "
            f"install it in a Python {PYTHON[0]}.{PYTHON[1]} environment"
        )
    if not torch_version.startswith(TORCH):
        raise UnsupportedVersion(f"pliant is built for PyTorch {TORCH}* and this is {torch_version}: pip install 'torch=={TORCH}0'")


check()
