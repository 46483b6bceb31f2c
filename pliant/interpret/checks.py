"""Irrefutable guards of the program's own: `torch._check(n >= 0, "...")`, `assert n > 0`, `if n < 0: raise ValueError("...")`.

Where n is known only when the graph runs, such a line is no branch: if it fails the program raises. So the condition becomes a runtime
assertion with the program's exception and words, and a fact from there on. Not where a handler takes it: there the program may go on.
"""

from __future__ import annotations

import builtins
import dataclasses
from typing import Any

from pliant.bytecode import kinds as K
from pliant.graph.handlers import has_written
from pliant.graph.originals import torch
from pliant.graph.symclasses import quiet
from pliant.graph.symnode import SYMS, truth
from pliant.graph.traced import TracedTensor
from pliant.guards.guard import Site
from pliant.interpret import raised_before
from pliant.interpret.late_errors import caught, handles, is_dirty
from pliant.interpret.lookasides import lookaside
from pliant.interpret.state import Break, current_site, vm
from pliant.interpret.types.tensors import item
from pliant.symbolic import DataDependent, ops

CHECKS: dict[Any, type[Exception]] = {
    torch._check: RuntimeError,
    torch._check_index: IndexError,
    torch._check_value: ValueError,
    torch._check_type: TypeError,
    torch._check_not_implemented: NotImplementedError,
}
SYMBOLIC = (torch.SymBool, torch.SymInt)


def check(fn: Any, error: type[Exception]) -> Any:
    def checked(args: tuple, kw: dict) -> None:
        cond = args[0] if args else kw.get("cond")
        message = args[1] if len(args) > 1 else kw.get("message")
        if type(cond) is torch.SymBool and cond.node.expr.const is None:
            if vm.scope.assume(cond.node.expr, current_site(), words(message) or words_behind_write(message), error):
                return
            cond = False
        fn(cond, *args[1:], **{k: v for k, v in kw.items() if k != "cond"})

    return checked


for _fn, _error in CHECKS.items():
    lookaside(_fn)(check(_fn, _error))


@lookaside(torch._check_is_size)
def check_is_size(args: tuple, kw: dict) -> None:
    n = args[0] if args else kw["i"]
    most = kw.get("max", args[2] if len(args) > 2 else None)
    check(torch._check, RuntimeError)((n >= 0,), {})
    if most is not None:
        check(torch._check, RuntimeError)((n <= most,), {})


def words(message: Any) -> str:
    """The text of a message, if it does not tell sizes: those are known when it is shown, not now. "" otherwise."""
    if message is None or isinstance(message, str):
        return message or ""
    scope = vm.scope
    token, asked = scope.snapshot(), len(scope.all_guards)
    try:
        with quiet():
            text = vm.call(message, (), {})
    except (DataDependent, Break):
        text = None
    if len(scope.all_guards) != asked:
        scope.rollback(token)
        return ""
    return text if type(text) is str else ""


NO_MESSAGE = (
    "Expected cond to be True, but got False. (Could this error message be improved? "
    "If so, please report an enhancement request to PyTorch.)"
)


def words_behind_write(message: Any) -> str:
    """The words where CPython cannot be asked for them. Raises Break where only the run makes them."""
    if not is_dirty(vm.trace, len(vm.trace.ops)):
        return ""
    if message is not None and not vm.config.fullgraph:
        raise Break("PL0041", "an assertion behind a write, whose words the run makes")
    return NO_MESSAGE if message is None else ""


# lines that raise ------------------------------------------------------------------------------------------------
def needed(f: Any, v: Any, wanted: bool, at: int) -> bool:
    """At a jump of which one side (the instructions from `at` on) only raises: require `v` to be `wanted`, if only the run can tell
    whether it is."""
    if vm.rehearsing:
        return False  # the code runs again, in CPython, and its branch is one
    if type(v) is TracedTensor:
        if vm.asking or raised_uncaught(f, at) is None or has_written(vm.trace):
            return False
        if any([type(n) is not int or n != 1 for n in v.sizes]):
            return False
        v = item(v)
        if type(v) not in SYMS:
            return bool(v) is wanted
    expr = v.node.expr
    found = None if expr.backed else raised_uncaught(f, at)
    if found is None:
        return False
    if raised_before.at(where_raised(f, at)):
        return False  # it is a branch
    cond = truth(expr)
    return vm.scope.assume(cond if wanted else ops.not_(cond), where_raised(f, at), found[1], found[0])


