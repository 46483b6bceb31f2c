"""TENSOR_MATCH, the tensor layout, torch's global state."""

from __future__ import annotations

import contextlib
import threading

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pliant import native
from pliant.guards import source as S
from pliant.guards.guard import Guard, TensorSpec
from pliant.guards.program import compile_guards
from pliant.native import _core, probe

X = S.local(0, "x")


def frame(x):
    return x


def spec(t, dynamic=False):
    with torch._C.DisableTorchFunctionSubclass():
        return _spec(t, dynamic)


def _spec(t, dynamic):
    free = (None,) * t.ndim
    strides = free if dynamic or t.layout is not torch.strided else t.stride()
    return TensorSpec(type(t), t.dtype, t.device, t.requires_grad, t.ndim, free if dynamic else tuple(t.shape), strides, t)


def match(t, dynamic=False):
    symbols = {f"s{i}": X.size(i) for i in range(t.ndim)} | {f"t{i}": X.stride(i) for i in range(t.ndim)} | {"o": X.offset()}
    return compile_guards([Guard(X, "TENSOR_MATCH", spec(t, dynamic))], symbols, [], list(symbols))


class Sub(torch.Tensor):
    pass


class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise AssertionError("user code ran")


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError


def variants():
    """Tensors of which no two match, except in what dynamic guards leave free."""
    base = torch.zeros(400)
    yield "plain", torch.zeros(3, 4)
    yield "other shape", torch.zeros(3, 5)
    yield "strided", base.as_strided((3, 4), (8, 1), 0)
    yield "dims", torch.zeros(3, 4, 1)
    yield "scalar", torch.tensor(1.0)
    yield "six dims", torch.zeros(1, 2, 1, 2, 1, 2)
    yield "six dims, permuted", torch.zeros(2, 1, 2, 1, 2, 1).permute(5, 4, 3, 2, 1, 0)
    yield "double", torch.zeros(3, 4, dtype=torch.float64)
    yield "int", torch.zeros(3, 4, dtype=torch.int32)
    yield "meta", torch.zeros(3, 4, device="meta")
    yield "grad", torch.zeros(3, 4, requires_grad=True)
    yield "parameter", torch.nn.Parameter(torch.zeros(3, 4))
    yield "frozen parameter", torch.nn.Parameter(torch.zeros(3, 4), requires_grad=False)
    yield "conj", torch.zeros(3, 4, dtype=torch.complex64).conj()
    yield "complex", torch.zeros(3, 4, dtype=torch.complex64)
    yield "neg", torch.zeros(3, 4, dtype=torch.complex64).conj().imag
    yield "subclass", torch.zeros(3, 4).as_subclass(Sub)
    yield "torch function", torch.zeros(3, 4).as_subclass(Logged)
    yield "wrapper", Wrapper(torch.zeros(3, 4))
    yield "sparse", torch.eye(3, 4).to_sparse()
    with torch.inference_mode():
        yield "inference", torch.zeros(3, 4)


VARIANTS = list(variants())


@pytest.mark.parametrize("fast", [True, False], ids=["memory", "python"])
@pytest.mark.parametrize("name", [n for n, _ in VARIANTS])
def test_static(name, fast, monkeypatch):
    monkeypatch.setattr(native, "FAST_TENSORS", native.FAST_TENSORS and fast)
    t = dict(VARIANTS)[name]
    guard = compile_guards([Guard(X, "TENSOR_MATCH", spec(t))])
    for other, u in VARIANTS:
        assert (guard.check((u,), frame) is not None) == (other == name), other
        if other != name:
            assert guard.explain((u,), frame)[0] == 0
    for x in (None, 3, [1], torch.float32):
        assert guard.check((x,), frame) is None


@pytest.mark.parametrize("fast", [True, False], ids=["memory", "python"])
def test_dynamic(fast, monkeypatch):
    monkeypatch.setattr(native, "FAST_TENSORS", native.FAST_TENSORS and fast)
    guard = match(torch.zeros(3, 4), dynamic=True)
    view = torch.zeros(200).as_strided((5, 6), (20, 2), 7)
    assert guard.check((view,), frame) == (5, 6, 20, 2, 7)
    assert guard.check((torch.zeros(0, 1),), frame)[:2] == (0, 1)
    for name in ("dims", "double", "meta", "grad", "parameter", "subclass", "wrapper", "sparse", "inference"):
        assert guard.check((dict(VARIANTS)[name],), frame) is None, name


