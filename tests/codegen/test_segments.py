"""Segments: random programs against eager with the arena poisoned, matrix products, the memory plan, threads, order of effects."""

from __future__ import annotations

import ctypes
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant import native as core
from pliant.codegen import native
from pliant.codegen.cpu import runtime, segment
from pliant.codegen.cpu.backend import CPU
from pliant.lower.gemm import Gemm
from pliant.lower.inplace import over
from pliant.lower.kernels import Launch
from pliant.lower.loop_nest import Facts
from pliant.lower.loops import Buffer, Kernel, Node, Store
from pliant.lower.memory import Interval, aligned, plan
from pliant.lower.segments import is_native, leaves
from pliant.symbolic import Scope

needs_products = pytest.mark.skipif(runtime.products() is None, reason="PyTorch was built with another BLAS")


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    """Memory that nobody may read holds NaNs."""
    monkeypatch.setattr(segment, "poison", True)


@pytest.fixture
def made(monkeypatch) -> list:
    """The segments that a test's programs were turned into."""
    seen: list = []
    compile_all = native.compile_all

    def record(launches, segments=()):
        seen.extend(call.segment for call in segments)
        compile_all(launches, segments)

    monkeypatch.setattr(native, "compile_all", record)
    return seen


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape)))


def check(fn: Callable, *arg_sets: tuple, tolerance: float = 1e-4) -> Any:
    compiled = pliant.compile(fn, backend="native", strict=True)
    with torch.no_grad():
        for args in arg_sets:
            ours, theirs = [a.clone() if isinstance(a, torch.Tensor) else a for a in args], [*args]
            got, want = compiled(*ours), fn(*theirs)
            torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
            torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)
    return compiled


# -- random programs ------------------------------------------------------------------------------------------------------
UNARY = (torch.tanh, torch.relu, F.gelu, torch.sigmoid, lambda x: x * 0.5 + 1, lambda x: x.abs().sqrt(), torch.clone)
BINARY = (torch.add, torch.sub, torch.mul, torch.maximum, lambda a, b: torch.where(a > b, a, b * 2))
ROWS = (
    lambda x: x.softmax(-1),
    lambda x: F.layer_norm(x, (x.shape[-1],)),
    lambda x: x - x.mean(-1, keepdim=True),
    lambda x: x.cumsum(-1),
    lambda x: x / (1 + x.square().sum(-1, keepdim=True)),
    lambda x: x + x.sum(0),
    lambda x: x.sort(-1)[0],
    lambda x: x.flip(0),
)
VIEWS = (lambda x: x.t().t(), lambda x: x.t().contiguous().t(), lambda x: torch.cat((x[:, 4:], x[:, :4]), 1),
         lambda x: x.view(-1, 2, 8).transpose(0, 1).reshape(-1, 16))  # fmt: skip


