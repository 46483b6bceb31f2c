"""What code that is not interpreted calls by name: PyTorch's Python functions that run as one operation of the graph.

`F.relu(x)` calls `torch.relu`, `F.softmax(x)` the method `softmax`: who replaces these changes what the program computes. So the functions
that such code names are guarded by identity, and theirs in turn. Nearly all are names of a few modules, and one look at the version of a
module's dict tells that none of them has changed.
"""

from __future__ import annotations

import sys
import types
from types import FunctionType, ModuleType
from typing import Any

from torch._library.custom_ops import OPDEFS, CustomOpDef

from pliant.bytecode import instructions
from pliant.bytecode import kinds as K
from pliant.graph.originals import torch
from pliant.graph.symclasses import quiet
from pliant.graph.traced import tensors_of
from pliant.guards import source as S
from pliant.interpret.attributes import lookup
from pliant.interpret.capture import UNSET
from pliant.interpret.state import Break, vm
from pliant.interpret.world import TENSOR_TYPES

BuiltinType = types.BuiltinFunctionType
EMPTY = types.CellType()
METHODS = {name for b in torch.Tensor.__mro__ for name, v in vars(b).items() if callable(v) and not name.startswith("__")}
Named = tuple[list[tuple[ModuleType, str]], list[str]]
_named: dict[int, tuple[types.CodeType, Named]] = {}


def names_in(fn: FunctionType) -> Named:
    """The functions that a function of PyTorch names, as (module, name), and the methods of tensors."""
    code = fn.__code__
    found = _named.get(id(code))
    if found is None:
        found = _named[id(code)] = (code, walk(fn))
    return found[1]


def walk(fn: FunctionType) -> Named:
    home = sys.modules.get(fn.__globals__.get("__name__", ""))
    functions: dict[tuple[ModuleType, str], None] = {}
    methods: dict[str, None] = {}
    at: Any = None  # the module on top of the stack
    for i in instructions(fn.__code__):
        if i.kind is K.LOAD_GLOBAL and isinstance(home, ModuleType):
            at = note(home, i.operand[0], functions)
        elif i.kind in (K.LOAD_ATTR, K.LOAD_METHOD):
            if isinstance(at, ModuleType):
                at = note(at, i.operand, functions)
            elif i.operand in METHODS:
                methods[i.operand] = None
        elif i.kind not in (K.PUSH_NULL, K.NOP):
            at = None
    return list(functions), list(methods)


def note(module: ModuleType, name: str, functions: dict[tuple[ModuleType, str], None]) -> Any:
    v = vars(module).get(name)
    if isinstance(v, (FunctionType, BuiltinType)):
        functions[module, name] = None
    return v


def guard_name(module: ModuleType, name: str) -> Any:
    """What a module holds under a name, UNSET if nothing (the program may have taken it away); guarded."""
    found = vars(module).get(name, UNSET)
    if found is UNSET:
        vm.world.guard(S.const(module).dict(), "DICT_CONTAINS", (name, False), name)
    else:
        vm.world.guard(S.const(module).dict().key(name), "ID_MATCH", found)
    return found


def guard_inside(fn: FunctionType) -> None:
    """The program relied on what `fn`, which is run as it is, calls."""
    world = vm.world
    todo = [fn]
    while todo:
        f = todo.pop()
        key = (f, "inside")
        if key in world.lookups:
            continue
        world.lookups[key] = True
        functions, methods = names_in(f)
        for name in methods:
            lookup(torch.Tensor, name)
        for module, name in functions:
            v = vars(module).get(name)
            if not module.__name__.startswith("torch"):
                continue
            guard_name(module, name)
            if type(v) is FunctionType and v.__module__ == f.__module__:
                todo.append(v)
        todo += [c.cell_contents for c in f.__closure__ or () if c != EMPTY and type(c.cell_contents) is FunctionType]


#: What was registered with an operator of the program's and is read while its graph is captured.
RULES = frozenset(("_abstract_fn", "_setup_context_fn", "_backward_fn", "_vmap_fn"))
TABLES = frozenset(("_torch_dispatch_fns", "_autocast_dtype"))
OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)


resolve = torch._C._jit_resolve_packet


def overload_of(fn: Any, args: tuple, kwargs: dict) -> Any:
    """The overload that a packet of several means by these arguments. While it looks for that, C++ writes down why the others do not
    fit, with the texts of the arguments; nobody reads it."""
    if type(fn) is not torch._ops.OpOverloadPacket or len(fn._overload_names) < 2 or fn._has_torchbind_op_overload:
        return fn
    if vm.world.has_subclasses and torch._C._is_torch_function_enabled():  # classes are told of what is called
        if not all([t.pytype in TENSOR_TYPES for t in tensors_of([args, kwargs])]):
            return fn
    try:
        with quiet():
            return getattr(fn, resolve(fn._qualified_op_name, *args, **kwargs))
    except Exception:  # none fits, and what is called says so
        return fn


