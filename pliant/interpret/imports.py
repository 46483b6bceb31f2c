"""Import statements: of modules that are there, a guarded read of `sys.modules`; any other may run any code, and breaks the graph.

What `import a.b` means is decided by `builtins.__import__`, by `sys.modules` and, for relative imports, by `__package__`: all three are
guarded. `from a import b` is an attribute of the module, else the submodule `a.b`.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from types import ModuleType
from typing import Any

from pliant.bytecode import kinds as K
from pliant.guards import source as S
from pliant.interpret import namespaces
from pliant.interpret.attributes import getattr_
from pliant.interpret.capture import UNSET
from pliant.interpret.decode import op
from pliant.interpret.lookasides import lookaside
from pliant.interpret.opcodes import builtin
from pliant.interpret.state import Break, vm

IMPORT, MODULES = builtins.__import__, sys.modules


def modules_source() -> S.Source:
    source = S.const(sys).dict().key("modules")
    vm.world.guard(source, "TYPE_MATCH", dict)
    return source


def loaded(name: str) -> Any:
    """The module `sys.modules[name]`, guarded. Raises Break if it is not there: the import may run code, or find nothing."""
    source = modules_source()
    found = MODULES.get(name, UNSET)
    if sys.modules is not MODULES or found is UNSET or found is None or vm.world.global_writes and wrote_modules():
        if sys.modules is MODULES:
            vm.world.guard(source, "DICT_CONTAINS", (name, found is not UNSET), name)
        raise Break("PL0032", f"import of {name}, which may run code", clean=True)
    spec = getattr(found, "__spec__", None)
    if getattr(spec, "_initializing", False):
        raise Break("PL0032", f"import of {name}, which is being imported", clean=True)
    return vm.world.locate(found, source.key(name))


def wrote_modules() -> bool:
    return (id(sys.__dict__), "modules") in vm.world.global_writes


def package(f: Any) -> str:
    """What relative imports are relative to, as `importlib` works it out."""
    g = f.globals
    found = {}
    for name in ("__package__", "__spec__", "__name__"):
        source = vm.global_source(g, name)
        if name in g:
            found[name] = vm.world.locate(g[name], source)
        else:
            vm.world.guard(vm.globals_source(g), "DICT_CONTAINS", (name, False), name)
        if found.get("__package__") is not None:
            return found["__package__"]
        if found.get("__spec__") is not None:
            return getattr_(found["__spec__"], "parent")
    name = found["__name__"]
    return name if "__path__" in g else name.rpartition(".")[0]


def absolute(f: Any, name: str, level: int) -> str:
    if not level:
        return name
    base = package(f)
    parts = base.rsplit(".", level - 1)
    if not base or len(parts) < level:
        raise Break("PL0032", "a relative import of what has no parent", clean=True)  # CPython finds the words
    return f"{parts[0]}.{name}" if name else parts[0]


@op(K.IMPORT_NAME)
def import_name(f: Any, name: str) -> None:
    s = f.stack
    level, names = s[-2], s[-1]
    if id(f.globals) not in vm.world.outside:
        vm.world.adopt(f.globals, vm.globals_source(f.globals))  # where the graph breaks, they are given to CPython's import
    space = f.globals.get("__builtins__", builtins)
    if builtin(space if type(space) is dict else space.__dict__, "__import__") is not IMPORT:
        raise Break("PL0032", "an import by a function that replaced builtins.__import__", clean=True)
    full = absolute(f, name, level)
    found = loaded(full)
    if names:
        for n in names:
            submodule(found, n)
    elif not level and "." in name:
        found = loaded(name.partition(".")[0])
    elif level and "." in name:
        raise Break("PL0032", "a relative import without names", clean=True)
    s.pop()
    s[-1] = found


def submodule(module: Any, name: str) -> None:
    """`from module import name` imports the submodule of that name, where the module is a package and has no such attribute."""
    if not isinstance(module, ModuleType):
        return
    if name == "*":
        raise Break("PL0032", f"everything of {module.__name__} is imported", clean=True)
    if not has(module, "__path__") or has(module, name):
        return
    try:
        loaded(f"{module.__name__}.{name}")
    except Break:
        raise Break("PL0032", f"import of {name} from {module.__name__}, which may run code", clean=True) from None


def has(module: Any, name: str) -> bool:
    d = module.__dict__
    if name in d or (id(d), name) in vm.world.global_writes:
        return True
    if type(module) is not ModuleType or "__getattr__" in d:
        raise Break("PL0032", f"{name} of {module.__name__} is found by code of the module's own", clean=True)
    try:
        namespaces.attribute(module, name)
    except AttributeError:
        return False
    return True


@op(K.IMPORT_FROM)
def import_from(f: Any, name: str) -> None:
    m = f.stack[-1]
    try:
        v = getattr_(m, name)
    except AttributeError:
        full = f"{getattr_(m, '__name__')}.{name}"
        if full not in MODULES:
            vm.world.guard(modules_source(), "DICT_CONTAINS", (full, False), full)
            raise ImportError(f"cannot import name {name!r} from {m.__name__!r} ({getattr(m, '__file__', 'unknown location')})") from None
        v = loaded(full)
    f.stack.append(v)


@lookaside(importlib.import_module)
def l_import_module(args: tuple, kw: dict) -> Any:
    name = args[0] if args else kw.get("name")
    if type(name) is not str or name.startswith(".") or len(args) + len(kw) != 1:
        raise Break("PL0032", "an import by importlib", clean=True)
    return loaded(name)
