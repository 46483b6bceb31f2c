"""The frame hook: run mode, capture mode, chaining, generators, tracing, recursion, threads."""

from __future__ import annotations

import gc
import sys
import threading
import traceback

import pytest

from pliant import native
from pliant.guards import source as S
from pliant.guards.guard import Guard
from pliant.guards.program import compile_guards
from pliant.interpret import engine

X = S.local(0, "x")
ALWAYS = compile_guards([])


@pytest.fixture(autouse=True)
def clean_hook():
    yield
    assert native.get_mode() == native.OFF
    assert not native.hook_installed()
    native.set_run_callback(None)
    native.set_capture_callback(engine.captured_frame, engine.classify)  # as it was: other tests capture
    native.reset_classes()


def in_run(fn, *args, **kwargs):
    assert not native.hook_installed()
    try:
        return native.call_in_mode(native.RUN, fn, args, kwargs)
    finally:
        assert not native.hook_installed()


def scope_of(source):
    scope = {}
    exec(source, scope)
    return scope


def when(value, slots=()):
    return compile_guards([Guard(X, "EQ_MATCH", value)], {}, [], slots)


# ---- run mode ----


@pytest.mark.parametrize("kind", ["in place", "call"])
def test_frames_are_replaced(kind):
    scope = scope_of("def fn(x, y=2, *args, k=4, **kw):\n return 'plain'\ndef outer(*a, **k):\n return fn(*a, **k)\n")
    fn = scope["fn"]

    def target(x, y, k, args, kw, slot):
        inner = lambda: (x, locals_of_target)  # a cell and a free variable
        locals_of_target = sorted([1, 2], key=lambda v: -v)
        many = [a for a in (x, y, k, args, kw, slot)]
        return (*many, inner()[1])

    called = target if kind == "in place" else lambda *a: target(*a)
    entry = native.add_entry(fn.__code__, when(1, [S.local(1, "y")]), called)
    assert in_run(scope["outer"], 1, z=3) == (1, 2, 4, (), {"z": 3}, 2, [2, 1])
    assert in_run(scope["outer"], 1, 5, 6, k=7) == (1, 5, 7, (6,), {}, 5, [2, 1])
    assert in_run(scope["outer"], 9) == "plain"
    assert scope["outer"](1) == "plain"  # not in run mode
    assert entry.hits == 2


def test_a_larger_frame_in_place_and_references():
    class Thing:
        pass

    names = [f"v{i}" for i in range(200)]
    scope = scope_of(
        "def fn(x):\n return 'plain'\n"
        "def target(x, s):\n " + "; ".join(f"{n} = x" for n in names) + "\n return [" + ", ".join(names) + ", s]\n"
        "def outer(x):\n return fn(x)\n"
    )
    x = Thing()
    native.add_entry(scope["fn"].__code__, compile_guards([Guard(X, "TYPE_MATCH", Thing)], {}, [], [X]), scope["target"])
    assert in_run(scope["outer"], x) == [x] * 201
    before = [sys.getrefcount(o) for o in (x, scope["fn"], scope["target"], scope["fn"].__code__, scope["target"].__code__)]
    for _ in range(500):
        in_run(scope["outer"], x)
    after = [sys.getrefcount(o) for o in (x, scope["fn"], scope["target"], scope["fn"].__code__, scope["target"].__code__)]
    assert after == before


@pytest.mark.parametrize("kind", ["in place", "call"])
def test_exceptions_and_tracebacks(kind):
    scope = scope_of("def fn(x):\n return 'plain'\ndef outer(x):\n try:\n  return fn(x)\n finally:\n  x.append('left')\n")

    def target(x):
        marker = "kept by the traceback"
        raise KeyError(marker)

    native.add_entry(scope["fn"].__code__, ALWAYS, target if kind == "in place" else lambda *a: target(*a))
    x = []
    with pytest.raises(KeyError) as info:
        in_run(scope["outer"], x)
    assert x == ["left"]
    frames = [f for f, _ in traceback.walk_tb(info.value.__traceback__)]
    assert frames[-1].f_code is target.__code__ and frames[-1].f_locals["marker"] == "kept by the traceback"
    assert any(f.f_code is scope["outer"].__code__ for f in frames)


