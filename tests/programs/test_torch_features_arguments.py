"""Objects of all kinds as arguments, and the library around tensors.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import abc
import base64
import collections
import contextlib
import copy
import dataclasses
import datetime
import decimal
import enum
import functools
import hashlib
import inspect
import itertools
import json
import math
import operator
import pathlib
import re
import string
import textwrap
import types
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from tests.helpers import call
from tests.programs.registry import cases, each, program, t

WHOLE = {"breaks": 0, "captures": 1}
LESS = {"breaks": 0}
ROWS = each(3, 5, 2, tail=(4,))


def given(options, *values):
    """Each call with another value beside the tensor."""
    sizes = itertools.cycle([3, 5, 2])
    return program(*[(t(n, 4), *(v if type(v) is tuple else (v,))) for n, v in zip(sizes, values, strict=False)], **options)


class P:
    def __init__(s, a, b=None):
        s.a, s.b = a, b

    def f(s, x):
        return x * s.a


@dataclasses.dataclass
class DC:
    a: Any
    n: int = 2


NT = collections.namedtuple("NT", "a b")


class En(enum.Enum):
    A = 1
    B = 2


def zlib_crc(b):
    import zlib
    return zlib.crc32(b)


@given(LESS, P(2), P(3), P(5))
def given_object(x, p):
    p.b = x.sum()
    return p.f(x) + (p.b > 0)


@given(LESS, DC(2), DC(3), DC(4, 5))
def given_dataclass(x, d):
    d.n += 1
    return x * d.a + d.n


@given(LESS, En.A, En.B, En.A)
def given_enum(x, e):
    return x * e.value if e is En.A else x - 1


@given(LESS, (ValueError("a"),), (KeyError("b"),), (ValueError("c"),))
def given_exception(x, e):
    try:
        raise e
    except ValueError as v:
        return x + 1, v.args
    except KeyError as k:
        return x - 1, k.args


@given(LESS, (collections.deque([1, 2]),), (collections.deque([3]),), (collections.deque([4, 5, 6]),))
def given_deque(x, q):
    q.append(7)
    return x * q[0] + len(q) + sum(q)


@given(LESS, (collections.OrderedDict(a=1),), (collections.OrderedDict(a=2, b=3),))
def given_ordereddict(x, o):
    return x * o["a"] + len(o), list(o), o.popitem()


@given(LESS, (collections.defaultdict(list, a=[1]),), (collections.defaultdict(list, a=[1, 2]),))
def given_defaultdict(x, d):
    d["z"].append(3)
    return x * len(d["a"]) + len(d)


@given(WHOLE, (collections.Counter("aab"),), (collections.Counter("ab"),))
def given_counter(x, c):
    return x * c["a"] + c.most_common(1)[0][1]


@given(LESS, (types.SimpleNamespace(a=1, b=torch.ones(4)),), (types.SimpleNamespace(a=3, b=torch.zeros(4)),))
def given_namespace(x, n):
    n.c = n.a + 1
    return x * n.a + n.b + n.c


@given(LESS, (frozenset([1, 2]),), (frozenset([3]),))
def given_frozenset(x, s):
    return x * len(s) + (1 in s) + sum(s)


@given(WHOLE, (nn.Linear(4, 4),), (nn.Linear(4, 4),))
def given_module(x, m):
    return m(x) + m.in_features


@given(WHOLE, (torch.Size([2, 2]),), (torch.Size([1, 3]),))
def given_size(x, s):
    return x[:s[0], :s[1]] + s.numel(), torch.zeros(s), x.new_zeros(s)


@given(LESS, (functools.partial(torch.add, other=2),), (functools.partial(torch.mul, other=3),))
def given_partial(x, p):
    return p(x)


@given(LESS, (P(2).f,), (P(3).f,))
def given_method(x, m):
    return m(x)


@given(LESS, (torch.nn.functional.relu, 1), (torch.tanh, 2))
def given_fn_and_int(x, f, n):
    return f(x) * n


@given(LESS, ([lambda v: v + 1, torch.sin],), ([torch.cos, lambda v: v * 2],))
def given_fn_list(x, fs):
    for f in fs:
        x = f(x)
    return x


@given(WHOLE, ({"a": [torch.ones(4), {"b": 2}]},), ({"a": [torch.zeros(4), {"b": 3}]},))
def given_nested(x, d):
    d["a"].append(x)
    return x * d["a"][0] + d["a"][1]["b"]


@given(LESS, (datetime.date(2020, 1, 1),), (datetime.date(2021, 1, 2),))
def given_date(x, d):
    return x * d.year + d.day


@given(LESS, (pathlib.PurePosixPath("a/b"),), (pathlib.PurePosixPath("c"),))
def given_path(x, p):
    return x, p.name, str(p / "q")


@given(LESS, (re.compile("a"),), (re.compile("b"),))
def given_regex(x, r):
    return x, bool(r.search("abc")), r.pattern


@given(LESS, (decimal.Decimal("1.5"),), (decimal.Decimal("2.5"),))
def given_decimal(x, d):
    return x, d * 2


@given(LESS, (contextlib.nullcontext(3),), (contextlib.nullcontext(4),))
def given_ctx(x, c):
    with c as v:
        return x * v


@given(LESS, (torch.no_grad(),), (torch.enable_grad(),))
def given_grad_ctx(x, c):
    with c:
        return x + torch.is_grad_enabled()


@given(LESS, (torch.autocast("cpu", dtype=torch.bfloat16),), (torch.autocast("cpu", enabled=False),))
def given_autocast_ctx(x, c):
    with c:
        return x @ x.T


@given(LESS, ({1: "a", "k": 2, None: 3, (1, 2): 4},), ({1: "b", "k": 5, None: 6, (1, 2): 7},))
def given_mixed_keys(x, d):
    return x * d["k"] + d[None] + d[1, 2], d[1]


@given(LESS, (torch.float32, torch.strided, torch.contiguous_format), (torch.float64, torch.strided, torch.preserve_format))
def given_torch_consts(x, d, l, m):
    return torch.zeros(2, dtype=d, layout=l), x.clone(memory_format=m)


@given(LESS, (type(None), int), (str, float))
def given_types(x, a, b):
    return x, isinstance(None, a), b(3), issubclass(bool, b)


@given(LESS, (np.arange(3), np.float32(2)), (np.arange(5), np.float32(3)))
def given_numpy(x, a, s):
    return x * s + a.sum(), a * 2, len(a)


@given(LESS, (torch.device("cpu"), "cpu"), (torch.device("cpu"), "cpu:0"))
def given_devices(x, d, s):
    return torch.ones(2, device=d) + torch.ones(2, device=s), d == torch.device(s)


@given(WHOLE, ((1, (2, [3, {"k": (4,)}])),), ((5, (6, [7, {"k": (8,)}])),))
def given_deep_tuple(x, v):
    a, (b, [c, d]) = v
    return x * a + b + c + d["k"][0]


@given(LESS, (None, None), (1, None), (None, 2))
def given_two_optional(x, a=None, b=None):
    return x + (a or 0) + (b if b is not None else 10)


@given(LESS, *[(i,) for i in range(6)])
def given_int_zero_one(x, n):
    return x[:, :n] if n else x, x * n, [x] * n, range(n)


@given(LESS, (0.0,), (1.0,), (-1.5,), (2.0,))
def given_float_zero(x, f):
    return x + f if f else x, x / (f + 3), max(f, 0.5), f == 1.0, int(f)


@given(LESS, (True, 1), (False, 0), (True, 2))
def given_bool_int(x, b, i):
    return x * b + i, b == i, b and i, type(b).__name__


@given(LESS, (lambda x, **k: x + len(k), {"a": 1}), (lambda x, **k: x - k["b"], {"b": 2}))
def given_fn_kwargs(x, f, k):
    return f(x, **k)


@program(call(t(3, 4), k=2), call(t(5, 4), k=3, z=1), call(x=t(2, 4)), **WHOLE)
def kw_call(x, k=1, *, z=5, **rest):
    return x * k + z + len(rest)


@program(call(t(3, 4), t(3, 4), a=1), call(t(5, 4), a=2), call(t(2, 4), t(2, 4), t(2, 4)), **LESS)
def kw_varargs(*xs, **kw):
    return sum(xs) + kw.get("a", 0) + len(xs)


@program(*ROWS, **WHOLE)
def library_math(x):
    return x, math.hypot(3, 4), math.dist([1], [2]), math.factorial(5), math.perm(4, 2), math.lcm(4,
        6), math.modf(2.5), math.frexp(8), math.ldexp(0.5, 3), math.trunc(-2.5), math.fmod(7, 3), math.remainder(7,
        4), math.degrees(1), math.tau, math.exp(1), math.log(8, 2), math.log10(100), math.isclose(1,
        1.0), math.ulp(1.0), math.nextafter(1, 2), math.cbrt(8) if hasattr(math, "cbrt") else 2


@program(*ROWS, **WHOLE)
def library_statistics(x):
    import statistics
    return x, statistics.mean([1, 2, 3]), statistics.median([1, 5, 2]), statistics.pstdev([1, 2])


@program(*ROWS, **WHOLE)
def library_fractions(x):
    import fractions
    f = fractions.Fraction(1, 3)
    return x * float(f), f + 1, f.numerator


@program(*ROWS, **WHOLE)
def library_contextlib(x):
    log = []

    @contextlib.contextmanager
    def c(n):
        log.append(n)
        try:
            yield n
        finally:
            log.append(-n)
    with contextlib.ExitStack() as s:
        vs = [s.enter_context(c(i)) for i in (1, 2)]
        s.callback(lambda: log.append("cb"))
    with contextlib.suppress(ValueError):
        raise ValueError
    with contextlib.nullcontext():
        pass
    return x * sum(vs), log


@program(*ROWS, **WHOLE)
def library_copy(x):
    a = {"k": [x, 1]}
    b = copy.copy(a)
    c = copy.deepcopy({"q": [1, (2, {3})]})
    return b["k"] is a["k"], c, copy.copy((1, 2)), copy.deepcopy(x).shape, copy.copy([x])[0] is x


@program(*ROWS, **WHOLE)
def library_deepcopy_obj(x):
    p = P(2, [1, 2])
    q = copy.deepcopy(p)
    q.b.append(3)
    r = copy.copy(p)
    return x * q.a, p.b, q.b, r.b is p.b, type(q) is P


@program(*ROWS, **WHOLE)
def library_json(x):
    return x, json.loads(json.dumps({"a": [1, None, True, 2.5, "s"]})), json.dumps([1], indent=1), json.dumps({"b": 1,
        "a": 2}, sort_keys=True)


@program(*ROWS, **WHOLE)
def library_re(x):
    return (x, re.sub("(\\d)", "<\\1>", "a1"), re.split("\\W+", "a b"), re.fullmatch("a+", "aa").group(),
        re.findall("(a)(b)", "abab"), re.compile("x", re.I).match("X") is not None, re.sub("a",
        lambda m: m.group().upper(), "abc"), re.escape("a.b"), [m.span() for m in re.finditer("a", "aba")],
        re.match("(?P<n>\\d+)", "12").groupdict())


@program(*ROWS, **WHOLE)
def library_operator(x):
    return operator.add(x, 1), operator.itemgetter(1, 0)([5, 6]), operator.attrgetter("ndim",
        "dtype")(x), operator.methodcaller("sum", dim=0)(x), operator.mul(2, x), operator.setitem([1, 2], 0,
        3), operator.getitem([1], 0), operator.concat([1], [2]), operator.countOf([1, 1], 1), operator.indexOf([1, 2],
        2), operator.lt(1, 2), operator.and_(3, 1), operator.pow(x, 2), operator.iadd([1], [2]), operator.is_not(1,
        None), operator.inv(3), operator.matmul(x, x.T)


@program(*ROWS, **WHOLE)
def library_string(x):
    return x, string.capwords("a b"), string.Template("$a").safe_substitute(), string.punctuation[:2], string.Formatter().format("{}", 1)


@program(*ROWS, **WHOLE)
def library_textwrap(x):
    return x, textwrap.indent("a", "  "), textwrap.fill("a b", 3), textwrap.shorten("hello world", 8)


@program(*ROWS, **WHOLE)
def library_types(x):
    return x, types.MappingProxyType({"a": 1})["a"], types.SimpleNamespace(**{"z": 1}).z, isinstance(len,
        types.BuiltinFunctionType), isinstance(library_types, types.FunctionType), isinstance(types,
        types.ModuleType), isinstance(P(1).f, types.MethodType), types.NoneType


@program(*ROWS, **WHOLE)
def library_inspect(x):
    return (x, inspect.isfunction(P.f), inspect.ismethod(P(1).f), inspect.signature(P.f).parameters["x"].kind,
        list(inspect.signature(P).parameters), inspect.signature(lambda a, b=2, *c, d: 1).parameters["d"].kind.name,
        inspect.isgenerator(i for i in []), inspect.Parameter.empty, inspect.isabstract(P), inspect.isroutine(len),
        inspect.ismodule(torch), inspect.isdatadescriptor(property()))


@program(*ROWS, **WHOLE)
def library_enum_made(x):
    E = enum.Enum("E", "A B")
    I = enum.IntEnum("I", {"X": 3})

    class F_(enum.Flag):
        A = enum.auto()
        B = enum.auto()

    @enum.unique
    class U(enum.Enum):
        P = 1
        Q = 2
    return (x * I.X, E.A.name, E(2), (F_.A | F_.B).value, U.Q.value, [e.name for e in U])


@program(*ROWS, **WHOLE)
def library_abc_made(x):
    class A(abc.ABC):
        @abc.abstractmethod
        def f(s):
            ...

    class B(A):
        def f(s):
            return x + 1
    try:
        A()
    except TypeError:
        bad = True
    return B().f(), bad, isinstance(B(), A), issubclass(B, A)


@program(*ROWS, **WHOLE)
def library_hash_text(x):
    return x, hashlib.sha1(b"a").hexdigest(), base64.b64decode("YWI="), hash("a") == hash("a"), zlib_crc(b"a")


@program(*ROWS, **WHOLE)
def library_pytree_custom(x):
    leaves, spec = pytree.tree_flatten({"a": NT(x, 1), "b": collections.OrderedDict(z=[x + 1])})
    return (pytree.tree_unflatten([l * 2 for l in leaves], spec), pytree.tree_any(lambda v: v is x, [x]),
        pytree.tree_flatten((x, None))[0], pytree.tree_map(lambda a, b: a, [1, 2], [3, 4]))


@program(*ROWS, **WHOLE)
def library_torch_misc(x):
    return torch.typename(x), torch.is_tensor(3), torch.numel(x), torch.Size([2]), torch.broadcast_shapes((2, 1), (3,
        )), torch.atleast_2d(x).shape, torch.can_cast(torch.int,
        torch.float), torch.get_default_dtype(), torch.is_warn_always_enabled(), torch.equal(x, x), torch.allclose(x,
        x), torch.result_type(x,
        1), torch.overrides.is_tensor_method_or_property(torch.Tensor.add), torch.utils._pytree.tree_leaves(x)


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_arguments(case):
    case.run()
