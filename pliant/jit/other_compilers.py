"""Another compiler in the process: TorchDynamo's frame hook takes up every Python frame below a function that it compiled.

When such a function calls one of ours, neither a miss nor what we emitted is for it: capturing is Python code too, half of which looks
at frames and at torch's modes. So the functions of ours that C code starts are marked: not these, nor what they call. (A function that
the user gave to `torch.compile` switches the other compiler on again for itself.) The marks are set by C functions of `torch._C`;
nothing of `torch._dynamo` is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])
_hook = torch._C._dynamo.eval_frame
_pass_over = _hook._FrameExecStrategy(_hook._FrameAction.SKIP, _hook._FrameAction.SKIP)


def not_for_others(fn: F) -> F:
    """Mark the Python function `fn`: no other compiler takes up its frames, nor those below."""
    _hook.set_code_exec_strategy(fn.__code__, _pass_over)
    return fn
