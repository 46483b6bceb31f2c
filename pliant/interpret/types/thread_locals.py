"""`threading.local()` objects: their attributes are those of the thread that runs, and guards read them in that very thread.

Subclasses are left out: their `__init__` runs where a thread asks for the first time.
"""

from __future__ import annotations

import threading
from typing import Any, NoReturn

from pliant.interpret import policy
from pliant.interpret.calls import LOOKASIDES, apply_kind
from pliant.interpret.capture import UNSET
from pliant.interpret.process_state import question
from pliant.interpret.state import Break, vm, writes
from pliant.interpret.types.row import row

MISSING = object()


class Lacks:
    """Guard predicate: the object has no such attribute, in this thread."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, o: Any) -> bool:
        return getattr(o, self.name, MISSING) is MISSING


def locate(world: Any, o: Any, source: Any) -> Any:
    world.guard(source, "TYPE_MATCH", threading.local)
    return world.adopt(o, source)


def before(o: Any, name: str) -> Any:
    """What the attribute was when the program began, or UNSET."""
    found, source = getattr(o, name, MISSING), vm.world.sources[id(o)]
    if found is MISSING:
        vm.world.guard(source, "PREDICATE", Lacks(name), name)
        return UNSET
    return vm.world.locate(found, source.attr(name))


def now(o: Any, name: str) -> Any:
    """What it is by now, or UNSET."""
    vm.world.unusual()
    written = vm.world.tensor_writes.get((id(o), name))
    return before(o, name) if written is None else written[1]


def getattr_(o: Any, name: str) -> Any:
    if id(o) not in vm.world.outside:
        return vm.native(getattr, (o, name), {})
    if hasattr(threading.local, name):
        if name == "__class__":
            return threading.local
        if name == "__dict__":
            return vm.world.reads.setdefault((vm.world.sources[id(o)], "names"), ThreadNames(o))
        raise Break("PL0007", f"attribute {name!r} of a _thread._local", clean=True)
    found = now(o, name)
    if found is UNSET:
        raise AttributeError(f"'_thread._local' object has no attribute {name!r}", name=name, obj=o)
    return found


def write(o: Any, name: str, value: Any) -> None:
    if hasattr(threading.local, name):
        raise Break("PL0006", f"attribute {name!r} of a _thread._local", clean=True)
    if vm.asking:
        writes()
    vm.world.unusual()
    vm.world.tensor_writes[(id(o), name)] = (o, value)


def setattr_(o: Any, name: str, value: Any) -> None:
    if id(o) not in vm.world.outside:
        vm.native(setattr, (o, name, value), {})
    else:
        write(o, name, value)


def delattr_(o: Any, name: str) -> None:
    if id(o) not in vm.world.outside:
        vm.native(delattr, (o, name), {})
    elif now(o, name) is UNSET:
        raise AttributeError(f"'_thread._local' object has no attribute {name!r}", name=name, obj=o)
    else:
        write(o, name, UNSET)
        if before(o, name) is UNSET:
            del vm.world.tensor_writes[(id(o), name)]


class ThreadNames:
    """Stands for the dict with the attributes of such an object, of the thread that runs. It is read by names alone."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def get(self, name: Any, default: Any = None) -> Any:
        return default if (found := item(self, name)) is UNSET else found


def refused(n: Any, *_: Any, **__: Any) -> NoReturn:
    raise Break("PL0007", "the attributes of a _thread._local as a dict", clean=True)


for _name in "eq ne hash str repr format len iter getitem contains reversed reduce_ex".split():  # C code that finds one
    setattr(ThreadNames, f"__{_name}__", refused)


def item(n: ThreadNames, name: Any) -> Any:
    """What is under this name, or UNSET."""
    if type(name) is not str or hasattr(threading.local, name):  # such a name may be in there
        refused(n)
    return now(n.of, name)


def item_of(n: ThreadNames, name: Any) -> Any:
    found = item(n, name)
    if found is UNSET:
        raise KeyError(name)
    return found


def refused_by(fn: Any, n: Any) -> NoReturn:
    refused(n)


LOOKASIDES[ThreadNames.get] = lambda args, kw: ThreadNames.get(*args, **kw) if not kw and 1 < len(args) < 4 else refused(None)


def l_get_ident(args: tuple, kw: dict) -> Any:
    """The number of the main thread stays what it is; each other one would be an entry of its own."""
    if args or kw or threading.current_thread() is not threading.main_thread():
        return apply_kind(policy.c_policy(threading.get_ident), threading.get_ident, args, kw)
    answer = threading.get_ident()
    vm.world.bound_here = "the number of a thread"
    question(threading.get_ident, (), {}, answer)
    return answer


LOOKASIDES[threading.get_ident] = l_get_ident
row(
    name="attributes of a thread-local object", stands=(ThreadNames,), type=lambda n: dict,
    getattr=lambda n, name: dict if name == "__class__" else n.get if name == "get" else refused(n), getitem=item_of,
    contains=lambda n, name: item(n, name) is not UNSET, truth=refused, length=refused, iter=refused, next=refused, to_c=refused_by,
    to_graph=refused_by, unary=refused_by, binary=refused, compare=refused,
    **dict.fromkeys("setattr delattr setitem delitem index number hashed text format call".split(), refused),
)  # fmt: skip
row(
    name="thread-local object", located=(threading.local,), stands=(threading.local,), locate=locate, getattr=getattr_, setattr=setattr_,
    delattr=delattr_,
)  # fmt: skip