def guard_rules(fn: Any) -> None:
    """The program relied on what is registered with a custom operator (`torch.library.custom_op`): its gradient, how it is batched."""
    packet = fn.overloadpacket if type(fn) is torch._ops.OpOverload else fn
    definition = fn if type(fn) is CustomOpDef else OPDEFS.get(packet._qualified_op_name)
    world = vm.world
    if definition is not None and world.in_transform and world.has_subclasses:
        raise Break("PL0030", f"{definition._qualname} in a function transform: its rules may be given tensors of a subclass", clean=True)
    if definition is None or (definition, "rules") in world.lookups:
        return
    world.lookups[definition, "rules"] = True
    held = S.const(definition).dict()
    for name in sorted(RULES | TABLES):
        if name not in vars(definition):  # the program has taken it away
            world.guard(held, "DICT_CONTAINS", (name, False), name)
    for name in sorted(vars(definition).keys() & RULES):
        rule = vars(definition)[name]
        world.guard(held.key(name), "ID_MATCH", rule)
        if type(rule) is FunctionType:
            guard_reads(rule, held.key(name))
    for name in sorted(vars(definition).keys() & TABLES):
        table = vars(definition)[name]
        if type(table) is not dict:
            raise Break("PL0030", f"{definition._qualname}, whose {name} is no dict", clean=True)
        world.guard(held.key(name), "DICT_KEYS", list(table))
        for key, value in table.items():
            world.guard(held.key(name).key(key), "ID_MATCH", value)


CONSTANTS = frozenset((bool, int, float, complex, str, bytes, type(None)))
SETTLED = (BuiltinType, types.MethodDescriptorType, torch.dtype, torch.device, torch.layout, torch.memory_format, *OPERATORS, CustomOpDef)
"""What says by its identity all that a rule reads of it; what is registered with an operator is guarded where the rule calls it."""
LIBRARIES = frozenset((*sys.stdlib_module_names, "torch", "numpy"))
OUTWARD = (K.STORE_GLOBAL, K.DELETE_GLOBAL, K.IMPORT_NAME, K.LOAD_NAME, K.LOAD_BUILD_CLASS)


def of_library(name: Any) -> bool:
    return str(name).partition(".")[0] in LIBRARIES


def guard_reads(fn: FunctionType, source: S.Source) -> None:
    """What a function of the program's that runs as it is (a rule of an operator) reads of the outside: guarded by value. Raises Break for
    what no guard holds."""
    world = vm.world
    world.guard(source, "FUNCTION", (fn.__code__, fn.__defaults__, fn.__kwdefaults__))
    key = (fn, "reads")
    if of_library(fn.__module__) or key in world.lookups:
        return
    world.lookups[key] = True
    for v in (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()):
        if type(v) not in CONSTANTS:
            raise unsettled(fn, v)
    for i, cell in enumerate(fn.__closure__ or ()):
        if cell == EMPTY:
            raise unsettled(fn, cell)
        settle(fn, cell.cell_contents, S.const(fn).cell(i))
    todo = [fn.__code__]
    while todo:
        code = todo.pop()
        todo += [c for c in code.co_consts if type(c) is types.CodeType]
        for step in instructions(code):
            if step.kind in OUTWARD:
                raise unsettled(fn, code)
            if step.kind is K.LOAD_GLOBAL:
                name, at = step.operand[0], S.const(fn.__globals__)
                if name in fn.__globals__:
                    settle(fn, fn.__globals__[name], at.key(name))
                else:
                    world.guard(at, "DICT_CONTAINS", (name, False), name)


def settle(fn: FunctionType, v: Any, source: S.Source) -> None:
    t = type(v)
    if t in CONSTANTS or t is tuple and all([type(x) in CONSTANTS for x in v]):
        vm.world.guard(source, "EQ_MATCH", v)
        return
    vm.world.guard(source, "ID_MATCH", v)
    if t is FunctionType:
        guard_reads(v, source)
    elif t is ModuleType or isinstance(v, type):
        if not of_library(v.__name__ if t is ModuleType else v.__module__):
            raise unsettled(fn, v)
    elif t is CustomOpDef:
        guard_rules(v)
    elif not isinstance(v, SETTLED):
        raise unsettled(fn, v)


def unsettled(fn: FunctionType, v: Any) -> Break:
    return Break("PL0030", f"a rule of an operator, {fn.__qualname__}, that reads a {type(v).__qualname__} of the outside", clean=True)
