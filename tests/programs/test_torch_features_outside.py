"""State of the outside that programs read and write: attributes of classes, thread-local objects, counters, weak references, paths.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import contextvars
import copy
import dataclasses
import functools
import inspect
import io
import itertools
import os
import pathlib
import struct
import sys
import threading
import types
import typing
import uuid
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.programs.registry import cases, each, program, programs, t

WHOLE = {"breaks": 0, "captures": 1}
LESS = {"breaks": 0}
ROWS = each(3, 5, 2, tail=(4,))


class Holder:
    pass


TARGET = nn.Linear(4, 4)
WREF = weakref.ref(TARGET)
WT = torch.ones(4)
WTR = weakref.ref(WT)
DEAD = weakref.ref(Holder())


class Typed(typing.TypedDict):
    a: Any


UU = uuid.UUID(int=5)
PATH = pathlib.PurePosixPath("/a/b.txt")
REAL = pathlib.Path("/a/b.txt")
STRUCT = struct.Struct("<i")


class AllMeta(type):
    def __subclasscheck__(c, o):
        return True

    def __instancecheck__(c, o):
        return True


LOG = []


class Odd(metaclass=AllMeta):
    def __new__(cls):
        return "text"

    def __init__(self):
        LOG.append(1)


def kinds(x, a, b=2, *c, d=3, **e):
    return x


class K:
    def m(self, q):
        return q


CVD = contextvars.ContextVar("CVD", default=[1, 2])
SENT = object()
CVS = contextvars.ContextVar("CVS", default=SENT)
MP = types.MappingProxyType({"k": 1})


class Plain:
    k = 2

    def f(s):
        return 1


programs(__name__, *ROWS, **WHOLE)({
    "weak_read": lambda x: (WREF() is TARGET, WREF()(x)),
    "weak_read2": lambda x: (TARGET is WREF(), WREF() is WREF(), WREF()(x)),
    "weak_dead": lambda x: (x + 1, DEAD() is None, DEAD()),
    "weak_tensor": lambda x: x + WTR() if WTR() is not None else x,
    "weak_tensor2": lambda x: x + WT + WTR(),
    "typed_dict": lambda x: (Typed(a=x), Typed.__annotations__.keys() == {"a"}),
    "odd": lambda x: (x, Odd(), len(LOG)),
    "uuid": lambda x: (x, UU.hex, str(UU), UU.int, UU == uuid.UUID(int=5), UU.version,
        uuid.UUID("00000000-0000-0000-0000-000000000007").fields),
    "path": lambda x: (x, str(PATH), PATH.name, PATH.parent.name, PATH / "c", PATH.suffix, REAL.stem, str(REAL / "d"),
        PATH.with_suffix(".q"), PATH.parts, REAL.is_absolute(), PATH == REAL, pathlib.Path("a") / "b", PATH.as_posix(),
        REAL.parents[0], os.fspath(REAL), repr(PATH), hash(PATH) == hash(PATH), PATH < REAL),
    "ospath": lambda x: (x, os.path.splitext("a.b"), os.path.basename("/a/b"), os.path.join("a", "b"),
        os.path.normpath("a/../b"), os.path.isabs("/a"), os.path.commonprefix(["ab", "ac"]), os.path.dirname("/a/b")),
    "struct": lambda x: (x, STRUCT.pack(5), STRUCT.size, STRUCT.unpack(b"\x05\x00\x00\x00"), struct.unpack("<i",
        b"\x01\x00\x00\x00")),
    "argspec": lambda x: (x, inspect.getfullargspec(kinds).args, inspect.getfullargspec(kinds).kwonlydefaults,
        inspect.getfullargspec(K().m).args, inspect.getfullargspec(kinds)._fields,
        "d" in inspect.getfullargspec(kinds).kwonlyargs),
    "groups": lambda x: [(m.exceptions[0].args, r.exceptions[0].args, g.subgroup(lambda e: isinstance(e, KeyError)).message,
        g.derive([ValueError()]).message, g.split(lambda e: True)[1]) for g in [ExceptionGroup("g", [ValueError("a"),
        KeyError("b")])] for m, r in [g.split(ValueError)]] + [x],
})  # fmt: skip


@program(*ROWS, world=True, **LESS)
def class_attr_mutated():
    class C:
        n = 0
        t = None

    def f(x):
        C.n += 1
        C.t = x.sum()
        return x + C.n
    return f, C


@program(*ROWS, world=True, **LESS)
def singleton_outside():
    class S:
        i = None

        def __new__(cls):
            if cls.i is None:
                cls.i = super().__new__(cls)
                cls.i.n = 3
            return cls.i
    return lambda x: x * S().n


@program(*ROWS, world=True, **LESS)
def class_counter():
    class M(nn.Module):
        calls = 0

        def __init__(s):
            super().__init__()
            s.a = nn.Linear(4, 4)

        def forward(s, x):
            type(s).calls += 1
            s.__class__.last = 3
            return s.a(x) + type(s).calls + s.calls

    class N(M):
        pass

    class Q(M):
        calls = 10
    torch.manual_seed(0)
    ms = [M(), N(), Q(), M(), N(), Q()]

    def f(x):
        for m in ms:
            x = m(x)
        return x, M.calls, N.calls, Q.calls, hasattr(N, "last"), getattr(Q, "last"), getattr(M, "zz", 3)
    return f, (ms, lambda: (M.calls, N.calls, Q.calls))


@program(*ROWS, world=True, **LESS)
def class_cache():
    class C:
        cache = {}
        made = None

        @classmethod
        def get(cls, n):
            if cls.made is None:
                cls.made = n
            if n not in cls.cache:
                cls.cache[n] = n * 2
            return cls.cache[n] + cls.made

    class D(C):
        pass
    return lambda x: x * C.get(x.shape[1]) + D.get(3), C


@program(*ROWS, world=True, **LESS)
def class_super():
    class A:
        k = 1

    class B(A):
        k = 2

        def f(s):
            return super().k

    def f(x):
        b = B()
        r = b.f()
        A.k = r + 1
        return x + b.f() + b.k + A().k + B.k
    return f, (A, lambda: A.k)


@program(*ROWS, world=True, **LESS)
def class_instance_hides():
    class A:
        k = 1
    a = A()
    b = A()
    b.k = 50

    def f(x):
        A.k = A.k + 1
        a.j = A.k
        r = a.k + b.k
        a.k = 7
        return x + r + a.k
    return f, (a, A)


@program(*ROWS, world=True, **LESS)
def class_inherit_after():
    class A:
        pass

    class B(A):
        pass

    class C2(B):
        q = 9

    def f(x):
        r = hasattr(B, "q")
        A.q = x.shape[1] + 1
        return x + B.q + B().q + C2.q + r
    return f


@program(*ROWS, world=True, **WHOLE)
def class_tensor():
    class A:
        t = torch.ones(4)
        l = [1]

    def f(x):
        A.t = A.t + x.sum(0)
        return x + A.t
    return f, A


@program(*ROWS, world=True, **LESS)
def class_prop():
    class A:
        _n = 0

        @property
        def n(s):
            return type(s)._n

        @n.setter
        def n(s, v):
            type(s)._n = v

        def __getattr__(s, name):
            return 5
    a = A()

    def f(x):
        a.n = a.n + 2
        return x * a.n + a.zz
    return f, A


@program(*ROWS, world=True, **LESS)
def class_error():
    class A:
        n = 0

    def f(x):
        A.n += 1
        if A.n == 3:
            raise ValueError("three")
        return x * A.n
    return f, A


@program(*ROWS, world=True, **LESS)
def class_dataclass():
    @dataclasses.dataclass
    class A:
        n: int = 3

    def f(x):
        r = A().n
        A.n = 8
        return x * A.n + A().n + r
    return f, A


@program(*ROWS, world=True, **LESS)
def class_getattr_cached():
    class A:
        n = 0

        def bump(s):
            A.n += 1
            return A.n
    a = A()

    def f(x):
        return x + a.bump() * 10 + a.bump() * 100 + a.bump() + a.n
    return f, A


@program(*ROWS, world=True, **WHOLE)
def weak_dies_later():
    d = {"h": Holder()}
    r = weakref.ref(d["h"])

    def f(x):
        return x + 1 if r() is None else x - 1
    return f, d


@program(*[(t(3, 4), i) for i in range(4)], world=True, **LESS)
def weak_dropped_between():
    d = {"h": Holder()}
    r = weakref.ref(d["h"])

    def f(x, i):
        a = r()
        if i == 1:
            d.clear()
        return x + (a is None)
    return f


@program(*ROWS, world=True, **LESS)
def count_outside():
    c = itertools.count(5)
    return lambda x: x + next(c)


@program(*ROWS, world=True, **LESS)
def count_step():
    c = itertools.count(5, 3)
    d = itertools.count(0.5, 0.25)
    return lambda x: (x + next(c) * next(c), next(c), next(d), next(d))


@program(*ROWS, world=True, **LESS)
def count_two_names():
    c = itertools.count(5)
    d = {"c": c}
    return lambda x: (x + next(c), next(d["c"]))


@program(*ROWS, world=True, **LESS)
def count_class_attr():
    class Node:
        ids = itertools.count()

        def __init__(s):
            s.id = next(Node.ids)
    return lambda x: x + Node().id + Node().id


@program(*ROWS, world=True, **LESS)
def count_for():
    c = itertools.count(1)

    def f(x):
        for i in c:
            x = x + i
            if i % 3 == 0:
                break
        return x
    return f


@program(*ROWS, world=True, **LESS)
def count_error():
    c = itertools.count(1)

    def f(x):
        if next(c) == 3:
            raise ValueError
        return x
    return f


@program(*ROWS, world=True, **WHOLE)
def count_made_here():
    def f(x):
        c = itertools.count(x.shape[0])
        return x + next(c), next(c), list(itertools.islice(c, 2)), list(zip(c, "ab"))
    return f


@program(*ROWS, world=True, **LESS)
def thread_local():
    l = threading.local()
    l.n = 0
    l.t = torch.ones(4)
    l.d = {}

    def f(x):
        l.n += 1
        l.d["a"] = l.n
        r = hasattr(l, "zz"), getattr(l, "yy", 3)
        l.tmp = x.sum()
        q = l.tmp + 1
        del l.tmp
        l.last = x
        return x * l.t + l.n + q, r, hasattr(l, "tmp")
    return f, l.__dict__


@program(*ROWS, world=True, **LESS)
def thread_local_missing():
    l = threading.local()

    def f(x):
        try:
            l.depth
        except AttributeError:
            l.depth = 0
        l.depth += 1
        return x + l.depth
    return f, l.__dict__


@program(*ROWS, **WHOLE)
def exception_at_hand_1(x):
    try:
        raise ValueError("q")
    except ValueError:
        t_, v, tb = sys.exc_info()
        r = t_.__name__, v.args, tb is not None, sys.exception().args
    return x, r, sys.exc_info()[0], sys.exception()


@program(*ROWS, **WHOLE)
def exception_at_hand_2(x):
    def f():
        return sys.exc_info()[0] is None
    a = f()
    try:
        raise KeyError
    except KeyError:
        b = f()
    return x, a, b, sys.exc_info()


@program(*ROWS)
def largest_of_tensors(x):
    return max(x.sum(), x.mean())


@program(*ROWS, **WHOLE)
def tensor_of_list_1(x):
    return torch.tensor([x.sum(), 1.0])


@program(*ROWS, **WHOLE)
def tensor_of_list_2(x):
    return torch.tensor([x.sum(), x.mean()])


@program(*ROWS, **WHOLE)
def tensor_of_list_3(x):
    return torch.tensor(np.float32(2)), torch.FloatTensor([1, 2]), torch.Tensor([3]), torch.LongTensor([2])


@program(*ROWS, **WHOLE)
def tensor_of_list_4(x):
    return torch.scalar_tensor(3), torch.tensor([]), torch.Tensor(2, 3).shape, torch.asarray([1, 2])


@program(*ROWS, **WHOLE)
def tensor_of_list_5(x):
    return torch.tensor([x.shape[0], 2]), torch.tensor(True), torch.as_tensor([1.0]), x.new_tensor([1,
        2]), torch.tensor([[1, 2], [3, 4]], dtype=x.dtype)


@program(*ROWS, **WHOLE)
def contained_1(x):
    return x + 1, 0.0 in x


@program(*ROWS)
def contained_2(x):
    return x + 1 if 0.0 in x else x - 1


@program(*ROWS, **WHOLE)
def contained_3(x):
    return x.__contains__(0.5), x


@program(*[(t(3, 4), i) for i in (0, 1, 0, 1, 2)], world=True, **LESS)
def cached_self_swapped():
    class B:
        def __init__(s, k):
            s.k = k

        @functools.lru_cache
        def f(s, n):
            return n * s.k
    bs = [B(2), B(3), B(4)]
    h = types.SimpleNamespace(b=bs[0])

    def f(x, i):
        r = x * h.b.f(3)
        h.b = bs[i]
        return r
    return f


@program(*ROWS, **WHOLE)
def ctx_default(x):
    return x * CVD.get()[0], CVS.get() is SENT


@program(*ROWS, **WHOLE)
def ctx_config(x):
    return x + 1, torch._dynamo.config.suppress_errors, torch._dynamo.config.recompile_limit > 0


@program(*ROWS, **WHOLE)
def deep_set(x):
    a = {"k": {1, 2}, "j": [{3}]}
    b = copy.deepcopy(a)
    b["k"].add(9)
    return x, a, b


@program(*ROWS, world=True, **WHOLE)
def deep_set_outside():
    s = {1, 2}

    def f(x):
        c = copy.deepcopy(s)
        c.add(5)
        return x + len(c) + len(s)
    return f, s


@program(*ROWS, **WHOLE)
def class_dict(x):
    found = x, "f" in Plain.__dict__, Plain.__dict__["k"], vars(Plain)["k"]
    of_dict = "k" in MP, MP["k"], types.MappingProxyType({"a": x})["a"]
    return found, of_dict, "zz" in vars(Plain), isinstance(Plain.__dict__["f"], types.FunctionType)


@program(*ROWS, **WHOLE)
def print_to_stderr(x):
    print("shape", x.shape, file=sys.stderr)
    print("b", file=sys.stdout, flush=True)
    print("c", file=None)
    return x + 1


@program(*ROWS, world=True, **WHOLE)
def print_to_text():
    b = io.StringIO()

    def f(x):
        print("n", x.shape[0], file=b)
        return x + 1
    return f, lambda: b.getvalue()


@program(*ROWS, **WHOLE)
def tensor_of_list_on_a_device(x):
    nested = torch.tensor([[x.sum(), 2], [3, x.mean()]], dtype=torch.float64, device="cpu")
    return torch.tensor([x.sum(), 1.0], device=x.device), nested


@program(*ROWS, **WHOLE)
def tensor_of_list_of_kinds(x):
    whole = torch.tensor([x.long().sum(), 1]), torch.tensor([(x > 0).any(), True]), torch.as_tensor((x.sum(), x.shape[0]))
    return whole, torch.tensor([x.long().sum(), 0.5]), torch.tensor([x.double().sum(), 1.0]), torch.tensor([x.sum()], dtype=torch.float16)


# -- written on one side of a branch on data, or in a loop on data: the graph breaks there, and both sides are right ------------------
SIGNS = [(t(3, 4) * s,) for s in (1, -1, 1, -1, 2, 0.5)]


@program(*SIGNS, world=True)
def counted_on_one_side():
    c = itertools.count()

    def f(x):
        y = x + (next(c) if (x + 1).sum() > 13 else 5)
        return y + next(c)

    return f


@program(*SIGNS, world=True)
def thread_local_written_on_one_side():
    own = threading.local()
    own.n = 0

    def f(x):
        if (x + 1).sum() > 13:
            own.n += 1
        return x + own.n

    return f, own.__dict__


@program(*SIGNS, world=True)
def class_written_in_a_loop_on_data():
    class A:
        n = 0

    def f(x):
        y = x.abs().sum() + 1
        while y < 200:
            y = y * 2
            A.n += 1
        return y + A.n

    return f


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_outside(case):
    case.run()
