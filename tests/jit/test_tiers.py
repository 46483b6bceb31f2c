"""Tiers: ATen calls first, machine code made in the background, exchanged between two calls."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import threading
import types
import weakref

import pytest
import torch

import pliant
from pliant import events, native, turns
from pliant.codegen import background as module
from pliant.codegen import native as machine
from pliant.codegen.background import background, stopped
from pliant.jit.tiers import MOST_KEPT, Exchange, _gone, places_of
from pliant.symbolic.scope import DataDependent, Scope
from tests.jit.processes import Processes


@pytest.fixture(autouse=True)
def no_errors():
    """A test that plants errors in the background takes them off the count."""
    yield
    assert background.synchronize(60)
    assert not pliant.stats()["background_errors"], events.events("background_error")


def tiered(fn, **options):
    """Compiled, in a way that nobody else has compiled it."""
    if isinstance(fn, types.FunctionType):
        fn = types.FunctionType(fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    return pliant.compile(fn, background=True, **options)


def executables(fn):
    return [e.info.emitted.executable for e in native.entries(fn._fn.__code__) if e.info.emitted.executable is not None]


def source(fn):
    (made,) = executables(fn)
    return made.source


def chain(x, y):
    z = torch.tanh(x) * y + 1
    return (z.softmax(-1) * x).sum(0), z


def close(got, want):
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


@pytest.fixture
def given():
    return torch.randn(20, 30), torch.randn(20, 30)


# -- the exchange -----------------------------------------------------------------------------------------------------------------
def test_aten_answers_first_and_machine_code_later(given):
    fn = tiered(chain)
    with stopped():
        close(fn(*given), chain(*given))
        assert pliant.stats()["exchanged"] == 0 and "_segment" not in source(fn) and "tanh" in source(fn)
    assert pliant.synchronize()
    assert pliant.stats()["exchanged"] == 1 and pliant.stats()["entries"] == 1
    assert "_segment" in source(fn) and "tanh" not in source(fn)
    close(fn(*given), chain(*given))
    close(fn(given[0][:7], given[1][:7]), chain(given[0][:7], given[1][:7]))
    assert pliant.stats()["captures"] == 1
    (told,) = events.events("exchanged")
    assert told.fields["name"] == "chain" and told.fields["seconds"] >= told.fields["work_seconds"] > 0


def test_without_a_background_there_is_one_tier(given):
    fn = pliant.compile(types.FunctionType(chain.__code__.replace(), globals()), background=False)
    first = fn(*given)
    assert "_segment" in source(fn) and background.thread is None
    assert all(torch.equal(a, b) for _ in range(5) for a, b in zip(fn(*given), first, strict=True))
    assert pliant.stats()["exchanged"] == 0


def test_other_backends_have_one_tier(given):
    fn = tiered(chain, backend="aten")
    close(fn(*given), chain(*given))
    assert background.thread is None and not background.jobs


def test_the_environment_decides_where_nobody_says(monkeypatch, given):
    monkeypatch.setenv("PLIANT_BACKGROUND", "1")
    fn = pliant.compile(types.FunctionType(chain.__code__.replace(), globals()))
    fn(*given)
    assert pliant.synchronize() and pliant.stats()["exchanged"] == 1
    with pytest.raises(TypeError, match="background= is None, True or False"):
        pliant.compile(chain, background=1)


def test_machine_code_is_the_same_as_in_the_foreground(given):
    """Whatever the thread's settings: gradients, autocast, inference mode."""
    contexts = [
        torch.enable_grad, torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu"), lambda: torch.autocast("cpu", torch.float16)
    ]

    def step(x, w):
        return torch.relu(x @ w.t()).sum(0) + x.mean()

    def plain(text):
        return re.sub(r"(segment|region_|k|Pliant_region_)\d+(_\d+)?", r"\1", text)

    for context in contexts:
        for wants in (False, True):
            found = []
            for later in (False, True):
                fn = types.FunctionType(step.__code__.replace(), globals())
                fn = pliant.compile(fn, background=later)
                x, w = given[0].clone().requires_grad_(wants), given[1].clone()
                with context():
                    fn(x, w)
                assert pliant.synchronize()
                found.append(plain(source(fn)))
            assert found[0] == found[1]


def test_a_backward_pass_belongs_to_its_forward_pass(given):
    def training(x, y):
        return chain(x, y)[0].sum()

    fn = tiered(training)
    wanted, first, second = (given[0].clone().requires_grad_() for _ in range(3))
    training(wanted, given[1]).backward()
    with stopped():
        early = fn(first, given[1])
    kept = fn(second, given[1])
    assert pliant.synchronize()
    late = fn(second, given[1])
    assert type(early.grad_fn) is not type(late.grad_fn)
    early.backward(retain_graph=True)
    close(first.grad, wanted.grad)
    late.backward()
    close(second.grad, wanted.grad)
    (again,) = torch.autograd.grad(early, first, create_graph=True)
    close(again, wanted.grad)
    kept.backward()
    close(second.grad, 2 * wanted.grad)