def test_frame_objects_of_a_replaced_frame_outlive_it():
    scope = scope_of("def fn(x):\n return 'plain'\ndef outer(x):\n return fn(x)\n")

    def target(x):
        local = [x]
        return sys._getframe(), local

    native.add_entry(scope["fn"].__code__, ALWAYS, target)
    frame, local = in_run(scope["outer"], 5)
    gc.collect()
    assert frame.f_locals == {"x": 5, "local": local} and frame.f_back.f_code is scope["outer"].__code__


def test_generator_and_coroutine_functions():
    scope = scope_of(
        "def gen(x):\n yield x\n yield x + 1\n"
        "async def coro(x):\n return x\n"
        "def outer(x):\n return list(gen(x))\n"
        "def awaited(x):\n c = coro(x)\n try:\n  c.send(None)\n except StopIteration as e:\n  return e.value\n"
        "def plain(x):\n return 'plain'\ndef call_plain(x):\n return list(plain(x))\n"
    )

    def target(x):
        yield "compiled"
        yield x

    assert in_run(scope["outer"], 1) == [1, 2]
    native.add_entry(scope["gen"].__code__, ALWAYS, target)
    assert in_run(scope["outer"], 1) == ["compiled", 1]
    assert in_run(scope["awaited"], 7) == 7
    native.add_entry(scope["plain"].__code__, ALWAYS, target)  # a generator in place of a plain function
    assert in_run(scope["call_plain"], 1) == ["compiled", 1]


def test_throw_and_close_go_to_the_generator():
    log = []

    def gen():
        try:
            yield 1
        except ValueError as e:
            log.append(str(e))
            yield 2
        finally:
            log.append("closed")

    def use():
        g = gen()
        got = [next(g), g.throw(ValueError("thrown"))]
        g.close()
        return got

    assert in_run(use) == [1, 2] and log == ["thrown", "closed"]


def test_flags_and_disabling():
    scope = scope_of("def inner(x):\n return 'plain'\ndef fn(x):\n return inner(x)\ndef outer(x):\n return fn(x)\n")
    inner, fn, outer = (scope[n] for n in ("inner", "fn", "outer"))
    native.add_entry(inner.__code__, ALWAYS, lambda x: "compiled")
    assert in_run(outer, 0) == "compiled"
    native.set_flags(fn.__code__, native.SKIP)
    assert in_run(outer, 0) == "compiled"
    native.set_flags(fn.__code__, native.SKIP_RECURSIVE)
    assert in_run(outer, 0) == "plain"
    native.set_flags(fn.__code__, 0)
    native.push_disabled()
    assert in_run(outer, 0) == "plain"
    native.pop_disabled()
    assert in_run(outer, 0) == "compiled"


def test_run_callback():
    scope = scope_of("def fn(x):\n return 'plain'\ndef outer(x):\n return fn(x)\n")
    seen = []

    def miss(func, args):
        assert native.get_mode() == native.OFF
        if func is not scope["fn"]:
            return ("eager",)
        seen.append(args)
        if args[0] == "install":
            native.add_entry(func.__code__, when("install"), lambda x: "compiled")
            return ("retry",)
        if args[0] == "value":
            return ("value", 42)
        if args[0] == "raise":
            raise LookupError("from the callback")
        return ("eager",)

    native.set_run_callback(miss)
    assert in_run(scope["outer"], "install") == "compiled"
    assert in_run(scope["outer"], "install") == "compiled"
    assert in_run(scope["outer"], "value") == 42
    assert in_run(scope["outer"], "other") == "plain"
    with pytest.raises(LookupError):
        in_run(scope["outer"], "raise")
    assert seen == [("install",), ("value",), ("other",), ("raise",)]