def test_requires_grad_of_a_result():
    w = torch.ones(2, requires_grad=True)
    guard = match(w * 2)
    assert guard.check((w * 3,), frame) is not None
    assert guard.check((torch.ones(2),), frame) is None
    with torch.no_grad():
        assert guard.check((w * 3,), frame) is None


def test_layout_is_known_here_and_agrees():
    assert native.FAST_TENSORS
    for t in probe.battery():
        assert probe.agrees(t)


def test_probe_rejects_a_wrong_layout():
    found = probe.find()
    try:
        for field in ("sizes", "keys", "dtype", "offset"):
            _core.set_layout(found | {field: found[field] + 8}, probe.LIBC10)
            assert not all(probe.agrees(t) for t in probe.battery()), field
    finally:
        assert probe.install_layout()


def test_metadata_changes_of_one_object_are_seen():
    t = torch.zeros(3, 4)
    guard = match(t)
    assert guard.check((t,), frame)
    t.resize_(4, 4)
    assert guard.check((t,), frame) is None
    t.data = torch.zeros(3, 4, dtype=torch.float64)
    assert guard.check((t,), frame) is None
    t.data = torch.zeros(3, 4)
    assert guard.check((t,), frame)
    t.requires_grad_()
    assert guard.check((t,), frame) is None


def test_examples_are_not_kept_alive():
    import gc
    import weakref

    for make in (lambda: torch.zeros(3), lambda: torch.eye(3).to_sparse()):
        t = make()
        alive, guard = weakref.ref(t), compile_guards([Guard(X, "TENSOR_MATCH", spec(t))])
        del t
        gc.collect()
        assert alive() is None
        assert guard.check((make(),), frame) is not None


# ---- global state ----


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class FunctionMode(torch.overrides.TorchFunctionMode):
    pass


@contextlib.contextmanager
def default_dtype(dtype):
    old = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    yield
    torch.set_default_dtype(old)


@contextlib.contextmanager
def deterministic(warn_only):
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    yield
    torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def default_device():
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


@contextlib.contextmanager
def vmap_level():
    torch._C._functorch._vmap_increment_nesting(2, "error")
    yield
    torch._C._functorch._vmap_decrement_nesting()


STATES = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu"),
    "autocast fp16": lambda: torch.autocast("cpu", dtype=torch.float16),
    "autocast cache": lambda: torch.autocast("cpu", cache_enabled=False),
    "default dtype": lambda: default_dtype(torch.float64),
    "deterministic": lambda: deterministic(False),
    "deterministic warn": lambda: deterministic(True),
    "function mode": FunctionMode,
    "dispatch mode": Mode,
    "device": lambda: torch.device("meta"),
    "default device": default_device,
    "no torch function": torch._C.DisableTorchFunctionSubclass,
    "no torch function at all": torch._C.DisableTorchFunction,
    "vmap": vmap_level,
}


@pytest.mark.parametrize("source", ["symbols", "python"])
def test_global_state(source):
    def connect(fast):
        levels = torch.autograd.forward_ad.__dict__
        return _core.set_state_source(probe.LIBC10 if fast else None, probe.LIBTORCH, native.modes_key, native.slow_state, levels)

    assert connect(source == "symbols") == (source == "symbols")
    try:
        snapshots = {"normal": native.global_state()}
        for name, context in STATES.items():
            with context():
                snapshots[name] = native.global_state()
        guards = {name: compile_guards([Guard(S.func(), "GLOBAL_STATE", s)]) for name, s in snapshots.items()}

        def check_all(here):
            for name, guard in guards.items():
                own_mode = name == here and here in ("function mode", "dispatch mode")  # another mode object: another state
                want = name == here and not own_mode
                assert (guard.check((), frame) is not None) == want, (here, name)

        check_all("normal")
        for name, context in STATES.items():
            with context():
                check_all(name)
        check_all("normal")
    finally:
        assert connect(True)


def test_state_object():
    a, b = native.global_state(), native.global_state()
    assert a == b and hash(a) == hash(b) and a.matches()
    with torch.no_grad():
        assert a != native.global_state() and not a.matches()
    assert a.asdict()["grad"] is True
    assert "GLOBAL_STATE" in explain_state(a)


def explain_state(state):
    with torch.no_grad():
        return compile_guards([Guard(S.func(), "GLOBAL_STATE", state)]).explain((), frame)[2]


def test_state_is_of_the_thread():
    state, seen = native.global_state(), []
    with torch.autocast("cpu"), torch.no_grad():
        here = state.matches()
        thread = threading.Thread(target=lambda: seen.append(state.matches()))
        thread.start()
        thread.join()
    assert (here, seen) == (False, [True])