def test_gradients_of_some_results_in_both_tiers(given):
    """The backward part for these is traced when it is first needed: while the other tier is made of the same trace."""
    fn = tiered(lambda x, y: (torch.tanh(x) * y, torch.sin(x).sum(0)))
    for turn in range(2):
        x, w = given[0].clone().requires_grad_(), given[0].clone().requires_grad_()
        with stopped() if not turn else turns.outside():
            fn(x, given[1])[1].sum().backward()
        torch.sin(w).sum().backward()
        close(x.grad, w.grad)
        assert pliant.synchronize() and pliant.stats()["exchanged"] == 1


def test_writes_and_draws_are_the_same_in_both_tiers(given):
    def step(x, noise):
        x.mul_(0.5).add_(torch.rand_like(x))
        noise.copy_(torch.dropout(x, 0.3, True))
        return x + noise, x.t()

    fn = tiered(step)
    for turn in range(3):
        mine, theirs = [t.clone() for t in given], [t.clone() for t in given]
        torch.manual_seed(turn)
        with stopped() if not turn else turns.outside():
            got = fn(*mine)
        state = torch.get_rng_state()
        torch.manual_seed(turn)
        want = step(*theirs)
        assert torch.equal(state, torch.get_rng_state())
        close((mine, got), (theirs, want))
        assert got[1].stride() == want[1].stride() and got[1].data_ptr() == mine[0].data_ptr()
        assert pliant.synchronize()
    assert pliant.stats()["exchanged"] == 1


def test_exceptions_are_eagers_in_both_tiers():
    def pick(x, i):
        return (x * 2)[i] + 1

    fn = tiered(pick)
    x = torch.randn(5)
    for turn in range(2):
        with stopped() if not turn else turns.outside():
            close(fn(x, torch.tensor([1, 2])), pick(x, torch.tensor([1, 2])))
            with pytest.raises(IndexError):
                fn(x, torch.tensor([1, 7]))
        assert pliant.synchronize()
    assert pliant.stats()["exchanged"] >= 1


def test_calls_of_several_threads_across_the_exchange(given):
    fn = tiered(chain)
    wanted = [chain(given[0][:n], given[1][:n]) for n in range(2, 20)]
    wrong, done = [], threading.Event()

    def call():
        while not done.is_set():
            for n, want in zip(range(2, 20), wanted, strict=True):
                got = fn(given[0][:n], given[1][:n])
                if not all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(got, want, strict=True)):
                    wrong.append(n)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for t in threads:
        t.start()
    try:
        for n in range(1, 4):
            while pliant.stats()["exchanged"] < n and not wrong:
                assert pliant.synchronize(60)
            native.clear(fn._fn.__code__)  # captured again, while they call
    finally:
        done.set()
    for t in threads:
        t.join()
    assert not wrong


def test_a_call_that_is_under_way_ends_in_its_tier(given):
    fn = tiered(chain)
    with stopped():
        fn(*given)
        (entry,) = native.entries(fn._fn.__code__)
        emitted, (place,) = entry.info.emitted, places_of(entry.info.emitted)
        early, answers = emitted.executable.fn, []

        def slow(*slots):
            assert pliant.synchronize()
            answers.append(early(*slots))
            return answers[0]

        emitted.fn.__globals__[place] = slow
    got = fn(*given)
    assert pliant.stats()["exchanged"] == 1 and emitted.fn.__globals__[place] is emitted.executable.fn is not early
    assert all(any(a is b for b in answers[0]) for a in got)
    close(got, chain(*given))


def test_verified_calls_see_the_new_tier(given):
    fn = tiered(chain, verify=1e-9)
    fn(*given)
    assert pliant.synchronize()
    before = pliant.stats()["verified"]
    fn(*given)
    assert pliant.stats()["verified"] == before + 1 and not pliant.stats()["mismatches"]


# -- what goes wrong --------------------------------------------------------------------------------------------------------------
@pytest.fixture
def planted(monkeypatch):
    def fail(p):
        raise RuntimeError("planted")

    monkeypatch.setattr(machine, "lower", fail)
    yield
    assert background.synchronize(60)
    events.count("background_errors", -pliant.stats()["background_errors"])


def test_an_error_in_the_background_is_an_event(planted, given):
    fn = tiered(chain)
    for _ in range(3):
        close(fn(*given), chain(*given))
        assert pliant.synchronize()
    (told,) = events.events("background_error")
    assert told.fields["name"] == "chain" and told.fields["error"] == "RuntimeError: planted"
    assert pliant.stats()["background_errors"] == 1 and not pliant.stats()["exchanged"] and "tanh" in source(fn)


