"""What code that CPython runs reads of the process, and how each kind of it is guarded (`policy_tables.row.READS`).

Where a variable holds the state, the program's own read of it is guarded (`World.locate`). What only a function tells is asked again by
the guards of each call: a `Question`, evaluated when everything else has held. A question needs arguments that are values; where it
has others the graph breaks. Settings that the program itself changes break the graph where it does, so an answer at the entry is the
answer where the program asks.
"""

from __future__ import annotations

import abc
import copy
import decimal
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch

from pliant.guards import source as S
from pliant.guards.question import Question, Raised, Subclasses, is_value
from pliant.guards.views import only_writes
from pliant.interpret import globalstate
from pliant.interpret.state import Break, vm

Note = Callable[[Any, tuple, dict, Any], None]


def told(fn: Any, args: tuple, kwargs: dict, answer: Any) -> None:
    """Plumbing, and what does not change here: an entry on disk asks once, when it is taken up."""
    if type(answer) is not Raised:
        vm.world.asked.append((fn, args, kwargs, answer))


def nothing(fn: Any, args: tuple, kwargs: dict, answer: Any) -> None:
    """Guarded elsewhere, or nothing to guard."""


def question(fn: Any, args: tuple, kwargs: dict, answer: Any) -> None:
    """The guards of each call ask it again. Raises Break if its arguments are no values."""
    if not all(map(is_value, (*args, *kwargs.values()))):
        raise Break("PL0003", f"{getattr(fn, '__qualname__', fn)}() reads the state of the process, and is given objects", clean=True)
    if fn in globalstate.READERS:  # the program may have set it since
        answer = vm.world.entry_state[globalstate.READERS[fn]]
    vm.world.guard(S.const(fn), "ANSWER", Question(fn, args, dict(kwargs), answer), repr((args, kwargs)))


GUARDED = {("cpu",), ("cuda",)}


def of_autocast(fn: Any, args: tuple, kwargs: dict, answer: Any) -> None:
    if args not in GUARDED:
        question(fn, args, kwargs, answer)


C = torch._C
SWITCHES = tuple([getattr(C, name) for name in (
    "_get_flash_sdp_enabled _get_mem_efficient_sdp_enabled _get_math_sdp_enabled _get_cudnn_sdp_enabled _get_overrideable_sdp_enabled"
    " _get_sdp_priority_order _get_math_sdp_allow_fp16_bf16_reduction _get_mkldnn_enabled _get_cudnn_enabled _get_cudnn_benchmark"
    " _get_cudnn_deterministic _get_nnpack_enabled"
).split() if hasattr(C, name)])  # fmt: skip


def switches() -> tuple:
    """What decides which kernels PyTorch may choose among."""
    return tuple([repr(get()) for get in SWITCHES])


def of_kernels(fn: Any, args: tuple, kwargs: dict, answer: Any) -> None:
    state, readers = vm.world.entry_state, globalstate.READERS
    question(switches, (), {}, tuple([repr(state[readers[get]] if get in readers else get()) for get in SWITCHES]))


def of_device(fn: Any, args: tuple, kwargs: dict, answer: Any) -> None:
    if type(answer) is not Raised:
        now = torch.cuda.current_device()
        question(torch.cuda.current_device, (), {}, now)


def decimal_context() -> tuple:
    """What arithmetic with decimals reads of the thread's context, and what it writes there: signals that have come."""
    c = decimal.getcontext()
    flags, traps = [tuple([s for s, on in signals.items() if on]) for signals in (c.flags, c.traps)]
    return c.prec, c.rounding, c.Emin, c.Emax, c.capitals, c.clamp, flags, traps


def put_back(before: tuple) -> None:
    """The signals that had come when `decimal_context` was asked."""
    c = decimal.getcontext()
    c.clear_flags()
    for signal in before[6]:
        c.flags[signal] = True


def of_decimals(fn: Any, args: tuple, kwargs: dict, answer: Any) -> None:
    question(decimal_context, (), {}, decimal_context())


def some_warning_raises() -> bool:
    """Whether some warning is an error by now: then the program goes on elsewhere where it warns."""
    return "error" in [f[0] for f in warnings.filters] or warnings.defaultaction == "error"  # type: ignore[attr-defined]


def prints_are_written() -> bool:
    """Whether `print` writes to a stream and runs no code of the program's."""
    return only_writes(sys.stdout)


