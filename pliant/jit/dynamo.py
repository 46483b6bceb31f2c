"""`torch.compile(model, backend="pliant")`: TorchDynamo captures, pliant compiles.

For programs that already go through `torch.compile`: registered under the entry-point group `torch_dynamo_backends`. Each graph module
is captured anew, with symbolic sizes; what TorchDynamo guarded or broke stays as it was. `pliant.compile` does the whole itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx._lazy_graph_module import _LazyGraphModule

from pliant.jit.compile import compile


def backend(module: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """A callable with the signature of `module.forward`. `options` are those of `pliant.compile` (`backend=`, `strict=`, ...)."""
    _LazyGraphModule.force_recompile(module)  # until then its `forward` is a stub that writes the real one
    return compile(module.forward, dynamic=True, **options)
