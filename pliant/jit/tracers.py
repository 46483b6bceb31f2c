"""Other tracers: while one records, transforms or imitates what PyTorch does in this thread, compiled functions run as plain eager PyTorch.

`torch.jit.trace`, `make_fx`, `torch.export`, FakeTensorMode, FlopCounterMode, forward-mode differentiation and the transforms of
`torch.func` see operators as they are
dispatched. What pliant compiled does not dispatch them: kernels write memory that no tracer follows, and a capture that runs inside
another is recorded by it, proxies and all. An entry never holds under them, for its guards compare dispatch keys and modes; this is
what a miss asks before it captures.

Hooks on saved tensors are told of each tensor that PyTorch keeps for gradients, and may change it. A compiled region keeps others. (Those
that a checkpoint sets only count them, and have their own way: `jit/checkpoints.py`.)
"""

from __future__ import annotations

from torch.autograd import forward_ad
from torch.fx import _symbolic_trace as symbolic_trace

from pliant.graph.originals import torch

SAVED_TENSORS_HOOKS = torch._C._autograd._top_saved_tensors_default_hooks


def one_is_on() -> bool:
    """Whether another tracer is at work in this thread."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._get_tracing_state() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
        or symbolic_trace._is_fx_tracing_flag
        or forward_ad._current_level >= 0
        or SAVED_TENSORS_HOOKS(True) is not None
    )
