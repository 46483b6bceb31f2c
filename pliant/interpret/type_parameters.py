"""Type parameters and aliases that a program makes: `TypeVar("T")`, `def f[T](x: T)`, `class C[T]`, `type A[T] = list[T]`.

They are made for real and belong to the capture, as classes do: emitted code makes others in each call (`World.remade`). What CPython
works out when it is first asked for (a bound, a default, what an alias stands for) is code of the program: the graph breaks where it is
asked, whoever made the parameter, for what that code reads may have been changed in the capture.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable
from typing import Any

from pliant import native as engine
from pliant.bytecode.assemble import intrinsic
from pliant.graph.originals import gc
from pliant.interpret.calls import LOOKASIDES, METHOD_LOOKASIDES, native
from pliant.interpret.gate import to_c
from pliant.interpret.immutable import TYPE_PARAMETERS, dict_of
from pliant.interpret.state import Break, vm


def belongs(made: Any, fn: Any, args: tuple, kw: dict) -> Any:
    """Note how a parameter or an alias was made, and with which attributes: so will be the one of the emitted code."""
    world = vm.world
    world.own_functions[id(made)] = made
    world.remade[id(made)] = (fn, args, kw, dict(dict_of(made)))
    return made


# -- calls ---------------------------------------------------------------------------------------------------------------
def type_variable(cls: type, args: tuple, kw: dict) -> Any:
    """It knows the module that it is made in, which `typing` would look up among pliant's own frames."""
    given, by_name = tuple([to_c(cls, a) for a in args]), {k: to_c(cls, a) for k, a in kw.items()}
    made = engine.call_in_mode(engine.OFF, cls, given, by_name)
    made.__module__ = vm.frame.globals.get("__name__")
    return belongs(made, cls, args, kw)


for _cls in (typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple):
    LOOKASIDES[_cls] = functools.partial(type_variable, _cls)


# -- instructions (since 3.12) -----------------------------------------------------------------------------------------------
def parameter(number: int, *operands: Any) -> Any:
    """A parameter of a name, and maybe of a function that gives its bound or constraints; or an alias, of a tuple of its name, its
    parameters, and the function that says what it stands for."""
    fn = intrinsic(number, len(operands))
    return belongs(fn(*operands), fn, operands, {})


def generic_base(number: int, parameters: tuple) -> Any:
    """`Generic[T, *Ts]`, which holds the parameters as any annotation does."""
    return intrinsic(number, 1)(parameters)


def of_function(number: int, fn: Any, parameters: tuple) -> Any:
    vm.setattr(fn, "__type_params__", parameters)
    return fn


def with_default(number: int, made: Any, evaluate: Any) -> Any:
    if id(made) not in vm.world.remade:
        raise Break("PL0013", "a default of a type parameter that was made outside")
    maker, args, kw, _ = vm.world.remade[id(made)]
    fn = intrinsic(number, 2)
    return belongs(fn(made, evaluate), defaulted, (fn, evaluate, maker, *args), kw)


def defaulted(fn: Any, evaluate: Any, maker: Any, *args: Any, **kw: Any) -> Any:
    """In emitted code: a type parameter with its default."""
    return fn(maker(*args, **kw), evaluate)


INTRINSICS: dict[tuple[int, int], Callable] = {
    **dict.fromkeys(((1, 7), (1, 8), (1, 9), (1, 11), (2, 2), (2, 3)), parameter),
    (1, 10): generic_base,
    (2, 4): of_function,
    (2, 5): with_default,
}
"""By how many operands CPython's function takes and its number: what it does."""


def sees_its_class(body: Any) -> bool:
    """Whether something in a class body is worked out later, with the names of the class in sight: CPython gives it their dict."""
    return "__classdict__" in body.__code__.co_cellvars


# -- what is worked out later --------------------------------------------------------------------------------------------------
LATER = {"__value__", "__bound__", "__constraints__", "__default__"}


def unknown_yet(v: Any) -> bool:
    """Whether a function of the program is still to say what a parameter is limited to, or an alias stands for. Once it has, the
    object holds both, the answer before it or after it: where it holds more than one thing that may be either, it counts as unknown."""
    held = gc.get_referents(v)
    functions = [x for x in held if type(x) is types.FunctionType]
    if not functions:
        return False
    if type(v).__name__ == "TypeAliasType":
        return held[-1] is functions[-1]
    return len(functions) > 1 or held[1] is functions[0]


def ask(v: Any, name: str) -> None:
    """Attribute `name` of a type parameter or an alias is about to be read by C code."""
    if name in LATER and unknown_yet(v):
        raise Break("PL0013", f"{name} of {v!r} is worked out here", clean=True)


def substituted(v: Any, args: tuple, kw: dict) -> Any:
    """`A[int]`, where a parameter that is not given has its default."""
    if unknown_yet(v):
        raise Break("PL0013", f"a default of {v!r} may be worked out here", clean=True)
    return native(v.__typing_prepare_subst__, args, kw)


vm.ask_parameter = ask
for _kind in TYPE_PARAMETERS:
    if hasattr(_kind, "__typing_prepare_subst__") and not hasattr(_kind.__typing_prepare_subst__, "__code__"):
        METHOD_LOOKASIDES[_kind, "__typing_prepare_subst__"] = substituted
