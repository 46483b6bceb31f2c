"""The call policy: every C function of the standard library and every public torch function has a row or a rule of its own."""

from __future__ import annotations

import collections
import enum
import functools
import importlib
import math
import operator
import os
import random
import re
import subprocess
import sys
import threading
import time
import types

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.interpret import breaks, policy
from pliant.interpret.policy_tables import python, python_modules
from pliant.interpret.policy_tables.row import KINDS, Row, find_space

TORCH_SPACES = (
    "torch torch.nn.functional torch.functional torch.linalg torch.special torch.fft torch.signal.windows torch.nn.init torch.autograd"
    " torch.jit torch.random torch.cuda torch.backends.cuda torch.backends.cudnn torch.overrides torch.compiler torch.distributed"
    " torch._C torch._C._nn torch._C._VariableFunctions"
)


@pytest.fixture(autouse=True)
def own_kinds(monkeypatch):
    """What a test says through the user's doors stays its own; what other tests' modules said when they were imported stays too."""
    monkeypatch.setattr(policy, "_by_user", dict(policy._by_user))
    yield
    policy.runs_natively.cache_clear()


def test_rows_are_well_formed():
    for row in policy.ROWS:
        assert row.kind in KINDS, row
        assert row.names.split(), row
        assert row.returns in ("new", "outside"), row
        if row.kind == "skip":
            assert row.code in breaks.BREAKS, row
    for name, rule in python_modules.MODULE_RULES.items():
        assert rule.kind in KINDS, name
        if rule.kind == "skip":
            assert rule.code in breaks.BREAKS, name


def test_no_object_is_named_twice_with_different_kinds():
    """Outside `*`, the first row wins silently: two rows that disagree would hide a mistake."""
    seen: dict[int, tuple[Row, str]] = {}
    for row in policy.ROWS:
        space = find_space(row.space)
        for name in row.names.split():
            obj = vars(space).get(name) if isinstance(space, (types.ModuleType, type)) else getattr(space, name, None)
            if space is None or name == "*" or obj is None:
                continue
            first, where = seen.setdefault(id(obj), (row, name))
            assert (first.kind, first.code) == (row.kind, row.code), f"{row.space}.{name} and {first.space}.{where}"


COVERED = (
    "builtins math cmath _operator itertools _functools _collections _heapq _bisect array _sre _string _struct _json unicodedata"
    " binascii zlib _hashlib _csv _codecs _locale _abc _typing _stat _opcode _symtable _tokenize _imp sys gc _tracemalloc faulthandler"
    " atexit _contextvars _weakref _warnings time _datetime _random posix _io _thread _queue _asyncio _socket select _posixsubprocess"
    " _signal mmap fcntl resource _uuid _pickle marshal _lzma _bz2 _ctypes _zoneinfo _decimal _statistics _md5 _blake2"
).split()


@pytest.mark.parametrize("module", COVERED)
def test_every_c_function_of_the_standard_library_has_a_row(module):
    try:
        mod = importlib.import_module(module)
    except ImportError:
        pytest.skip("not in this Python")
    policy.load()
    missing = []
    for name, obj in vars(mod).items():
        if name.startswith("__") and module != "builtins" or isinstance(obj, type) and obj.__module__ == "_frozen_importlib":
            continue
        if isinstance(obj, (types.BuiltinFunctionType, type)) and not policy.classify(obj).explicit:
            missing.append(name)
    assert not missing


@pytest.mark.parametrize("space", TORCH_SPACES.split())
def test_every_torch_function_has_a_row_or_a_rule(space):
    obj = find_space(space)
    names = getattr(obj, "__all__", None) or [n for n in dir(obj) if n not in vars(object)]
    functions = [(n, getattr(obj, n)) for n in names if isinstance(getattr(obj, n, None), (types.FunctionType, types.BuiltinFunctionType))]
    assert functions or space == "torch.backends.cudnn"
    assert [n for n, f in functions if not policy.classify(f).explicit] == []


def test_every_method_of_a_tensor_has_a_row():
    methods = (types.MethodDescriptorType, types.WrapperDescriptorType, types.FunctionType)
    for cls in (torch.Tensor, torch._C.TensorBase):
        assert [n for n, f in vars(cls).items() if isinstance(f, methods) and not policy.method_policy(torch.Tensor, n).explicit] == []