def test_what_is_more_than_the_guards_hold_is_not_used(given):
    """A kernel of `hardshrink` has its limit for a constant. The guards were compiled without one."""
    layer = torch.nn.Hardshrink(0.1)
    fn = tiered(lambda x: torch.tanh(layer(x) * 2) + 1)
    for slope in (0.1, 0.5, 0.25, 0.125, 0.75):
        layer.lambd = slope
        close(fn(given[0]), torch.tanh(layer(given[0]) * 2) + 1)
        assert pliant.synchronize()
    assert pliant.stats()["exchanged"] == pliant.stats()["entries"] == 2
    assert "hardshrink" in "".join(e.source for e in executables(fn)) and "tanh" not in "".join(e.source for e in executables(fn))
    with pytest.raises(DataDependent), (scope := Scope()).closed():
        scope.specialize(scope.backed("s0", 5))


def test_settings_that_change_meanwhile(given):
    """Machine code for the settings of the capture is not made under others; it is at a later call that has them again."""
    fn = tiered(chain)
    with stopped():
        fn(*given)
        torch.use_deterministic_algorithms(True)
    try:
        assert pliant.synchronize() and "tanh" in source(fn)
    finally:
        torch.use_deterministic_algorithms(False)
    assert not pliant.stats()["exchanged"]
    close(fn(*given), chain(*given))
    assert pliant.synchronize() and pliant.stats()["exchanged"] == 1 and "tanh" not in source(fn)


def test_a_full_queue_compiles_in_the_foreground(monkeypatch, given):
    fns = [tiered(chain) for _ in range(3)]
    with stopped():
        fns[0](*given)
        assert len(background.jobs) + (background.running is not None) == 1
        monkeypatch.setattr(module, "MOST_OPERATIONS", 1)
        fns[1](*given)
        monkeypatch.setattr(module, "MOST_JOBS", 0)
        fns[2](*given)
        assert ["_segment" in source(fn) for fn in fns] == [False, True, True]


# -- ends -------------------------------------------------------------------------------------------------------------------------
def test_reset_drops_what_waits(given):
    fns = [tiered(chain) for _ in range(4)]
    with stopped():
        for fn in fns:
            fn(*given)
        pliant.reset()
        assert not background.jobs
    assert pliant.synchronize() and not pliant.stats()["exchanged"]
    close(fns[0](*given), chain(*given))
    assert pliant.synchronize() and pliant.stats()["exchanged"] == 1


def test_reset_while_it_works(given):
    for _ in range(6):
        fn = tiered(chain)
        fn(*given)
        pliant.reset()
        assert not pliant.stats()["exchanged"]
    assert pliant.synchronize() and not pliant.stats()["exchanged"]


def test_entries_that_nobody_has_any_more_are_skipped(monkeypatch, given):
    ran = []
    run = Exchange.run
    monkeypatch.setattr(Exchange, "run", lambda self: (ran.append(self.name), run(self)))
    fn, other = tiered(chain), tiered(lambda x, y: x * y + 1)
    with stopped():
        fn(*given)
        other(*given)
        native.clear(fn._fn.__code__)
        del fn
        gc.collect()
    assert pliant.synchronize()
    assert ran == ["<lambda>"] and pliant.stats()["exchanged"] == 1


def test_nothing_is_held_once_it_is_done():
    held = []
    for n in range(40):
        fn = tiered(lambda x: torch.tanh(x) * n + torch.sin(x))
        fn(torch.randn(n + 2))
        held += [(weakref.ref(fn._fn), weakref.ref(executables(fn)[0].fn))]
    del fn
    assert pliant.synchronize()
    assert not background.jobs and background.size == 0 and background.running is None and background.thread is None
    gc.collect()
    assert sum(a() is not None for a, _ in held) <= 1 and sum(b() is not None for _, b in held) <= 1
    assert not [o for o in gc.get_objects() if type(o) is Exchange]


def test_synchronize_gives_up_in_time(given):
    fn = tiered(chain)
    with stopped():
        fn(*given)
        found = []
        waiter = threading.Thread(target=lambda: found.append(pliant.synchronize(0.01)))
        waiter.start()
        waiter.join()
        assert found == [False]
        assert pliant.synchronize() is False  # whoever holds the turn would wait for itself
    assert pliant.synchronize()


def test_synchronize_inside_of_compiled_code(given):
    def body(x, y):
        z = x * y
        pliant.synchronize()
        return z + 1

    fn = tiered(body)
    for _ in range(3):
        close(fn(*given), body(*given))


