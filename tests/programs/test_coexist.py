"""Living beside others in one process: tracers, another compiler, coroutines, debuggers, pickling, garbage collection."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import pickle
import sys
import traceback
import weakref

import pytest
import torch
from torch import nn

from tests.helpers import IDENTITY, Call, call, check, compiled, pliant
from tests.programs.registry import t


def program(x, n=2):
    y = x * n
    for i in range(n):
        y = y + i
    return helper(y)


def helper(y):
    return y.relu() + 1


def breaking(x):
    x = x + 1
    pliant.graph_break()
    return helper(x)


def module_level(x):
    return x * 2


@pytest.mark.parametrize("fn", [program, breaking])
def test_settrace(fn):
    seen = []

    def tracer(frame, event, arg):
        seen.append((frame.f_code.co_name, event))
        return tracer

    target = compiled(fn)
    for n in (2, 3, 4):
        previous = sys.gettrace()
        sys.settrace(tracer)
        try:
            out = target(t(n))
        finally:
            sys.settrace(previous)
        assert torch.equal(out, fn(t(n)))
    assert torch.equal(target(t(5)), fn(t(5)))


@pytest.mark.parametrize("fn", [program, breaking])
def test_setprofile(fn):
    calls = []
    target = compiled(fn)
    for n in (2, 3, 4):
        previous = sys.getprofile()
        sys.setprofile(lambda frame, event, arg: calls.append(event))
        try:
            out = target(t(n))
        finally:
            sys.setprofile(previous)
        assert torch.equal(out, fn(t(n)))
    assert calls


def test_beside_torch_compile():
    a, b = compiled(program), torch.compile(program, backend="eager")
    c = torch.compile(breaking if IDENTITY else (lambda x: helper(x) * 3), backend="eager")
    for n in (2, 3, 4, 5):
        x = t(n)
        assert torch.equal(a(x), program(x))
        assert torch.equal(b(x), program(x))
        c(x)
    torch._dynamo.reset()
    assert torch.equal(a(t(6)), program(t(6)))
    if not IDENTITY:
        assert pliant.stats()["fallbacks"] == 0


def test_torch_compile_inside_and_around():
    inner = torch.compile(helper, backend="eager")
    outer = compiled(lambda x: inner(x) + 1)
    for n in (2, 3):
        assert torch.equal(outer(t(n)), helper(t(n)) + 1)
    ours = compiled(helper)
    around = torch.compile(lambda x: ours(x) + 1, backend="eager")
    for n in (2, 3):
        assert torch.equal(around(t(n)), helper(t(n)) + 1)
    torch._dynamo.reset()


def test_compiled_inside_compiled():
    inner = compiled(helper)
    check(lambda x: inner(x) * 2, t(3), t(4))


def test_generator_function_compiled():
    def gen(x, n):
        for i in range(n):
            got = yield x + i
            if got:
                x = x * got
        return "end"

    check(lambda x: list(compiled(gen)(x, 3)), t(3), t(4), must_compile=False)
    g = compiled(gen)(t(3), 3)
    next(g)
    assert torch.equal(g.send(2), t(3) * 2 + 1)
    g.close()
    assert inspect.isgenerator(g)


def test_coroutine_function_compiled():
    async def co(x):
        await asyncio.sleep(0)
        return helper(x)

    async def agen(x):
        for i in range(2):
            yield x + i

    async def collect(x):
        return [v async for v in compiled(agen)(x)]

    for n in (2, 3):
        assert torch.equal(asyncio.run(compiled(co)(t(n))), helper(t(n)))
        assert len(asyncio.run(collect(t(n)))) == 2


def test_compiled_called_from_coroutines():
    target = compiled(breaking)

    async def one(n):
        await asyncio.sleep(0)
        out = target(t(n))
        await asyncio.sleep(0)
        return torch.equal(out, breaking(t(n)))

    async def main():
        return await asyncio.gather(*(one(n) for n in (2, 3, 4, 5)))

    assert all(asyncio.run(main()))


def test_traceback_and_frames():
    def fails(x):
        y = x + 1
        raise ValueError("here", y.shape[0])

    for _ in range(3):
        with pytest.raises(ValueError, match="here") as info:
            compiled(fails)(t(3))
        last = [f for f in traceback.extract_tb(info.value.__traceback__) if f.filename == __file__][-1]
        assert "raise ValueError" in (last.line or "")


def test_sys_getframe():
    def fn(x):
        f = sys._getframe()
        return x + 1, f.f_code.co_name, f.f_lineno - f.f_code.co_firstlineno

    assert compiled(fn)(t(3))[1] == "fn"


def test_metadata_survives():
    def fn(x: torch.Tensor, k: int = 3) -> torch.Tensor:
        """Doc."""
        return x * k

    target = compiled(fn)
    assert (target.__name__, target.__doc__) == ("fn", "Doc.")
    assert inspect.signature(target) == inspect.signature(fn)


def test_wrong_arguments():
    def fn(x, k, *, z=1):
        return x

    for bad in (call(), call(1), call(1, 2, 3), call(1, 2, q=1), call(1, k=2, x=3)):
        assert isinstance(bad, Call)
        with pytest.raises(TypeError) as want:
            fn(*bad.args, **bad.kwargs)
        with pytest.raises(TypeError) as got:
            compiled(fn)(*bad.args, **bad.kwargs)
        assert str(want.value) == str(got.value)


def test_functions_and_arguments_are_not_kept_alive():
    class Big:
        pass

    def make():
        big = Big()
        big.t = t(3)
        target = compiled(lambda x, b: x + b.t)
        target(t(3), big)
        target(t(4)[:3], big)
        return weakref.ref(big), weakref.ref(big.t)

    refs = make()
    pliant.reset()
    gc.collect()
    assert [r() for r in refs] == [None, None]


def test_results_are_not_kept_alive():
    target = compiled(lambda x: [x * 2])
    out = target(t(3))
    ref = weakref.ref(out[0])
    del out
    gc.collect()
    assert ref() is None


def test_arguments_are_not_kept_alive():
    target = compiled(lambda x: x * 2)
    x = t(3)
    ref = weakref.ref(x)
    target(x)
    target(t(3))
    del x
    gc.collect()
    assert ref() is None


def test_no_reference_leak_per_call():
    target = compiled(breaking)
    box = [t(3)]
    for _ in range(5):
        target(box[0])
    before = sys.getrefcount(box[0])
    for _ in range(50):
        target(box[0])
    after = sys.getrefcount(box[0])
    assert after == before


def test_reentrancy():
    def fn(x, k):
        return x if k == 0 else target(x + 1, k - 1) * 2

    target = compiled(fn)
    want = t(3)
    for k in range(4):
        assert torch.equal(target(t(3), k), _reference(t(3), k))
    assert torch.equal(want, t(3))


def _reference(x, k):
    return x if k == 0 else _reference(x + 1, k - 1) * 2


def test_callback_from_c_during_a_compiled_call():
    check(lambda xs: sorted(xs, key=lambda v: -v.shape[0])[0] * 2, ([t(2), t(3)],), ([t(4), t(3)],))


def test_pickle_and_deepcopy_of_a_compiled_module():
    m = nn.Linear(3, 2)
    c = compiled(m)
    want = m(t(2, 3))
    assert torch.allclose(c(t(2, 3)), want, atol=1e-6)
    assert torch.allclose(copy.deepcopy(c)(t(2, 3)), want, atol=1e-6)
    fresh = nn.Linear(3, 2)
    target = compiled(fresh)
    target.load_state_dict(c.state_dict())
    assert torch.allclose(target(t(2, 3)), want, atol=1e-6)
    assert torch.equal(pickle.loads(pickle.dumps(compiled(module_level)(t(3)))), t(3) * 2)


def test_recursion_limit():
    def forever(x, k):
        return forever(x, k + 1)

    with pytest.raises(RecursionError):
        compiled(forever)(t(3), 0)
    assert torch.equal(compiled(module_level)(t(3)), t(3) * 2)


def test_keyboard_interrupt_in_a_graph_break():
    @pliant.disable
    def interrupt():
        raise KeyboardInterrupt

    def fn(x):
        x = x + 1
        interrupt()
        return x

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            compiled(fn)(t(3))


def test_warm_stats():
    target = compiled(program)
    for n in (2, 3, 4, 5):
        target(t(n))
    before = pliant.stats()
    for n in (2, 3, 4, 5):
        target(t(n))
    after = pliant.stats()
    assert before["captures"] == after["captures"]
    assert before["entries"] == after["entries"]
    if not IDENTITY:
        assert after["calls"] >= before["calls"] + 4


def test_reset_then_again():
    target = compiled(program)
    target(t(3))
    pliant.reset()
    assert torch.equal(target(t(3)), program(t(3)))


def test_fullgraph_raises_with_an_explanation():
    if IDENTITY:
        pytest.skip("needs the compiler")
    with pytest.raises(Exception, match="(?i)break") as info:
        compiled(breaking, fullgraph=True)(t(3))
    assert "test_coexist" in str(info.value)
    assert torch.equal(compiled(program, fullgraph=True)(t(3)), program(t(3)))


def test_is_compiling():
    def fn(x):
        return x + 1, pliant.is_compiling(), torch.compiler.is_compiling()

    assert fn(t(2))[1:] == (False, False)
    if not IDENTITY:
        assert compiled(fn)(t(2))[1:] == (True, True)