@pytest.mark.parametrize("cls", [list, dict, set, frozenset, tuple, str, bytes, int, float, collections.deque, collections.OrderedDict])
def test_every_method_of_a_builtin_type_has_a_row(cls):
    methods = [n for n in dir(cls) if callable(getattr(cls, n)) and not isinstance(getattr(cls, n), type)]
    assert [n for n in methods if not policy.method_policy(cls, n).explicit] == []


EXPECTED = [
    (torch.add, "graph"), (torch.tensor, "graph"), (torch.arange, "graph"), (torch.linalg.norm, "graph"), (torch.fft.rfft, "graph"),
    (torch.special.erf, "graph"), (torch.einsum, "graph"), (torch.unique, "graph"), (torch.ops.aten.add, "graph"),
    (torch.ops.aten.add.Tensor, "graph"), (F.linear, "graph"), (F.layer_norm, "graph"), (F.max_pool2d, "graph"), (F.gelu, "graph"),
    (F.scaled_dot_product_attention, "graph"), (torch.Tensor.view, "graph"), (torch.Tensor.split, "graph"), (torch.Tensor.__add__, "graph"),
    (torch.Tensor.size, "symint"), (torch.sym_max, "symint"), (torch._check, "symint"), (torch.is_floating_point, "symint"),
    (torch.is_grad_enabled, "constant"), (torch.jit.is_scripting, "constant"), (torch.get_default_dtype, "constant"),
    (torch.compiler.is_compiling, "constant"), (torch._C._set_grad_enabled, "native"), (torch.is_tensor, "native_python"),
    (torch.nn.Linear, "inline"), (torch.nn.Linear.forward, "inline"), (torch.no_grad, "inline"), (torch.autocast, "inline"),
    (torch.nn.Module.__call__, "inline"), (torch.optim.SGD, "inline"), (functools.wraps, "inline"), (collections.Counter, "inline"),
    (math.floor, "symint"), (math.sin, "native"), (operator.add, "symint"), (min, "symint"), (sum, "symint"), (divmod, "symint"),
    ([].append, "symint"), ({}.get, "symint"), ("".join, "native"), (dict.fromkeys, "symint"), (re.compile, "native_python"),
    (re.compile("x").match, "native"), (functools.partial, "symint"), (functools.reduce, "symint"), (ValueError, "native"),
    (random.random, "skip"), (time.time, "skip"), (time.sleep, "skip"), (os.getpid, "constant"), (os.listdir, "skip"), (open, "skip"),
    (input, "skip"), (exec, "skip"), (threading.Lock, "skip"), (threading.Thread, "skip"),
    (subprocess.run, "skip"), (sys._getframe, "skip"),
    (torch.save, "skip"), (torch.manual_seed, "skip"), (torch.cuda.synchronize, "skip"), (torch.Tensor.numpy, "skip"),
    (torch.Tensor.backward, "skip"), (torch.Tensor.register_hook, "skip"), (torch.from_numpy, "skip"), (torch.nn.Parameter, "skip"),
    (torch.distributed.all_reduce, "skip"), (torch.utils.data.DataLoader, "skip"),
    (torch.vmap, "inline"), (torch.set_default_device, "skip"),
]  # fmt: skip


@pytest.mark.parametrize("fn, kind", EXPECTED, ids=[policy.full_name(f) for f, _ in EXPECTED])
def test_kind(fn, kind):
    p = policy.classify(fn)
    assert p.kind == kind
    if kind == "skip":
        code, reason = policy.break_of(fn)
        assert code in breaks.BREAKS and len(reason) > len("call of ")


def test_user_functions_and_classes_are_interpreted():
    def f(x):
        return x

    class Plain:
        pass

    class Stack(list):
        def top(self):
            return self[-1]

    class Color(enum.Enum):
        RED = 1

    assert policy.classify(f) == ("inline", "new", "", "", False, "arguments")
    assert policy.class_kind(Plain) == policy.class_kind(Stack) == "inline"
    assert policy.class_kind(Color) == "native"
    assert policy.python_kind(functools.wraps(torch.save)(f)) == "inline"  # `__module__` is copied, the globals are not


def test_an_unknown_c_function_breaks():
    pyexpat = importlib.import_module("pyexpat")
    p = policy.classify(pyexpat.ParserCreate)
    assert p.kind == "skip" and p.code == "PL0004" and not p.explicit
    assert policy.break_of(pyexpat.ParserCreate) == ("PL0004", "call of pyexpat.ParserCreate")
    assert policy.class_kind(importlib.import_module("_elementtree").Element) is None
    assert policy.method_kind(type(pyexpat.ParserCreate()), "Parse") == "skip"