def random_program(seed: int) -> Callable:
    """A program over matrices (n, 16), of all kinds of steps; its results are some of the values it made."""
    r = random.Random(seed)
    weight = normal(16, 16) * 0.3
    steps: list[tuple] = []
    for i in range(r.randint(6, 16)):
        kind = r.choice(("unary", "unary", "binary", "binary", "rows", "view", "product", "product", "write", "weighted"))
        steps.append((kind, r.randrange(100), r.randint(0, i + 1), r.randint(0, i + 1)))
    wanted = sorted(r.sample(range(2, len(steps) + 2), min(len(steps), r.randint(1, 3))))

    def program(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        values = [a, b]
        for kind, choice, i, j in steps:
            x, y = values[i], values[j]
            if kind == "unary":
                x = UNARY[choice % len(UNARY)](x)
            elif kind == "binary":
                x = BINARY[choice % len(BINARY)](x, y)
            elif kind == "rows":
                x = ROWS[choice % len(ROWS)](x)
            elif kind == "view":
                x = VIEWS[choice % len(VIEWS)](x)
            elif kind == "product":
                x = F.linear(x, weight, weight[choice % 16]) if choice % 2 else x @ weight
            elif kind == "weighted":
                x = torch.tanh(x @ y.t()) @ y if choice % 2 else torch.bmm(x.view(-1, 4, 4), y.view(-1, 4, 4)).view(-1, 16)
            else:
                x = x + 1
                x.mul_(0.5)
                x[:, :3] = y[:, 2:5]
            values.append(x)
        return [values[k] for k in wanted]

    return program


@pytest.mark.parametrize("seed", (*range(24), 1353, 1638, 1897))  # the last three: sizes that turn out to be equal
def test_random_programs(seed: int, made: list) -> None:
    sizes = (5, 64, 1, 0, 33)
    check(random_program(seed), *((normal(n, 16), normal(n, 16) * 2) for n in sizes), tolerance=1e-3)


def test_random_programs_were_segments(made: list) -> None:
    for seed in range(4):
        check(random_program(seed), (normal(5, 16), normal(5, 16)), tolerance=1e-3)
    assert sum(len(s.steps) for s in made) >= 8
    assert any(s.inner for s in made)


# -- whole programs -------------------------------------------------------------------------------------------------------
def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        x = F.layer_norm(x, (x.shape[-1],))
        x = x * w + x.sum(0)
        x = x.softmax(-1).t().contiguous().t()
    return x


def test_slots_are_shared(made: list) -> None:
    check(chain, *((normal(n, m), normal(m)) for n, m in ((8, 48), (32, 96), (1, 7), (3, 1))))
    s = max(made, key=lambda s: len(s.steps))
    assert len(s.inner) >= 5
    assert len(s.plan.slots) < len(s.inner)
    assert any(k < 0 for k in s.plan.place)  # the result's memory serves before it holds the result
    env = {leaf.name: 32 for leaf in s.leaves}
    assert s.plan.bytes(env) < sum(aligned(i.size if type(i.size) is int else i.size.evaluate(env)) for i in s.intervals)
    for i, a in zip(s.intervals, s.plan.place, strict=True):
        for j, b in zip(s.intervals, s.plan.place, strict=True):
            assert i is j or a != b or i.last < j.first or j.last < i.first


def test_results_are_written_over_operands(made: list) -> None:
    weight = normal(16, 16)

    def steps(x: torch.Tensor) -> tuple:
        y = F.gelu(x @ weight) * 2
        z = torch.tanh(y @ weight)
        both = z @ weight
        return both.exp().sum(0), torch.relu(z.t().contiguous() + 1).sum(0), (both + z).softmax(-1)

    check(steps, *((normal(n, 16),) for n in (5, 33, 1, 0)))
    assert made[0].shared
    assert all(len(s.plan.slots) < len(s.inner) + len(s.shared) for s in made if s.shared)


def point(place: tuple, offset: Any = 0, reduced: int = 0, dtype: str = "f32") -> Launch:
    """A kernel of (n, m) that reads one buffer by `place` and writes another one row by row."""
    node = Node("neg", (Node("load", (), "f32", (0, place, offset, ())),), "f32")
    node = Node("reduce", (node,), "f32", ("sum",)) if reduced else node
    buffers = [Buffer("f32", False), Buffer(dtype, True)]
    store = Store(1, ("n1",) if reduced else ("n1", 1), 0, node if dtype == "f32" else Node("cast", (node,), dtype))
    return Launch(Kernel("k", ("n0", "n1"), reduced, buffers, [store], ("n0", "n1")), place, ["a", "b"], [1], [3, 4])


def test_what_may_be_written_over() -> None:
    new = over(point(("n1", 1)), 0, 1)
    assert new is not None
    assert (new.buffers, new.made, len(new.kernel.buffers)) == (["b"], [0], 1)
    assert new.key != point(("n1", 1)).key
    assert all(n.buffer == 0 for n in new.kernel.nodes() if n.op == "load")
    assert over(point((1, "n0")), 0, 1) is None  # turned
    assert over(point(("n1", 1), offset=1), 0, 1) is None
    assert over(point((0, 1)), 0, 1) is None  # one row for all
    assert over(point(("n1", 1), reduced=1), 0, 1) is None
    assert over(point(("n1", 1), dtype="bf16"), 0, 1) is None


def test_training_through_segments(made: list) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.GELU(), torch.nn.LayerNorm(24), torch.nn.Linear(24, 4))
    compiled = pliant.compile(model, backend="native", strict=True)
    for n in (3, 9, 1, 0):
        x = normal(n, 12)
        model.zero_grad()
        model(x).square().sum().backward()
        want = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        compiled(x).square().sum().backward()
        for p, w in zip(model.parameters(), want, strict=True):
            torch.testing.assert_close(p.grad, w, rtol=1e-4, atol=1e-4)
    assert made