def way_of_warnings() -> str:
    """What becomes of a warning that is not filtered out: *written*, *kept* in a list (`catch_warnings(record=True)`), or *heard*."""
    w: Any = warnings
    if w.showwarning is not w._showwarning_orig or w.formatwarning is not w._formatwarning_orig:
        return "heard"
    impl = w._showwarnmsg_impl
    if type(impl) is types.FunctionType and impl.__globals__ is w._showwarning_orig.__globals__:
        return "written" if only_writes(sys.stderr) else "heard"
    return "kept" if kept_warnings() is not None else "heard"


def kept_warnings() -> list | None:
    """The list that warnings are put into, if so."""
    impl = warnings._showwarnmsg_impl  # type: ignore[attr-defined]
    kept = getattr(impl, "__self__", None)
    return kept if type(impl) is types.BuiltinFunctionType and impl.__name__ == "append" and type(kept) is list else None


SHORT = 600  # digits that no limit refuses


def digits(v: Any = None, *_: Any) -> None:
    """The text of a long number, or a number of a long text, is made: as long as the process allows it."""
    if (type(v) is int and v.bit_length() > 3 * SHORT) or (type(v) in (str, bytes, bytearray) and len(v) > SHORT):
        question(sys.get_int_max_str_digits, (), {}, sys.get_int_max_str_digits())


CODECS = {"utf-8", "utf8", "utf_8", "ascii", "us-ascii", "latin-1", "latin1", "latin_1", "iso-8859-1", "utf-16", "utf-32", "utf-16-le",
    "utf-16-be", "utf-32-le", "utf-32-be"}  # fmt: skip
ERRORS = {"strict", "ignore", "replace", "backslashreplace", "xmlcharrefreplace", "surrogateescape", "surrogatepass"}


def codec(encoding: Any = "utf-8", errors: Any = "strict") -> None:
    """Text is encoded or decoded. Raises Break for codecs and error handlers that programs may register."""
    if type(encoding) is not str or encoding.lower() not in CODECS or errors not in ERRORS:
        raise Break("PL0004", "codecs and their error handlers are looked up in registries that code may change", clean=True)


def registered() -> tuple:
    """What optree is told about containers, beyond those that it knows."""
    known: Any = sys.modules["optree._C"]
    return known.get_registry_size(), known.is_dict_insertion_ordered(""), known.is_dict_insertion_ordered("torch")


def of_trees(fn: Any, args: tuple, kwargs: dict, answer: Any) -> None:
    if type(answer) is Raised:
        return
    for a in (*args, *(answer if type(answer) is tuple else ())):
        if type(a).__qualname__ == "PyTreeSpec" and (a.namespace not in ("", "torch") or "CustomTreeNode(" in repr(a)):
            raise Break("PL0004", "a tree of a namespace of its own, or with classes that are registered as containers", clean=True)
    question(registered, (), {}, registered())


WRITTEN = {"decimal": decimal_context}
"""State that what reads it may also change, by what it reads: where it does, CPython has to run it."""


NOTES: dict[str, Note] = {
    "arguments": told,
    "process": told,
    "capture": nothing,
    "torch": nothing,
    "autocast": of_autocast,
    "itself": question,
    "decimal": of_decimals,
    "kernels": of_kernels,
    "device": of_device,
    "trees": of_trees,
    "caches": nothing,
    "asserted": nothing,
    "writes": nothing,
}


def note(reads: str, fn: Any, args: tuple, kwargs: dict, answer: Any) -> Any:
    """`fn` was run and answered: guard what it read. Returns what the program gets."""
    if type(answer) in (list, dict, set) and not any([answer is a for a in args]):  # the program may change its own
        NOTES[reads](fn, args, kwargs, copy.deepcopy(answer) if NOTES[reads] is question else copy.copy(answer))
        return answer
    NOTES[reads](fn, args, kwargs, answer)
    if NOTES[reads] is not question or type(answer) is Raised or is_value(answer):
        return answer
    return vm.world.locate(answer, S.const(answer))


# -- abstract classes ---------------------------------------------------------------------------------------------------
def is_subclass(t: type, cls: Any) -> bool:
    """`issubclass(t, cls)` of an abstract class: decided by what is registered and by the hooks of classes, and cached by `abc`.

    One guard for all that a capture asks: while nothing new is registered anywhere, `abc` itself would not ask again.
    """
    world = vm.world
    if id(t) in world.own_functions or id(cls) in world.own_functions:
        return issubclass(t, cls)
    asked = world.subclasses
    if asked is None:
        asked = world.subclasses = Subclasses()
        world.guard(S.const(abc.get_cache_token), "ANSWER", asked)
    return asked.note(t, cls)