def test_async_functions_break():
    async def g():
        return 1

    assert policy.classify(g).code == "PL0040"


def test_the_user_wins():
    def f(x):
        return x + 1

    for door, kind in ((policy.skip, "skip"), (policy.allow_in_graph, "graph"), (policy.inline, "inline")):
        assert door(f) is f
        assert policy.python_kind(f) == policy.user_kind(f) == kind
        assert policy.runs_natively(f.__code__) is (kind == "graph")
    policy.inline(torch.is_tensor)
    assert policy.classify(torch.is_tensor).kind == "inline"
    policy.skip(torch.add)
    assert policy.classify(torch.add).code == "PL0021"
    with pytest.raises(ValueError, match="not one of"):
        policy.set_kind(f, "fast")


def test_methods_on_outside_objects():
    assert policy.method_kind(list, "append", outside=True) == "skip"
    assert policy.method_kind(list, "append", outside=False) == "symint"
    assert policy.method_kind(list, "index", outside=True) == "symint"
    assert policy.method_kind(str, "join", outside=True) == "native"
    assert policy.method_kind(re.Pattern, "match", outside=True) == "native"
    assert policy.method_kind(type(iter([])), "__next__", outside=True) == "skip"
    assert policy.method_kind(torch.Tensor, "relu", outside=True) == "graph"
    assert policy.method_kind(torch.Tensor, "__reduce__") == "skip"


def test_mutators_change_their_object():
    """Each name in the table is a method of its type, and calling the readers leaves the object as it was."""
    samples = {list: [3, 1, 2], dict: {1: 2}, set: {1, 2}, collections.deque: collections.deque([1, 2])}
    arguments = {
        "index": (1,),
        "count": (1,),
        "get": (1,),
        "isdisjoint": ((),),
        "issubset": ((1,),),
        "issuperset": ((),),
        "fromkeys": ((),),
        "symmetric_difference": ((),),
    }
    for path, names in python.MUTATORS.items():
        cls = find_space(path)
        if cls is None:
            continue
        assert [n for n in names.split() if not hasattr(cls, n)] == [], path
        if cls not in samples:
            continue
        for n in dir(cls):
            if not n.startswith("_") and n not in names.split() and callable(getattr(cls, n)):
                obj = samples[cls].copy()
                getattr(obj, n)(*arguments.get(n, ()))
                assert obj == samples[cls], f"{path}.{n} changed its object"


def test_rows_wait_for_their_module_without_importing_it():
    code = (
        "import sys, torch\n"
        "before = {m for m in sys.modules}\n"
        "from pliant.interpret import policy\n"
        "assert 'torch._dynamo' not in set(sys.modules) - before\n"
        "assert 'torch._inductor' not in sys.modules\n"
        "assert 'zlib' in sys.modules or not any(r.space == 'zlib' for r in policy.ROWS if r not in policy._pending)\n"
        "import _csv\n"
        "assert policy.classify(_csv.reader).explicit\n"
    )
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(os.path.dirname(policy.__file__)))}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_frames_that_c_code_starts():
    assert policy.runs_natively(re.compile.__code__)
    assert not policy.runs_natively(enum.EnumMeta.__call__.__code__)
    assert policy.runs_natively(F.layer_norm.__code__)
    assert policy.runs_natively(policy.classify.__code__)
    assert not policy.runs_natively(collections.Counter.update.__code__)
    assert not policy.runs_natively(torch.nn.Linear.forward.__code__)
    assert not policy.runs_natively(test_frames_that_c_code_starts.__code__)


def test_models_that_show_what_exporting_takes_are_captured():
    """They lie among the modules of a compiler, and are none of it."""
    assert python_modules.module_policy("torch._export.db.examples.cond_operands").kind == "inline"
    assert {python_modules.module_policy(m).code for m in ("torch._export.passes", "torch._export.db.case")} == {"PL0030"}
    model = importlib.import_module("torch._export.db.examples.dynamic_shape_view").model
    compiled = pliant.compile(model, fullgraph=True)
    for n in (10, 20, 30):
        x = torch.randn(n, 10)
        assert torch.equal(compiled(x), model(x))
