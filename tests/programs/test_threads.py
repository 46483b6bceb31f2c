"""One compiled function, eight threads, changing shapes. No sleeps: a barrier lines the threads up, joins end the test."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from tests.helpers import IDENTITY, compiled, pliant
from tests.programs.registry import t

THREADS, ROUNDS = 8, 40


def run_threads(work):
    """Run `work(k)` in every thread at once; re-raise the first error."""
    errors, barrier = [], threading.Barrier(THREADS)

    def body(k):
        try:
            barrier.wait()
            work(k)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=body, args=(k,)) for k in range(THREADS)]
    for th in threads:
        th.start()
    for th in threads:
        th.join()
    if errors:
        raise errors[0]


@pliant.disable
def opaque(x):
    return x * 1.5


def pure(x, n):
    y = x.relu() + n
    return y * x.shape[0], [y.sum(0)]


def breaking(x, n):
    for i in range(n % 3):
        x = opaque(x) + i
    if x.shape[0] > 4:
        return x - 1, [x]
    return x, [x * 2]


def stateful(x, n):
    acc = {}
    for i, row in enumerate(x):
        acc.setdefault(i % 2, []).append(row * n)
    return sum(acc[0]), acc.get(1, [])


@pytest.mark.parametrize("fn", [pure, breaking, stateful])
def test_answers(fn):
    target = compiled(fn)

    def work(k):
        for r in range(ROUNDS):
            x, n = t(1 + (k * 3 + r) % 7, 3, seed=k + r), (k + r) % 5
            want, got = fn(x.clone(), n), target(x.clone(), n)
            assert torch.allclose(want[0], got[0], atol=1e-6)
            assert len(want[1]) == len(got[1])
            assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(want[1], got[1], strict=True))

    run_threads(work)
    if not IDENTITY:
        assert pliant.stats()["fallbacks"] == 0


def test_module_and_gradients():
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    target = compiled(m)

    def work(k):
        for r in range(ROUNDS // 4):
            x, y = t(1 + (k + r) % 6, 3, seed=k, grad=True), t(1 + (k + r) % 6, 3, seed=k, grad=True)
            (a,) = torch.autograd.grad(m(x).sum(), x)
            (b,) = torch.autograd.grad(target(y).sum(), y)
            assert torch.allclose(a, b, atol=1e-6)

    run_threads(work)


def test_grad_mode_is_per_thread():
    target = compiled(lambda x: x * 2)

    def work(k):
        for r in range(ROUNDS):
            with torch.set_grad_enabled((k + r) % 2 == 0):
                assert target(t(1 + r % 4, grad=True)).requires_grad == ((k + r) % 2 == 0)

    run_threads(work)


def test_reset_while_others_run():
    target = compiled(pure)

    def work(k):
        for r in range(ROUNDS // 2):
            if k == 0 and r % 5 == 0:
                pliant.reset()
            x = t(1 + (k + r) % 7, 3)
            assert torch.allclose(target(x, r)[0], pure(x, r)[0], atol=1e-6)

    run_threads(work)


def test_many_functions():
    def make(k):
        return lambda x: x * k + x.shape[0]

    def work(k):
        for r in range(5):
            target = compiled(make(k + r))
            for n in (2, 3, 5):
                assert torch.equal(target(t(n)), make(k + r)(t(n)))

    run_threads(work)


def test_number_of_the_thread():
    """That of the main thread is guarded; in others the graph breaks."""
    known = {threading.get_ident(): "main"}

    def fn(x):
        return x * 2, threading.get_ident() in known, threading.get_ident()

    pliant.reset()
    f = pliant.compile(fn, backend="aten")
    for n in (3, 4):
        assert f(torch.ones(n))[1:] == fn(torch.ones(n))[1:] == (True, threading.get_ident())
    assert pliant.stats()["graph_breaks"] == 0
    run_threads(lambda k: [check_number(f, n) for n in (3, 5, 4)])
    assert f(torch.ones(6))[1]


def check_number(f, n):
    x, among, number = f(torch.ones(n))
    assert torch.equal(x, torch.full((n,), 2.0)) and not among and number == threading.get_ident()


def test_attributes_of_a_thread_local_object_as_a_dict():
    """Read by names, as `tensorly` finds its backend: those of the thread that runs."""
    own = threading.local()
    own.scale = 2

    def read(x):
        names = own.__dict__
        return x * names.get("scale", 1), names.get("none", 7), "scale" in vars(own), names is own.__dict__

    def written(x):
        own.scale = own.__dict__.get("scale", 1) + 1
        return x * own.__dict__["scale"], own.__dict__.get("scale")

    def lacking(x):
        try:
            return x * 1, own.__dict__["missing"]
        except KeyError as e:
            return x * 2, str(e)

    def given(x):
        return x * 2, own.__dict__, 0

    def copied(x):
        return x * 2, dict(own.__dict__), len(own.__dict__)

    for fn in (read, written, lacking, given, copied):
        pliant.reset()
        f = pliant.compile(fn, backend="aten")
        for n in (3, 4, 5):
            before = own.scale
            want = fn(torch.ones(n))
            after, own.scale = own.scale, before
            got = f(torch.ones(n))
            assert torch.equal(got[0], want[0]) and got[1:] == want[1:] and own.scale == after
            assert fn is not given or got[1] is own.__dict__
        assert pliant.stats()["graph_breaks"] == 0 or fn is copied
        if fn is not written:
            run_threads(lambda k, f=f, fn=fn: check_same(f, fn, k))


def check_same(f, fn, k):
    got, want = f(torch.ones(3 + k % 3)), fn(torch.ones(3 + k % 3))
    assert torch.equal(got[0], want[0]) and got[1:] == want[1:]
