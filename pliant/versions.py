"""Which Python and PyTorch pliant runs on: both are read below their public surface, so others are refused at import."""

from __future__ import annotations

import os
import sys

import torch

from pliant.errors import UnsupportedVersion

PYTHON = ((3, 11), (3, 12), (3, 13))  # those whose bytecode and frames are known
TORCH = "2.13."


def check(python: tuple[int, ...] = sys.version_info[:2], torch_version: str = torch.__version__) -> None:
    """Raise UnsupportedVersion, with the fix, unless both are supported."""
    if tuple(python[:2]) not in PYTHON:
        known = ", ".join(f"{major}.{minor}" for major, minor in PYTHON)
        raise UnsupportedVersion(
            f"pliant interprets the bytecode of CPython {known} and this is Python {'.'.join(map(str, python))}: "
            "install it in an environment of one of these"
        )
    if not torch_version.startswith(TORCH) and os.environ.get("PLIANT_UNTESTED_TORCH") != "1":  # for trials: nobody has run the tests there
        raise UnsupportedVersion(f"pliant is built for PyTorch {TORCH}* and this is {torch_version}: pip install 'torch=={TORCH}0'")


check()
