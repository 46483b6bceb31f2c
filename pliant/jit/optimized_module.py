"""What makes a compiled module an `OptimizedModule` for libraries that ask whether a module is compiled.

Trainers (Lightning, accelerate) and pipelines (diffusers) ask `isinstance(model, torch._dynamo.OptimizedModule)` of what `torch.compile`
gave them, and take it apart: `_orig_mod` is the module, `dynamo_ctx(f)` compiles another function as the module is compiled,
`torch.compile(module, **_compile_kwargs)` compiles it again. `isinstance` looks at an object's type and then at its `__class__`: the latter
is a class that is an `OptimizedModule` behind all that the module's own class is. PyTorch itself is told the type: of such a module it
expects names with a prefix (`torch.distributed.checkpoint`), which ours does not have, and it gives modules other classes (`fully_shard`).
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

from pliant.interpret.lookasides import lookaside
from pliant.interpret.state import Break, vm

DYNAMO = "torch._dynamo.eval_frame"
#: What compiles a function as a module is compiled: `compile(function, config)`, from `compile.py`.
compilers: list[Callable[[Any, Any], Any]] = []


def class_of(module: Any) -> type:
    """`module.__class__` of a compiled module, for the code that called our caller."""
    return class_for(sys._getframe(2).f_globals, type(module))


@lookaside(class_of)
def class_within(args: tuple, kwargs: dict) -> type:
    """`class_of` where it is asked by what is being captured: the frame of the property stands between."""
    asking = vm.frame.parent if vm.frame is not None else None
    if asking is None or DYNAMO not in sys.modules:
        raise Break("PL0003", "the class of a compiled module")
    return class_for(asking.globals, type(args[0]))


def class_for(names: dict[str, Any], cls: type) -> type:
    """The class that code with these global names is told."""
    dynamo = sys.modules.get(DYNAMO)  # a program that has not imported TorchDynamo has no `OptimizedModule` to ask for
    asking = names.get("__name__", "")
    if asking == "torch.nn.utils.parametrize":  # it gives the module a class of its own, with properties in the place of parameters
        return type(cls._pliant_original)  # type: ignore[attr-defined]
    if asking.partition(".")[0] == "torch" or dynamo is None or "_compile_kwargs" not in cls.__dict__:  # `pliant.compile` made it
        return cls
    if "_pliant_shown" not in cls.__dict__:
        type.__setattr__(cls, "_pliant_shown", shown(cls, dynamo.OptimizedModule))
    return cls.__dict__["_pliant_shown"]


def shown(cls: type, optimized: type) -> type:
    """A class like `cls` that is an `OptimizedModule`, too, which comes last but `object`: none of its methods hides another."""

    def mro(made: Any) -> list[type]:
        order = type.mro(made)
        return order if optimized in order else [*order[:-1], optimized, object]

    meta = type(cls)
    made = type(meta.__name__, (meta,), {"mro": mro, "__module__": meta.__module__, "__qualname__": meta.__qualname__})
    body = {k: getattr(cls, k) for k in ("__module__", "__qualname__", "__doc__", "_pliant_original")}
    return type.__new__(made, cls.__name__, (cls,), body)


def compile_as(config: Any, fn: Any) -> Any:
    """`fn` compiled with the settings of a module, but for dims that were declared for the parameters of the module's own `forward`."""
    declared = isinstance(config.dynamic, tuple)
    return compilers[0](fn, dataclasses.replace(config, dynamic=None) if declared else config)