def test_tracing_sees_the_original():
    scope = scope_of("def fn(x):\n return 'plain'\ndef outer(x):\n return fn(x)\n")
    native.add_entry(scope["fn"].__code__, ALWAYS, lambda x: "compiled")
    events = []

    def trace(frame, event, arg):
        events.append((frame.f_code.co_name, event))
        return trace

    old = sys.gettrace()
    sys.settrace(trace)
    try:
        got = in_run(scope["outer"], 1)
    finally:
        sys.settrace(old)
    assert got == "plain" and ("fn", "return") in events
    profiled = []
    sys.setprofile(lambda frame, event, arg: profiled.append((frame.f_code.co_name, event)))
    try:
        got = in_run(scope["outer"], 1)
    finally:
        sys.setprofile(None)
    assert got == "plain" and ("fn", "call") in profiled
    assert in_run(scope["outer"], 1) == "compiled"


def test_recursion():
    def depth(n):
        return 0 if n == 0 else 1 + depth(n - 1)

    assert in_run(depth, 500) == 500
    with pytest.raises(RecursionError):
        in_run(depth, 10**6)
    assert in_run(depth, 500) == 500


def test_recursion_without_a_limit_spares_the_c_stack():
    def depth(n):
        return 0 if n == 0 else 1 + depth(n - 1)

    old = sys.getrecursionlimit()
    sys.setrecursionlimit(10**7)
    try:
        # from 3.12 on CPython counts what lies on the C stack, whatever the limit, and may be the first to say so
        with pytest.raises(RecursionError, match="C stack" if sys.version_info < (3, 12) else "recursion depth exceeded"):
            in_run(depth, 10**6)
    finally:
        sys.setrecursionlimit(old)


def test_compiled_recursion():
    scope = scope_of("def fn(x):\n return 'plain' if x == 0 else fn(x - 1)\ndef outer(x):\n return fn(x)\n")

    def target(x):  # compiled code runs with the hook off, and turns it on for what it calls of the user's
        return in_run(scope["fn"], x - 1) + 1 if x else 0

    native.add_entry(scope["fn"].__code__, ALWAYS, target)
    assert in_run(scope["outer"], 300) == 300


def test_compiled_code_runs_with_the_hook_off():
    scope = scope_of("def fn(x):\n return 'plain'\ndef outer(x):\n return fn(x)\n")
    native.add_entry(scope["fn"].__code__, ALWAYS, lambda x: native.get_mode())
    assert in_run(scope["outer"], 1) == native.OFF
    assert in_run(native.EntryPoint(scope["fn"]), 1) == native.OFF
    assert in_run(native.get_mode) == native.RUN


def test_code_that_is_passed_over_is_not_asked_about():
    scope = scope_of("def fn(x):\n return inner(x)\ndef inner(x):\n return 'plain'\ndef outer(x):\n return fn(x)\n")
    asked = []
    native.set_flags(scope["fn"].__code__, native.PASS)
    native.set_run_callback(lambda fn, args: asked.append(fn.__name__) or ("eager",))
    try:
        assert in_run(scope["outer"], 1) == "plain"
    finally:
        native.set_run_callback(None)
    assert asked == ["outer", "inner"]
    native.add_entry(scope["fn"].__code__, ALWAYS, lambda x: "compiled")
    assert native.EntryPoint(scope["fn"])(1) == "compiled"


@pytest.mark.parametrize("through", ["hook", "entry point"])
def test_a_judge_hears_how_the_eager_run_went(through):
    scope = scope_of("def fn(x):\n return 1 / x\ndef outer(x):\n return fn(x)\n")
    heard = []

    def judge(error):
        heard.append(type(error))
        if error is None:
            raise LookupError("unexpected")

    def miss(*args):
        return ("eager", judge) if args[-2] is scope["fn"] else ("eager",)

    native.set_run_callback(miss if through == "hook" else None)
    call = scope["outer"] if through == "hook" else native.EntryPoint(scope["fn"], miss)
    try:
        with pytest.raises(ZeroDivisionError):
            in_run(call, 0)
        with pytest.raises(LookupError):
            in_run(call, 1)
    finally:
        native.set_run_callback(None)
    assert set(heard) == {ZeroDivisionError, type(None)}


