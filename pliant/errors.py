"""Errors that users see. Each says what was assumed, what was seen, where, and the fix."""

from __future__ import annotations


class PliantError(Exception):
    """Root of pliant's own errors."""

    def __init__(self, *args: object) -> None:
        Exception.__init__(self, *args)  # under `pliant.install()` bases stand between, whose `__init__` asks for other things


class GraphBreakError(PliantError):
    """`fullgraph=True` met something that cannot be captured: the message carries the break's explanation and fix."""


class Tripwire(PliantError):
    """A real tensor without a source reached the dispatcher during capture: baking it in as a constant could give a wrong answer."""


class InternalError(PliantError):
    """pliant itself failed. Raised only with `strict=True`; otherwise the frame runs in eager PyTorch."""


class ConstraintViolation(PliantError):
    """A declared dynamic dimension was specialized by the program."""


class RecompileError(PliantError, RuntimeError):
    """A call needed another compiled version where the program has forbidden that: a stance, `error_on_recompile`, a `recompile_limit`."""


class FakeKernelError(PliantError, RuntimeError):
    """A custom operator returned something else than its fake kernel (`torch.library.register_fake`) had said."""


class VerificationError(PliantError):
    """`verify=`: a call gave something else than eager PyTorch. The message says what, which entries ran, and where the file is that
    reproduces it. Raised with `strict=True`; otherwise the call answers with eager's result, and a warning says so once."""


class BackendError(PliantError):
    """The backend callable raised while compiling a graph. `backend`: its name."""

    backend = "?"


class UnsupportedVersion(ImportError):
    """This Python or PyTorch version is not supported."""