def test_sizes_that_a_run_makes_known(made: list) -> None:
    def chosen(x: torch.Tensor, m: torch.Tensor) -> tuple:
        y = torch.tanh(x).softmax(-1)
        i = m.nonzero()[:, 0]
        z = F.layer_norm(y[i] + 1, (8,))
        return z.softmax(-1) @ y.t(), z.sum(0).tanh()

    check(chosen, *((normal(n, 8), normal(n) > at) for n in (5, 9) for at in (0.0, 9.0, -9.0)))


def test_numbers_that_a_run_makes_known_come_with_values_computed_again(made: list) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple:
        n = (x > 0).sum().item()
        scaled = y * n  # computed again in what follows, which waits for nothing else
        return (scaled.exp() * 2).sum(0), (x.sigmoid() - 1).sum(0), scaled.tanh() + 1

    check(fn, *((normal(n, 8), normal(8, n) / 50) for n in (4, 5, 1)), tolerance=1e-3)


def test_truths_that_a_run_makes_known_are_numbers(made: list) -> None:
    def fn(out: torch.Tensor, x: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
        n = 0 + flags.any().item()  # 0 or 1, computed in the segment
        out[0] = x.sum()
        for i in range(1, 3):
            out[i] = n
        return out * 2

    compiled = pliant.compile(fn, backend="native", strict=True, background=False)
    for flag in (True, False, True):
        out = torch.zeros(4)
        assert compiled(out, torch.ones(3), torch.tensor([False, flag])).tolist() == [6, 2 * flag, 2 * flag, 0]
        assert out.tolist() == [3, flag, flag, 0]
    assert any(made)


def picked(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    try:
        y = (x.sin() * 2)[i] - 1
    except IndexError:
        y = x * 0
    return (y.exp() + x).tanh() @ x


def test_what_a_handler_catches() -> None:
    compiled = pliant.compile(picked, backend="native", strict=True)
    for last in (3, 9, 0, -7):
        args = normal(4, 4), torch.tensor([1, 2, 3, last])
        torch.testing.assert_close(compiled(*args), picked(*args))


def test_order_of_writes(made: list) -> None:
    def writes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        before = x.softmax(-1)
        x.mul_(2)
        y.copy_(before.cumsum(0))
        x.add_(y)
        after = x.softmax(-1) + before.tanh()
        x.zero_()
        return after

    check(writes, *((normal(n, 6), normal(n, 6) + 1) for n in (4, 7, 1)))
    assert made


def test_views_of_what_a_segment_made(made: list) -> None:
    def viewed(x: torch.Tensor) -> tuple:
        y = F.layer_norm(x.tanh(), (8,))
        z = y.softmax(-1)
        return z.t(), y[1:].sort(0)[0], z.view(-1, 2, 4)

    check(viewed, (normal(4, 8),), (normal(9, 8),))


def test_calls_one_by_one_are_the_fallback(monkeypatch, made: list) -> None:
    monkeypatch.setattr(CPU, "has_segments", lambda self: False)
    check(chain, (normal(5, 16), normal(16)))
    assert not made
    monkeypatch.setattr(CPU, "has_segments", lambda self: True)
    monkeypatch.setattr("pliant.lower.segments.MOST_ARGUMENTS", 2)
    check(lambda x, w: chain(x, w) * 2, (normal(5, 16), normal(16)))
    assert not made


# -- matrix products ------------------------------------------------------------------------------------------------------
PRODUCTS: dict[str, tuple[Callable, Callable]] = {
    "linear": (lambda a, b, c: F.linear(a.tanh(), b.t(), c), lambda m, n, k: (normal(m, k), normal(k, n), normal(n))),
    "linear, all dims": (lambda a, b: F.linear(a.tanh(), b), lambda m, n, k: (normal(m, 2, 3, k), normal(n, k))),
    "mm": (lambda a, b: a.softmax(0) @ b, lambda m, n, k: (normal(m, k), normal(k, n))),
    "mm, turned": (lambda a, b: a.softmax(0).t() @ b.t(), lambda m, n, k: (normal(k, m), normal(n, k))),
    "mm, columns": (lambda a, b: F.gelu(a[:, 2:-1] @ b[1:, :-2]), lambda m, n, k: (normal(m, k + 3), normal(k + 1, n + 2))),
    "addmm": (lambda a, b, c: torch.addmm(c, a.tanh(), b), lambda m, n, k: (normal(m, k), normal(k, n), normal(n))),
    "addmm, scaled": (
        lambda a, b, c: torch.addmm(c, a, b, beta=2, alpha=3).tanh(),
        lambda m, n, k: (normal(m, k), normal(k, n), normal(n)),
    ),
    "addmm, a matrix": (lambda a, b, c: torch.addmm(c, a, b).tanh(), lambda m, n, k: (normal(m, k), normal(k, n), normal(m, n))),
    "bmm": (lambda a, b: torch.bmm(a.tanh(), b), lambda m, n, k: (normal(3, m, k), normal(3, k, n))),
    "bmm, turned": (
        lambda a, b: torch.bmm(a.transpose(1, 2), b.transpose(1, 2)).tanh(),
        lambda m, n, k: (normal(70, k, m), normal(70, n, k)),
    ),
    "bmm, expanded": (lambda a, b: torch.bmm(a.expand(4, -1, -1), b).tanh(), lambda m, n, k: (normal(1, m, k), normal(4, k, n))),
    "heads": (
        lambda a, b: a.view(-1, 4, 5, 8).transpose(1, 2) @ b.view(-1, 4, 5, 8).permute(0, 2, 3, 1),
        lambda m, n, k: (normal(m * 4, 40), normal(m * 4, 40)),
    ),
}


@needs_products
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, made: list) -> None:
    product, arguments = PRODUCTS[name]

    def fn(*args: torch.Tensor) -> torch.Tensor:
        return product(*args).softmax(-1)

    check(fn, *(arguments(*sizes) for sizes in ((3, 5, 7), (16, 8, 24), (1, 4, 6), (4, 1, 3), (4, 3, 1), (0, 4, 5), (4, 0, 5), (4, 5, 0))))


@needs_products
def test_products_are_in_segments(made: list) -> None:
    first, second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
    check(lambda x: second(F.gelu(first(x))).softmax(-1), (normal(5, 8),), (normal(64, 8),))
    assert len(made) == 1
    assert sum(isinstance(step, Gemm) for step in made[0].steps) == 2


@needs_products
def test_reduced_precision_stays_with_pytorch(made: list) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        check(lambda a, b: ((a @ b).softmax(-1) @ b.t()).softmax(0), (normal(4, 6), normal(6, 8)), tolerance=0.05)
    finally:
        torch.set_float32_matmul_precision(before)
    assert not any(isinstance(step, Gemm) for s in made for step in s.steps)


# -- threads, memory ------------------------------------------------------------------------------------------------------
def test_threads() -> None:
    compiled = pliant.compile(chain, backend="native", strict=True)
    inputs = [(normal(n, m), normal(m)) for n, m in ((8, 48), (33, 20), (2, 9), (64, 64), (5, 5), (17, 130), (40, 3), (9, 77))]
    with torch.no_grad():
        want = [chain(*args) for args in inputs]
        compiled(*inputs[0])
    failures: list[str] = []
    start = threading.Barrier(len(inputs))

    def work(i: int) -> None:
        start.wait()
        with torch.no_grad():
            for step in range(40):
                k = (i + step) % len(inputs)
                got = compiled(*inputs[k])
                if not torch.allclose(got, want[k], rtol=1e-4, atol=1e-5):
                    failures.append(f"thread {i}, step {step}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(inputs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_a_segment_between_segments_of_its_own_function() -> None:
    def deeper(x: torch.Tensor, w: torch.Tensor, depth: int) -> torch.Tensor:
        y = chain(x, w)
        if depth:
            y = y + compiled(y * 2, w, depth - 1)
        return chain(y, w)

    def plain(x: torch.Tensor, w: torch.Tensor, depth: int) -> torch.Tensor:
        y = chain(x, w)
        return chain(y + plain(y * 2, w, depth - 1) if depth else y, w)

    compiled = pliant.compile(deeper, backend="native", strict=True)
    with torch.no_grad():
        for n in (6, 11):
            torch.testing.assert_close(compiled(normal(n, 16), normal(16), 3), plain(normal(n, 16), normal(16), 3), rtol=1e-4, atol=1e-4)


def test_the_arena_is_bounded() -> None:
    before = core.set_arena_limit(1 << 20)
    try:
        check(chain, (normal(16, 32), normal(32)))
        small = core.arena_bytes()[2]
        assert 0 < small <= 1 << 20
        check(chain, (normal(2048, 512), normal(512)))
        assert core.arena_bytes()[2] == 0
        assert core.arena_bytes()[1] >= 2048 * 512 * 4
    finally:
        core.set_arena_limit(before)


def test_the_arena_of_a_thread_ends_with_it() -> None:
    functions = segment.functions(runtime.own_bits())
    take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(functions[segment.TAKE])
    give = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(functions[segment.GIVE])
    held = []

    def work() -> None:
        give(take(1 << 20), 1 << 20)
        held.append(core.arena_bytes()[2])

    before = core.arena_bytes()[0]
    for _ in range(40):  # one after the other; the last ones may still be on their way out
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert held == [1 << 20] * 40
    nothing: list = []  # a segment all of whose results lie in memory that comes with the call, the first one of its thread
    thread = threading.Thread(target=lambda: nothing.append(take(0)))
    thread.start()
    thread.join()
    assert nothing[0]
    assert core.arena_bytes()[0] - before < 20 << 20


def test_no_memory_is_an_error() -> None:
    functions = segment.functions(runtime.own_bits())
    take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(functions[segment.TAKE])
    give = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(functions[segment.GIVE])
    assert take(1 << 60) is None
    first = take(100)
    second = take(100)  # as a segment inside a segment would
    assert first and second and first != second and first % 64 == second % 64 == 0
    give(second, 100)
    give(first, 100)
    assert take(100) == first
    give(first, 100)


# -- the plan -------------------------------------------------------------------------------------------------------------
def test_plans_of_symbolic_sizes() -> None:
    scope = Scope()
    n, m = scope.backed("s0", hint=10, lo=2), scope.backed("s1", hint=7, lo=2)
    facts = Facts(scope)
    sizes = [n * m * 4, n * 4, n * m * 4, m * 400, n * m * 8]
    p = plan([Interval(s, i, i + 1) for i, s in enumerate(sizes)], facts)
    for i in range(len(sizes) - 1):
        assert p.place[i] != p.place[i + 1]
    assert len(p.slots) == 2
    for env in ({"s0": 2, "s1": 2}, {"s0": 1000, "s1": 3}, {"s0": 3, "s1": 1000}):
        for k, size in enumerate(sizes):
            assert max(s if type(s) is int else s.evaluate(env) for s in p.slots[p.place[k]].sizes) >= size.evaluate(env)
    # n * m * 8 surely holds n * m * 4: one size is left of the two
    assert all(len(slot.sizes) <= 2 for slot in p.slots)


def test_equal_sizes_take_no_more_slots_than_live_at_once() -> None:
    scope = Scope()
    size = scope.backed("s0", hint=10, lo=0) * 4
    intervals = [Interval(size, i // 2, i // 2 + 1) for i in range(20)]  # the last two are alive at step 10
    p = plan(intervals, Facts(scope), [Interval(size, 10, 11)])
    assert len(p.slots) == 3
    assert any(k < 0 for k in p.place)


@pytest.mark.parametrize("seed", range(20))
def test_plans_never_overlap(seed: int) -> None:
    r = random.Random(seed)
    scope = Scope()
    symbols = [scope.backed(f"s{i}", hint=r.randint(1, 50), lo=0) for i in range(3)]
    intervals = []
    for _ in range(r.randint(2, 25)):
        size: Any = r.choice((4, 64))
        for _ in range(r.randint(0, 2)):
            size = r.choice(symbols) * size
        first = r.randint(0, 20)
        intervals.append(Interval(size, first, first + r.randint(0, 6)))
    given = [Interval(symbols[0] * symbols[1] * 64, r.randint(0, 20), 99) for _ in range(r.randint(0, 2))]
    p = plan(intervals, Facts(scope), given)
    env = {f"s{i}": r.choice((0, 1, 13, 999)) for i in range(3)}
    places, at = [], 0
    for slot in p.slots:
        size = aligned(max(s if type(s) is int else s.evaluate(env) for s in slot.sizes))
        places.append((at, size))
        at += size
    assert at == p.bytes(env)
    for i, a in zip(intervals, p.place, strict=True):
        if a < 0:
            assert i.last < given[-1 - a].first
            assert (i.size if type(i.size) is int else i.size.evaluate(env)) <= given[-1 - a].size.evaluate(env)
        else:
            assert (i.size if type(i.size) is int else i.size.evaluate(env)) <= places[a][1]
        for j, b in zip(intervals, p.place, strict=True):
            assert i is j or a != b or i.last < j.first or j.last < i.first


def test_divisions_by_what_may_be_zero_stay_in_python() -> None:
    scope = Scope()
    n, m = scope.backed("s0", hint=10, lo=0), scope.backed("s1", hint=7, lo=0)
    assert is_native((n + 3) // 4 * m)
    assert not is_native(n // m + 1)
    assert set(leaves([(n + 3) // 4 * m, n // m + 1])) == {n, m, n // m + 1}


def test_results_take_the_memory_of_what_has_died(made: list) -> None:
    """Of what an earlier segment made, nobody else saw and nobody reads any more: over it, or once it has been read."""
    weight = normal(16, 16) * 0.3

    def over(x: torch.Tensor) -> tuple:
        a = torch.tanh(x @ weight)
        b = (a @ weight).exp().sort(-1)[0] * a + 1
        return b, b @ weight

    def behind(x: torch.Tensor) -> torch.Tensor:
        a = torch.tanh(x @ weight)
        b = (a @ weight).exp().sort(-1)[0] @ a.t()
        return torch.relu(b @ x - 1) @ weight

    def seen(x: torch.Tensor) -> tuple:
        a = torch.tanh(x @ weight)
        b = (a @ weight).exp().sort(-1)[0] * a + 1
        return b, b @ weight, a[1:]

    for fn, expected in ((over, True), (behind, True), (seen, False)):
        made.clear()
        check(fn, *((normal(n, 16),) for n in (5, 64, 1, 0, 33)))
        assert any(s.taken for s in made) == expected, fn.__name__


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_of_halves(dtype: torch.dtype, made: list) -> None:
    if dtype not in runtime.product_dtypes():
        pytest.skip("products of these are PyTorch's here")
    w, b, c = (normal(*shape).to(dtype) for shape in ((24, 16), (24,), (24, 40)))

    def program(x: torch.Tensor) -> torch.Tensor:
        x = F.linear(x.relu(), w, b)
        scores = torch.matmul(x.unflatten(-1, (3, 8)).transpose(1, 2), x.unflatten(-1, (3, 8)).permute(0, 2, 3, 1))
        return scores.softmax(-1).sum(1) @ (x[..., 1:] @ c[1:])

    compiled = pliant.compile(program, backend="native", strict=True)
    with torch.no_grad():
        for n in (5, 1, 33):
            x = normal(2, n, 16).to(dtype)
            got, want = compiled(x), program(x)
            assert got.dtype is dtype and got.stride() == want.stride()
            torch.testing.assert_close(got.float(), want.float(), rtol=4 * torch.finfo(dtype).eps, atol=16 * torch.finfo(dtype).eps)
    assert sum(isinstance(s, Gemm) for segment in made for s in segment.steps) >= 4
