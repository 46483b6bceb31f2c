"""Files about one module of PyTorch's that few programs import: they are imported once the program has imported it.

Before that nothing of the module can be called, and an import statement breaks the graph: it is enough to look where a capture begins.
"""

from __future__ import annotations

import importlib
import sys

from pliant.graph.distributed_tensors import COLLECTIVES
from pliant.interpret.policy_tables.row import is_unfinished

WAITING = {
    COLLECTIVES: "pliant.interpret.functional_collectives",
    "torch.nn.attention.flex_attention": "pliant.interpret.flex_attention",
}
"""The module, and the file about it: those that are not imported yet."""


def known() -> None:
    """Import what is about modules that are there by now."""
    for name, file in list(WAITING.items()):
        module = sys.modules.get(name)
        if module is not None and not is_unfinished(module):
            importlib.import_module(file)
            WAITING.pop(name, None)