def test_mode_is_of_the_thread():
    scope = scope_of("def fn(x):\n return 'plain'\ndef outer(x):\n return fn(x)\n")
    native.add_entry(scope["fn"].__code__, ALWAYS, lambda x: "compiled")
    results = {}

    def work(name, mode):
        results[name] = {native.call_in_mode(mode, scope["outer"], (1,)) for _ in range(2000)}

    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(i, native.RUN if i % 2 else native.OFF)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(old)
    assert results == {i: {"compiled"} if i % 2 else {"plain"} for i in range(8)}


def test_set_mode_nests():
    assert native.set_mode(native.RUN) == native.OFF
    try:
        assert native.hook_installed() and native.set_mode(native.RUN) == native.RUN
    finally:
        assert native.set_mode(native.OFF) == native.RUN
    with pytest.raises(ValueError):
        native.set_mode(9)
    with pytest.raises(ValueError):
        native.call_in_mode(-1, len, ("",))


# ---- capture mode ----


class Recorder:
    """Hands every frame back to CPython, and remembers it."""

    def __init__(self, native_names=()):
        self.frames, self.native_names = [], native_names
        native.reset_classes()
        native.set_capture_callback(self, self.classify)

    def classify(self, code):
        assert native.get_mode() == native.OFF
        return 1 if code.co_name in self.native_names else 2

    def __call__(self, func, args):
        assert native.get_mode() == native.OFF
        assert type(args) is list
        self.frames.append((func.__name__, *args))
        flat, code = list(args), func.__code__
        star = [flat.pop(code.co_argcount + code.co_kwonlyargcount)] if code.co_flags & 4 else [()]
        kw = flat.pop() if code.co_flags & 8 else {}
        names = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        return func(*flat[: code.co_argcount], *star[0], **dict(zip(names, flat[code.co_argcount :], strict=True)), **kw)


def test_frames_that_c_code_starts_are_handed_over():
    r = Recorder()
    assert native.call_captured(sorted, ([3, 1, 2],), {"key": lambda v: -v}) == [3, 2, 1]
    assert r.frames == [("<lambda>", 3), ("<lambda>", 1), ("<lambda>", 2)]


def test_special_methods_and_arguments():
    class K:
        def __eq__(self, other):
            return other == 2

        __hash__ = None

        def __iter__(self):
            return iter([1, 2])

        def __call__(self, a, *rest, k=5, **kw):
            return a, rest, k, kw

    r, key = Recorder(), K()
    assert native.call_captured([1, 2].index, (key,)) == 1
    assert native.call_captured(list, (key,)) == [1, 2]
    assert native.call_captured(key, (1, 2, 3), {"z": 4}) == (1, (2, 3), 5, {"z": 4})
    assert [f[0] for f in r.frames] == ["__eq__", "__eq__", "__iter__", "__call__"]
    assert r.frames[-1][2:] == (1, 5, (2, 3), {"z": 4})


def test_closures_and_nested_capture():
    r, n = Recorder(), 3

    def inner(v):
        return v + n

    def outer(v):
        return native.call_captured(sum, (map(inner, range(v)),))

    assert native.call_captured(list, (map(outer, (1, 2)),)) == [3, 7]
    assert r.frames == [("outer", 1), ("inner", 0), ("outer", 2), ("inner", 0), ("inner", 1)]
    assert native.get_mode() == native.OFF


def test_native_frames_run_whole():
    r = Recorder(native_names=("library",))
    log = []

    def helper(v):
        log.append(native.get_mode())
        return v

    def library(v):
        return helper(v)

    assert native.call_captured(list, (map(library, [1]),)) == [1]
    assert r.frames == [] and log == [native.OFF]


def test_generators():
    r = Recorder()

    def gen(n):
        for i in range(n):
            yield helper(i)

    def helper(i):
        return i * 2

    before = gen(2)
    assert native.call_captured(list, (map(gen, [2]),))[0].gi_code is gen.__code__
    assert r.frames == [("gen", 2)]
    r.frames.clear()
    assert native.call_captured(sum, (before,)) == 2  # it runs as it is, what it calls is handed over
    assert r.frames == [("helper", 0), ("helper", 1)]