def where_raised(f: Any, at: int) -> Site | None:
    """The jump at hand, with the line of the `raise` on that side: a traceback has that one."""
    site, d = current_site(), f.decoded
    return site and dataclasses.replace(site, lineno=d.site(d.kinds.index(K.RAISE, at)).lineno)


PAUSES = {K.YIELD, K.SEND, K.GET_AWAITABLE, K.ENTER, K.LOAD_SPECIAL}


def asked_of(f: Any, at: int) -> tuple[type[Exception], str] | None:
    """The exception and its words that the instructions from `at` on raise. Words that the run makes are not told: where memory from
    outside has not been written to, CPython raises them."""
    found = raised(f, at)
    if found is None:
        found = raised_with_words(f, at)
        if found is not None and has_written(vm.trace):
            return None
    return None if found is None or is_answer(f, found[0]) else found


def raised_with_words(f: Any, at: int) -> tuple[type[Exception], str] | None:
    """The exception, if the instructions from `at` on do nothing but to make it, one after the other, and raise it."""
    i, kinds, ins = at, f.decoded.kinds, f.decoded.ins
    if kinds[i] is not K.LOAD_GLOBAL and kinds[i] is not K.LOAD_ASSERTION_ERROR:
        return None
    name = ins[i][1][0] if kinds[i] is K.LOAD_GLOBAL else "AssertionError"
    error = f.globals.get(name, getattr(builtins, name, None))
    if not (isinstance(error, type) and issubclass(error, Exception)):
        return None
    while i < len(kinds) and kinds[i] is not K.RAISE:
        if kinds[i].branch or kinds[i].ends or kinds[i] in PAUSES:
            return None
        i += 1
    return (error, "") if i < len(kinds) else None


def raised(f: Any, at: int) -> tuple[type[Exception], str] | None:
    """The exception and its constant words, if that is all that the instructions from `at` on are about."""
    i, kinds, ins = at, f.decoded.kinds, f.decoded.ins
    error: Any = AssertionError
    if kinds[i] is K.LOAD_GLOBAL:
        name = ins[i][1][0]
        error = getattr(builtins, name, None) if name not in f.globals else None
    elif kinds[i] is not K.LOAD_ASSERTION_ERROR:
        return None
    if not (isinstance(error, type) and issubclass(error, Exception)):
        return None
    i += 1
    text = ""
    if kinds[i] is K.LOAD_CONST and isinstance(ins[i][1], str):
        text = ins[i][1]
        i += 1
    while kinds[i] in (K.NOP, K.CALL):
        i += 1
    return (error, text) if kinds[i] is K.RAISE else None


ANSWERS = (StopIteration, StopAsyncIteration, AttributeError)


def is_answer(f: Any, error: type[Exception]) -> bool:
    """Whether this exception says something to who asked (a loop, `hasattr`), without any `try`: the program goes on."""
    if issubclass(error, ANSWERS):
        return True
    while f is not None and issubclass(error, IndexError):  # how a sequence ends that has no `__iter__`
        if f.code.co_name == "__getitem__":
            return True
        f = f.parent
    return False


def raised_uncaught(f: Any, at: int) -> tuple[type[Exception], str] | None:
    """The same, unless a handler of the program takes the exception, or it gets a context that the graph could not give it."""
    found = asked_of(f, at)
    if found is None or caught(f, (found[0],)) or handles(f) and is_dirty(vm.trace, len(vm.trace.ops)):
        return None
    return found


def handled(f: Any) -> bool:
    """Whether an exception raised now meets a handler of the program, whatever it takes."""
    while f is not None:
        i = f.pc - 1
        if any(start <= i < stop for start, stop, _, _, _ in f.decoded.table):
            return True
        f = f.parent
    return False


vm.needed = needed