# -- processes --------------------------------------------------------------------------------------------------------------------
BEGINNING = """
import os, sys, threading
import torch
import pliant
from pliant.codegen.background import background
torch.set_num_threads(1)

def deep(n):
    def fn(x):
        for i in range(n):
            x = torch.tanh(x * (i + 1)).cumsum(0).softmax(-1) + x
        return x
    return fn

def tiered(n):
    fn = deep(n)
    fn.__code__ = fn.__code__.replace()
    return pliant.compile(fn, background=True, strict=True)

x = torch.randn(8, 8)

def check(fn, n):
    assert torch.allclose(fn(x), deep(n)(x), atol=1e-5)
"""


def process(code, tmp_path, want=0):
    env = {**os.environ, "PLIANT_CACHE_DIR": str(tmp_path), "PLIANT_ENTRIES": "1"}
    done = subprocess.run([sys.executable, "-c", BEGINNING + code], capture_output=True, text=True, timeout=240, env=env)
    assert done.returncode == want, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr and "Fatal" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize("ending", ["", "os._exit(0)", "sys.exit(0)"])
def test_the_end_of_a_process_that_is_still_at_work(ending, tmp_path):
    process("fn = tiered(12)\ncheck(fn, 12)\nassert background.thread is not None\n" + ending, tmp_path)


def test_the_end_of_a_process_with_much_to_do(tmp_path):
    process("for n in range(1, 30): check(tiered(n), n)\n", tmp_path)


def test_the_end_inside_of_llvm(tmp_path):
    process(
        """
from pliant.codegen.cpu import compile as kernels
inside = threading.Event()
emit = kernels.generated
def generated(*a):
    inside.set()
    return emit(*a)
kernels.generated = generated
check(tiered(25), 25)
assert inside.wait(60)
""",
        tmp_path,
    )


FORK = """
pid = os.fork()
if not pid:
    try:
        check(fn, 9)
        {child}
        assert pliant.synchronize(60) and pliant.stats()["exchanged"] == {exchanged}, pliant.stats()
        check(fn, 9)
        check(tiered(3), 3)
        assert pliant.synchronize(60)
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert pliant.synchronize(60)
check(fn, 9)
"""


@pytest.mark.parametrize("when", ["waiting", "working", "in LLVM", "linking", "done"])
def test_forks(when, tmp_path):
    """The child has everything that the parent had, and no thread."""
    prepare = {
        "waiting": "from pliant.codegen.background import stopped\nwith stopped():\n    fn = tiered(9); check(fn, 9)\n" + indented(FORK),
        "working": "fn = tiered(9); check(fn, 9)\n" + FORK,
        "in LLVM": watched("generated") + FORK,
        "linking": watched("link") + FORK,
        "done": "fn = tiered(9); check(fn, 9); pliant.synchronize()\n" + FORK,
    }[when]
    process(prepare.format(child="assert background.thread is not None" if when == "waiting" else "", exchanged=1), tmp_path)


def indented(text):
    """The fork itself happens inside of the `with` above; the rest behind it."""
    head, tail = text.strip().split("\n", 1)
    return f"    {head}\n{tail}\n"


def watched(name):
    return f"""
from pliant.codegen.cpu import compile as kernels
inside = threading.Event()
real = kernels.{name}
def {name}(*a, **k):
    inside.set()
    return real(*a, **k)
kernels.{name} = {name}
fn = tiered(9); check(fn, 9)
assert inside.wait(60)
"""


def test_the_disk_gets_the_machine_code(tmp_path):
    (tmp_path / "prog.py").write_text("import torch\ndef f(x):\n    return torch.tanh(x) * 2 + torch.sin(x)\n")
    code = """
import pliant, prog
from pliant import native
fn = pliant.compile(prog.f, background=True, strict=True)
x = torch.randn(9)
assert torch.allclose(fn(x), prog.f(x), atol=1e-6)
if {wait}:
    assert pliant.synchronize()
(entry,) = native.entries(prog.f.__code__)
answer = [entry.info.emitted.executable.source, pliant.stats()]
"""
    processes = Processes()
    try:
        first = processes.fresh(code.format(wait=True), str(tmp_path))
        second = processes.fresh(code.format(wait=False), str(tmp_path))
    finally:
        processes.close()
    assert "tanh" not in first["answer"][0] and first["answer"][1]["exchanged"] == 1 and first["counters"]["entries_kept"] == 1
    assert "tanh" not in second["answer"][0] and second["answer"][1]["captures"] == 0 and second["answer"][1]["exchanged"] == 0


def test_reset_counts_anew_the_entries_that_are_gone():
    _gone[b"a function"] = MOST_KEPT
    pliant.reset()
    assert not _gone