def test_exceptions_leave_the_mode_as_it_was():
    def boom(v):
        raise ValueError(v)

    Recorder()
    with pytest.raises(ValueError):
        native.call_captured(list, (map(boom, [1]),))

    def failing(func, args):
        raise OSError("callback")

    native.reset_classes()
    native.set_capture_callback(failing, lambda code: 2)
    with pytest.raises(OSError, match="callback"):
        native.call_captured(sorted, ([2, 1],), {"key": boom})
    for answer, error in ((3, ValueError), ("x", TypeError)):
        native.reset_classes()
        native.set_capture_callback(failing, lambda code, a=answer: a)
        with pytest.raises(error):
            native.call_captured(sorted, ([2, 1],), {"key": boom})


def test_classes_are_asked_once_for_each_code():
    asked = []

    def key(v):
        return v

    native.set_capture_callback(lambda f, a: f(*a), lambda code: asked.append(code) or 2)
    native.call_captured(sorted, ([2, 1],), {"key": key})
    native.call_captured(sorted, ([2, 1],), {"key": key})
    assert asked == [key.__code__]
    native.reset_classes()
    native.call_captured(sorted, ([2, 1],), {"key": key})
    assert asked == [key.__code__] * 2


def test_class_bodies_and_exec_run_in_their_namespace():
    r = Recorder({"_audit_fork_safety"})  # `exec` tells audit hooks, of which filelock has one since 3.12

    def helper():
        return 5

    scope = {"helper": helper}
    native.call_captured(exec, ("class A:\n    x = helper()\ny = A.x + 1", scope))
    assert scope["y"] == 6 and scope["A"].x == 5
    assert [f[0] for f in r.frames] == ["helper"]


def test_finalizers_and_gc_during_capture():
    class Dies:
        def __del__(self):
            log.append("gone")

    log = []
    Recorder()

    def key(v):
        Dies()
        gc.collect()
        return v

    assert native.call_captured(sorted, ([2, 1],), {"key": key}) == [1, 2]
    assert log == ["gone", "gone"]


def test_capture_with_tracing_still_hands_over():
    r = Recorder()
    old = sys.gettrace()
    sys.settrace(lambda *a: None)
    try:
        native.call_captured(sorted, ([2, 1],), {"key": lambda v: v})
    finally:
        sys.settrace(old)
    assert len(r.frames) == 2


def test_bad_arguments():
    for bad in ((), (len, [1]), (len, (1,), 3), (len, (), {}, 1)):
        with pytest.raises(TypeError):
            native.call_captured(*bad)


# ---- beside another hook ----


def torch_compiled(fn):
    import torch

    return torch.compile(fn, backend="eager")


def test_beside_torch_compile_inside():
    """torch.compile's hook is installed on top of ours and removed again, and the other way round."""
    import torch

    def model(x):
        return helper(x) + 1

    def helper(x):
        return x * 2

    compiled = torch_compiled(model)
    t = torch.ones(3)
    scope = scope_of("def fn(x):\n return 'plain'\n")
    native.add_entry(scope["fn"].__code__, ALWAYS, lambda x: "compiled")

    def mixed(x):
        return compiled(x), scope["fn"](0)

    for _ in range(3):
        out, word = native.call_in_mode(native.RUN, mixed, (t,))
        assert torch.equal(out, t * 2 + 1)
    assert torch.equal(compiled(t), t * 2 + 1)

    @torch._dynamo.disable
    def break_(x):
        return native.call_in_mode(native.RUN, scope["fn"], (x,))

    both = torch_compiled(lambda x: (x + 1, break_(0)))
    for _ in range(3):
        out, word = both(t)
        assert torch.equal(out, t + 1) and word == "compiled"
    assert torch.equal(torch_compiled(model)(t + 1), (t + 1) * 2 + 1)
    torch._dynamo.reset()
