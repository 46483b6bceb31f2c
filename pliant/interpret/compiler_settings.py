"""What programs say to TorchDynamo in `with` blocks: `error_on_graph_break`, `patch_dynamo_config`.

TorchDynamo may be imported later than pliant, so these are found by name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pliant.graph.originals import operator
from pliant.graph.traced import TracedTensor
from pliant.interpret.state import Break, vm


def at_begin() -> bool:
    """Whether graph breaks are errors where the capture begins: a resumed frame may stand inside of such a block."""
    decorators = sys.modules.get("torch._dynamo.decorators")
    getter = getattr(decorators, "_get_error_on_graph_break", None)
    return getter is not None and getter() is True


def errors_on(manager: Any, *_: Any) -> None:
    """`with error_on_graph_break(on):` begins."""
    manager.prev_error_on_graph_break.append(vm.world.error_on_break)
    vm.world.error_on_break = manager.error_on_graph_break


def errors_back(manager: Any, *_: Any) -> None:
    vm.world.error_on_break = manager.prev_error_on_graph_break.pop()


def nothing(*_: Any, **__: Any) -> None:
    """A setting of another compiler."""


def static(t: Any, index: Any = None) -> None:
    """`mark_static(t, index)` inside of what is compiled: nothing is noted on the tensor then, and its sizes are taken as they are."""
    if type(t) is not TracedTensor:
        raise Break("PL0004", "mark_static of what is no tensor", clean=True)
    dims = range(len(t.sizes)) if index is None else index if isinstance(index, (list, tuple)) else (index,)
    for d in dims:
        operator.index(t.size(d))


DECORATORS = "torch._dynamo.decorators"
SAID: dict[tuple[str, str], Callable[..., None]] = {
    (DECORATORS, "ErrorOnGraphBreakDecoratorContextManager.__enter__"): errors_on,
    (DECORATORS, "ErrorOnGraphBreakDecoratorContextManager.__exit__"): errors_back,
    (DECORATORS, "DynamoConfigPatchProxy.__enter__"): nothing,
    (DECORATORS, "DynamoConfigPatchProxy.__exit__"): nothing,
    (DECORATORS, "mark_static"): static,
    ("torch.compiler", "cudagraph_mark_step_begin"): nothing,
}
"""(module, name) of functions, and what is done where the program calls them."""
