"""`verify=`: planted faults of every room are found, programs without faults raise no alarm, and the caller always has eager's answer."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import io
import itertools
import operator
import os
import random
import re
import subprocess
import sys
import threading
import warnings
import weakref

import numpy as np
import pytest
import torch
from torch import nn

import pliant
from pliant import events, native
from pliant.errors import VerificationError
from pliant.graph.rules.table import RULES
from pliant.interpret.capture import Return
from pliant.jit import emit as emission
from pliant.jit import region
from pliant.jit.verify import floats
from pliant.lower.lowerings.builder import TABLE
from tests.jit.processes import Processes

aten = torch.ops.aten
HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """Where the files that reproduce differences go."""
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))


def told(kind):
    return [e.fields for e in events.events(kind)]


def counts():
    found = pliant.stats()
    return found["verified"], found["mismatches"], found["unverifiable"]


def verifying(fn, verify=1.0, **options):
    return pliant.compile(fn, verify=verify, **{"strict": True, **options})


def t(*shape, seed=0, grad=False):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad)


# -- planted faults ---------------------------------------------------------------------------------------------------------------
STATE = {"k": 2}
LOG: list = []
COUNTER = 0
FAULTS: dict[str, tuple] = {}


def fault(program, *calls, **options):
    """`plant(monkeypatch)` breaks a room; `program` called with each of `calls` then must be found out, and not without it."""

    def register(plant):
        FAULTS[plant.__name__] = (plant, program, calls, options)
        return plant

    return register


def bent(monkeypatch, bend):
    """Emitted functions are replaced: `bend(fn)` gives another."""

    def emit(*args, **kwargs):
        emitted = emission.emit(*args, **kwargs)
        emitted.fn = bend(emitted.fn)
        return emitted

    monkeypatch.setattr(region, "emit", emit)


def results(monkeypatch, change):
    def bend(fn):
        def changed(*args):
            return change(fn(*args))

        return changed

    bent(monkeypatch, bend)


def without_guards(monkeypatch, drop):
    """Guards for which `drop(guard)` are forgotten."""
    compiled = region.compiled

    def fewer(guards, symbols, relations, slots):
        return compiled([g for g in guards if not drop(g)], symbols, relations, slots)

    monkeypatch.setattr(region, "compiled", fewer)


def captured(monkeypatch, change):
    """What was captured is changed before it is emitted."""

    def capture(*args, **kwargs):
        found = captures_of(*args, **kwargs)
        change(found)
        return found

    captures_of = region.capture
    monkeypatch.setattr(region, "capture", capture)


@fault(lambda x: x.exp() + 1, (t(8),))
def a_wrong_kernel(monkeypatch):
    monkeypatch.setitem(TABLE, aten.exp.default, TABLE[aten.sin.default])


@fault(lambda x: (x * 2, x[1:].shape[0]), (t(5),))
def a_wrong_size_rule(monkeypatch):
    monkeypatch.setitem(RULES, aten.slice.Tensor, lambda trace, x, *args: RULES[aten.alias.default](trace, x))


@fault(lambda x: x.t().clone() + 1, (t(3, 4),), backend="aten")
def a_wrong_layout(monkeypatch):
    results(monkeypatch, lambda r: r.contiguous())


@fault(lambda x, k: x * k, (t(3), "a" and 2.0), (t(3), 3.0), dynamic=False)
def a_dropped_guard_on_a_number(monkeypatch):
    without_guards(monkeypatch, lambda g: g.kind == "EQ_MATCH")


@fault(lambda x, mode: x + 1 if mode == "plus" else x - 1, (t(3), "plus"), (t(3), "minus"))
def a_dropped_guard_on_a_text(monkeypatch):
    without_guards(monkeypatch, lambda g: g.kind == "EQ_MATCH")


@fault(lambda x, d: x + len(d) + sum(d.values()), (t(3), {"a": 1}), (t(3), {"a": 1, "b": 5}))
def a_dropped_guard_on_keys(monkeypatch):
    without_guards(monkeypatch, lambda g: g.kind in ("DICT_KEYS", "LENGTH"))


@fault(lambda x, f: f(x), (t(3), torch.sin), (t(3), torch.cos))
def a_dropped_guard_on_an_identity(monkeypatch):
    without_guards(monkeypatch, lambda g: g.kind in ("ID_MATCH", "TYPE_ATTRS"))


@fault(lambda x, y: x.add_(1) + y, *[(lambda a: (a, a))(t(3))], (t(3), t(3, seed=1)))
def a_dropped_guard_on_aliases(monkeypatch):
    without_guards(monkeypatch, lambda g: g.kind in ("ALIAS", "NOT_ALIAS", "STORAGE_OVERLAP"))


def branches(x):
    return x + 1 if x.shape[0] > 4 else x - 1


@fault(branches, (t(3),), (t(6),))
def a_dropped_guard_on_a_size(monkeypatch):
    compiled = region.compiled
    monkeypatch.setattr(region, "compiled", lambda guards, symbols, relations, slots: compiled(guards, symbols, [], slots))


def reads_the_world(x):
    return x * STATE["k"]


@fault(reads_the_world, (t(3),), (t(3),), between=lambda i: STATE.update(k=2 + i))
def a_stale_constant(monkeypatch):
    without_guards(monkeypatch, lambda g: "STATE" in g.source.name)


def counts_up(x):
    global COUNTER
    COUNTER += 1
    return x + 1


@fault(counts_up, (t(3),))
def a_dropped_write_to_a_global(monkeypatch):
    captured(monkeypatch, lambda found: found.effects.clear())


@fault(lambda x, log: log.append(x.shape[0]) or x * 2, (t(3), []))
def a_dropped_effect_on_an_argument(monkeypatch):
    captured(monkeypatch, lambda found: found.effects.clear())


class Machine:
    def __init__(self):
        self.steps = 0

    def step(self, x):
        self.steps += 1
        return x * 2


@fault(lambda x, machine: machine.step(x), (t(3), Machine()))
def a_dropped_effect_on_an_attribute(monkeypatch):
    captured(monkeypatch, lambda found: found.effects.clear())


def swap(found):
    if isinstance(found.exit, Return):
        found.exit = Return(tuple(reversed(found.exit.value)))


@fault(lambda x: (x + 1, x + 2), (t(3),))
def a_wrong_return(monkeypatch):
    captured(monkeypatch, swap)


def broken(x, y):
    a, b = x + 1, y * 2
    pliant.graph_break()
    return a - b


@fault(broken, (t(3), t(3, seed=1)))
def a_wrong_state_of_a_resumed_frame(monkeypatch):
    state = emission.Emitter.state
    monkeypatch.setattr(emission.Emitter, "state", lambda self, items: state(self, [items[1], items[0], *items[2:]]))


def in_a_loop(x, log):
    for i in range(3):
        pliant.graph_break()
        log.append(i)
        x = x + i
    return x


@fault(in_a_loop, (t(3), []))
def a_lost_turn_of_a_loop(monkeypatch):
    captured(monkeypatch, lambda found: found.effects.clear())


@fault(lambda x: x + 1, (t(3),))
def a_wrong_dtype(monkeypatch):
    results(monkeypatch, lambda r: r.double())


@fault(lambda x: x[1:].view(-1), (t(4),))
def a_copy_for_a_view(monkeypatch):
    results(monkeypatch, lambda r: r.clone())


@fault(lambda x, given: given, (t(3), [1]))
def a_copy_of_an_argument(monkeypatch):
    results(monkeypatch, lambda r: list(r))


@fault(lambda x: (lambda y: (y, y[0]))(x * 2), (t(3, 2),))
def results_that_do_not_share_memory(monkeypatch):
    results(monkeypatch, lambda r: (r[0], r[1].clone()))


@fault(lambda x: x.mul_(2).sum(), (t(3),))
def a_missed_mutation(monkeypatch):
    def bend(fn):
        def changed(x, *rest):
            return fn(x.clone(), *rest)

        return changed

    bent(monkeypatch, bend)


@fault(lambda x: x.sum(), (t(3),))
def an_unwanted_mutation(monkeypatch):
    def bend(fn):
        def changed(x, *rest):
            found = fn(x, *rest)
            x.data.add_(1)  # no version counter tells of it
            return found

        return changed

    bent(monkeypatch, bend)


def raises(x):
    y = x + 1
    pliant.graph_break()
    raise ValueError(f"no {y.shape[0]}")


def raising(error):
    def bend(fn):
        def changed(*args):
            try:
                return fn(*args)
            except ValueError as e:
                raise error(str(e)) from None

        return changed

    return bend


@fault(raises, (t(3),))
def a_wrong_type_of_an_exception(monkeypatch):
    bent(monkeypatch, raising(TypeError))


@fault(raises, (t(3),))
def a_wrong_text_of_an_exception(monkeypatch):
    bent(monkeypatch, raising(lambda text: ValueError(text + "!")))


@fault(raises, (t(3),))
def a_lost_exception(monkeypatch):
    def bend(fn):
        def changed(*args):
            try:
                return fn(*args)
            except ValueError:
                return None

        return changed

    bent(monkeypatch, bend)


def speaks(x):
    print("shape", tuple(x.shape))
    return x + 1


@fault(speaks, (t(3),))
def a_lost_line(monkeypatch):
    captured(monkeypatch, lambda found: found.effects.clear())


@fault(lambda x: nn.functional.dropout(x, 0.5) + torch.rand(3), (t(3),))
def a_draw_too_many(monkeypatch):
    results(monkeypatch, lambda r: (torch.rand(1), r)[1])


@fault(lambda x: x.sin() * 3, (t(5, grad=True),))
def a_result_cut_off_from_its_graph(monkeypatch):
    results(monkeypatch, lambda r: r.detach())


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g * 2


@fault(lambda x: x.sin() * 3, (t(5, grad=True),))
def a_wrong_gradient(monkeypatch):
    results(monkeypatch, Doubled.apply)


def careless(graph, example_inputs):
    for node in graph.graph.nodes:
        if node.target in (torch.add, operator.add):
            node.args = (node.args[0], 2)
    graph.recompile()
    return graph.forward


@fault(lambda x: x + 1, (t(3),), backend=careless)
def a_faulty_backend(monkeypatch):
    """The backend is one."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name, monkeypatch):
    plant, program, calls, options = FAULTS[name]
    options = dict(options)
    between = options.pop("between", lambda i: None)

    def run(**options):
        target = verifying(program, **options)
        for i, args in enumerate(calls):
            between(i)
            args = tuple(a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in args)
            if len(args) == 2 and calls[i][0] is calls[i][1]:
                args = (args[0], args[0])
            try:
                target(*args)
            except ValueError as e:
                assert "no 3" in str(e)

    if "backend" not in options or options["backend"] is not careless:
        run(**options)
        assert counts()[0] >= 1 and counts()[1:] == (0, 0), (told("mismatch"), told("unverifiable"))
        pliant.reset()
    plant(monkeypatch)
    with pytest.raises(VerificationError, match="differs from eager PyTorch"):
        run(**options)
    assert pliant.stats()["mismatches"] == 1 and len(told("mismatch")) == 1


# -- what the caller has of it ----------------------------------------------------------------------------------------------------
def test_the_answer_and_the_state_are_those_of_eager(monkeypatch):
    def fn(x, log):
        log.append(x.shape[0])
        x.add_(1)
        return x * 2

    results(monkeypatch, lambda r: r + 5)
    target = verifying(fn, strict=False)
    x, log = t(3), []
    with pytest.warns(RuntimeWarning, match=r"pliant V\d+: .*differs from eager PyTorch in .*\[\d+/0\]") as caught:
        got = target(x, log)
    assert torch.equal(x, t(3) + 1) and torch.equal(got, x * 2) and log == [3]
    assert len([w for w in caught if "pliant V" in str(w.message)]) == 1
    (event,) = told("mismatch")
    assert event["entries"] and os.path.exists(event["file"])


def test_entries_are_dropped_and_repeated_failures_end_in_eager(monkeypatch):
    def fn(x):
        return x * 2

    results(monkeypatch, lambda r: r + 5)
    target = verifying(fn, strict=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(6):
            assert torch.equal(target(t(3)), t(3) * 2)
            assert native.entries(fn.__code__) == []
    assert len([w for w in caught if "pliant V" in str(w.message)]) == 1  # once
    assert counts() == (0, 3, 0) and pliant.stats()["captures"] == 3
    assert native.get_flags(fn.__code__) & native.SKIP


def test_a_dropped_entry_is_captured_anew(monkeypatch):
    def fn(x):
        return x * 2

    target = verifying(fn, strict=False)
    with monkeypatch.context() as m:
        results(m, lambda r: r + 5)
        with pytest.warns(RuntimeWarning):
            target(t(3))
    assert torch.equal(target(t(3)), t(3) * 2) and torch.equal(target(t(4)), t(4) * 2)
    assert counts() == (2, 1, 0) and pliant.stats()["captures"] == 2


def test_the_file_reproduces_the_difference(monkeypatch, tmp_path):
    """In another process: a backend is at fault, which is found there, too."""
    target = verifying(lambda x, k: x + k, backend=careless)
    with pytest.raises(VerificationError) as info:
        target(t(3), 1)
    script = told("mismatch")[0]["file"]
    assert script in str(info.value) and str(tmp_path) in script
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=HERE, env={**os.environ, "PYTHONPATH": HERE})
    assert "VerificationError" in ran.stderr and "result: values" in ran.stderr, ran.stderr
    with open(os.path.join(os.path.dirname(script), "entries.txt")) as file:
        assert "def __compiled_fn" in file.read()


def test_a_file_without_data_says_so():
    def fn(x, lock):
        return x + 1

    target = verifying(fn, backend=careless, strict=False)
    with pytest.warns(RuntimeWarning):
        target(t(3), weakref.ref(nn.Linear(1, 1)))
    with open(told("mismatch")[0]["file"]) as file:
        assert "could not be written down" in file.read()


# -- how often --------------------------------------------------------------------------------------------------------------------
def test_without_it_nothing_is_verified():
    target = pliant.compile(lambda x: x + 1, verify=0)
    target(t(3))
    assert counts() == (0, 0, 0)


def test_the_share_and_the_call_after_each_capture():
    def fn(x, k):
        return x + k if k > 2 else x - k

    target = verifying(fn, 1e-9)
    for _ in range(5):
        target(t(3), 1)
    assert counts() == (1, 0, 0)
    for _ in range(5):
        target(t(3), 5)
    assert counts() == (2, 0, 0) and pliant.stats()["captures"] == 2


def test_the_call_after_a_capture_below_a_break():
    """What a resumed frame captures in a call that is not verified is verified in the next."""

    def fn(x, k):
        pliant.graph_break()
        return x + k if k > 2 else x - k

    target = verifying(fn, 1e-9)
    for _ in range(3):
        target(t(3), 1)
    assert counts() == (1, 0, 0)
    for _ in range(3):
        target(t(3), 5)
    assert counts() == (2, 0, 0)


def test_a_share_of_the_calls(monkeypatch):
    monkeypatch.setattr("pliant.jit.verify.verifier._draws", random.Random(0))
    target = verifying(lambda x: x + 1, 0.25)
    for _ in range(400):
        target(t(3))
    assert 60 < counts()[0] < 140
    assert pliant.stats()["captures"] == 1


def test_the_environment_variable(monkeypatch):
    monkeypatch.setenv("PLIANT_VERIFY", "1")
    pliant.compile(lambda x: x + 1)(t(3))
    assert counts() == (1, 0, 0)
    monkeypatch.setenv("PLIANT_VERIFY", "often")
    with pytest.raises(ValueError, match="PLIANT_VERIFY is a share of calls"):
        pliant.compile(lambda x: x)


@pytest.mark.parametrize("share", [-0.1, 1.5, "x", float("nan")])
def test_what_is_no_share(share):
    with pytest.raises(ValueError, match="verify is a share of calls"):
        pliant.compile(lambda x: x, verify=share)


def test_an_entry_from_the_disk_is_verified(tmp_path):
    code = """
import pliant, program
target = pliant.compile(program.fn, verify=1e-9)
for n in (3, 4, 5):
    target(torch.ones(n))
answer = pliant.stats()
"""
    (tmp_path / "program.py").write_text("def fn(x):\n    return x * 2 + 1\n")
    processes = Processes()
    try:
        first, second = (processes.fresh(code, str(tmp_path))["answer"] for _ in range(2))
    finally:
        processes.close()
    assert (first["captures"], first["from_disk"], first["verified"]) == (1, 0, 1)
    assert (second["captures"], second["from_disk"], second["verified"]) == (0, 1, 1)


def test_it_changes_nothing_of_what_is_compiled():
    def fn(x, k):
        for _ in range(k):
            x = x * 2
        pliant.graph_break()
        return x + k

    found = []
    for verify in (0, 1):
        pliant.reset()
        target = verifying(fn, verify)
        for n, k in ((3, 1), (4, 2), (5, 3), (6, 1), (1, 2)):
            target(t(n), k)
        s = pliant.stats()
        found.append({k: s[k] for k in ("captures", "recompiles", "graph_breaks", "entries", "calls")})
    assert found[0] == found[1]


# -- no false alarms --------------------------------------------------------------------------------------------------------------
@dataclasses.dataclass
class Node:
    value: torch.Tensor
    rest: Node | None = None
    notes: dict = dataclasses.field(default_factory=dict)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a = 1


class Registry:
    made = 0
    kept: list = []

    def __init__(self):
        Registry.made += 1
        type(self).kept.append(Registry.made)


MODULE_TENSOR = torch.zeros(3)
CELLS = itertools.count()


def makes_objects(x):
    r = Registry()
    return x + r.made, r


def writes_slots(x, s):
    s.b = x * 2
    del s.a
    return s.b.sum()


def grows(x, node, table, seen, queue):
    node.notes[x.shape[0]] = node
    table["last"] = x
    seen.add(x.shape[0])
    queue.append(x.shape[0])
    node.rest = Node(x * 2, node)
    return node.rest.value, table, node


def writes_globals(x):
    MODULE_TENSOR.add_(x.sum())
    STATE["n"] = STATE.get("n", 0) + 1
    LOG.append(STATE["n"])
    return MODULE_TENSOR * 1


def closes_over(n):
    def fn(x):
        nonlocal n
        n += 1
        return x * n

    return fn


def draws(x):
    return torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x) + random.random() + np.random.rand()


def draws_from(x, generator):
    return x + torch.rand(x.shape, generator=generator)


def switches(x):
    with torch.no_grad():
        y = x * 2
    torch.set_grad_enabled(False)
    z = y + 1
    torch.set_grad_enabled(True)
    return y, z


def shares(x):
    y = x.view(-1)
    z = x[0]
    return x, y, z, [x, (y,)]


def lazily(x):
    for i in range(x.shape[0]):
        yield x[i]


def of_generators(x):
    return sum(lazily(x)), list(lazily(x)), (v * 2 for v in x)


def many_kinds(x, a):
    a[0] = 5
    return collections.Counter("abca"), {1, 2}, frozenset((3,)), slice(1, x.shape[0]), range(3), a, functools.partial(int, "3"), x.shape


def in_place_with_history(x, w):
    x.mul_(w)
    return x + 1


@pytest.mark.parametrize(
    ("fn", "make"),
    [
        (makes_objects, lambda n: (t(n),)),
        (writes_slots, lambda n: (t(n), Slotted())),
        (grows, lambda n: (t(n), Node(t(n)), collections.OrderedDict(), {1}, collections.deque(maxlen=3))),
        (writes_globals, lambda n: (t(3),)),
        (closes_over(2), lambda n: (t(n),)),
        (draws, lambda n: (t(n),)),
        (draws_from, lambda n: (t(n), torch.Generator().manual_seed(n))),
        (switches, lambda n: (t(n, grad=True),)),
        (shares, lambda n: (t(n, 4),)),
        (of_generators, lambda n: (t(n),)),
        (many_kinds, lambda n: (t(n), np.arange(4))),
        (in_place_with_history, lambda n: (t(n), t(n, seed=1, grad=True))),
        (lambda x: x.add_(1).t(), lambda n: (t(n, 2),)),
        (lambda x: x.resize_(x.shape[0] + 1).zero_(), lambda n: (t(n),)),
        (lambda x, y: setattr(x, "data", y) or x * 1, lambda n: (t(n), t(n + 1))),
        (lambda x: x.requires_grad_() * 2, lambda n: (t(n),)),
        (lambda x: x.to(torch.bfloat16).softmax(-1) @ x.to(torch.bfloat16), lambda n: (t(n, n),)),
        (lambda x: x.to(torch.complex64).conj() * 2, lambda n: (t(n),)),
        (lambda x: (x @ x.t()).sum().item(), lambda n: (t(40 * n, 100),)),
        (lambda x: f"{x.double().exp().mean().item():.7f}", lambda n: (t(100 * n),)),
    ],
)
def test_no_false_alarm(fn, make):
    target = verifying(fn)
    for n in (3, 4, 6):
        target(*make(n))
    assert counts() == (3, 0, 0), (told("unverifiable"), told("mismatch"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.drop, self.b = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.history: list = []

    def forward(self, x):
        self.calls += 1
        self.history.append(x.shape[0])
        return self.b(self.drop(self.norm(self.a(x)).relu()))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("whole", [False, True])
def test_training(optimizer, whole):
    def train(compiled):
        torch.manual_seed(0)
        net = Net()
        opt = optimizer(net.parameters(), lr=0.01)
        model = verifying(net) if compiled and not whole else net

        def step(x, y):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            return loss

        step = verifying(step) if compiled and whole else step
        losses = [step(t(n, 6, seed=n), torch.arange(n) % 3).item() for n in (4, 5, 6, 7)]
        return losses, net

    want, got = train(False), train(True)
    assert want[0] == got[0]  # every call was verified: eager's, to the last bit
    for a, b in zip(want[1].state_dict().values(), got[1].state_dict().values(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)
    assert want[1].history == got[1].history and counts() == (4, 0, 0), (told("unverifiable"), told("mismatch"))


def test_models_of_transformers():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 50}
    bert = transformers.BertModel(transformers.BertConfig(**sizes))
    model = verifying(bert)
    for n in (5, 7):
        ids = torch.randint(0, 50, (2, n))
        model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state.sum().backward()
    gpt = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=50, n_positions=32)).eval()
    model, past = verifying(gpt), None
    with torch.no_grad():
        for n in (5, 1, 1):
            past = model(input_ids=torch.randint(0, 50, (1, n)), past_key_values=past, use_cache=True).past_key_values
    assert counts() == (5, 0, 0) and past.get_seq_length() == 7


def test_what_was_held_is_held():
    """Identity, memory, versions and history of what was there before are those that eager leaves."""

    def fn(x, items):
        items.append(x)
        x.mul_(2)
        return x

    x, items = t(4), [1]
    alias, address, kept = x.view(2, 2), x.data_ptr(), items
    got = verifying(fn)(x, items)
    assert got is x and items is kept and items[1] is x and x.data_ptr() == address and x._version == 1
    assert torch.equal(alias, (t(4) * 2).view(2, 2)) and alias._version == 1


def test_a_graph_that_was_there_before_can_still_be_differentiated():
    w = t(3, grad=True)
    y = (w * w).sin()
    fn = verifying(lambda y, b: (y * 2 + b).sum())
    b = t(3, seed=1)
    out = fn(y, b)
    out.backward()
    assert torch.allclose(w.grad, 4 * t(3) * (t(3) ** 2).cos(), atol=1e-6) and counts() == (1, 0, 0)


def test_printed_text_comes_once(capsys):
    target = verifying(speaks)
    target(t(3))
    target(t(3))
    assert capsys.readouterr().out == "shape (3,)\n" * 2 and counts() == (2, 0, 0)


def test_a_stream_in_the_place_of_stdout(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    verifying(speaks)(t(3))
    assert out.getvalue() == "shape (3,)\n" and "write" not in vars(out)


def test_exceptions_are_those_of_eager():
    target = verifying(raises)
    for _ in range(2):
        with pytest.raises(ValueError, match="no 3") as info:
            target(t(3))
        names = [entry.name for entry in info.traceback]
        assert names[-1] == "raises" and "perform" not in names and info.value.__context__ is None
    assert counts()[:2] == (2, 0)


def test_recursion_and_nested_entry_points():
    inner = verifying(lambda x: x * 2)

    def outer(x):
        pliant.graph_break()
        return inner(x) + 1

    target = verifying(outer)
    target(t(3))
    assert counts() == (1, 0, 0)  # the nested one is a part of it


# -- what cannot be verified --------------------------------------------------------------------------------------------------------
def numbers(n):
    yield from range(n)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: numbers(5), "generator"),
        (lambda: iter([1, 2, 3, 4]), "list_iterator"),
        (lambda: threading.Lock(), "_thread.lock"),
        (lambda: open(os.devnull), "TextIOWrapper"),
        (lambda: [{"deep": threading.Lock()}], r"_thread.lock at .*\[0\]\.deep"),
        (lambda: torch.eye(3).to_sparse(), "Tensor"),
    ],
)
def test_what_cannot_be_put_back(make, why):
    def fn(x, thing):
        return x + (next(thing) if "iterator" in why or why == "generator" else 1)

    target, thing = verifying(fn), make()
    assert torch.equal(target(t(3), thing), t(3) + (why != "generator"))
    (event,) = told("unverifiable")
    assert counts() == (0, 0, 1) and re.search(why, event["reason"]), event
    if hasattr(thing, "close"):
        thing.close()


def counted(x):
    return x + next(CELLS)


def test_a_global_iterator():
    target = verifying(counted)
    first = next(CELLS)
    assert torch.equal(target(t(3)), t(3) + first + 1) and counts() == (0, 0, 1)


def test_what_eager_does_not_repeat_is_no_mismatch(tmp_path):
    """The state is out of reach (a file): eager differs from itself, which is told."""
    path = str(tmp_path / "count")

    def bump():
        with open(path, "a") as file:
            file.write("x")
        return os.path.getsize(path)

    target = verifying(lambda x: x + pliant.disable(bump)())
    target(t(3))
    assert counts() == (0, 0, 1) and "eager differs from itself" in told("unverifiable")[0]["reason"]


def test_history_that_cannot_be_put_back():
    def fn(x, y):
        y.mul_(x)
        return y + 1

    w = t(3, grad=True)
    y = w * 2
    assert torch.equal(verifying(fn)(t(3, seed=1), y), t(3) * 2 * t(3, seed=1) + 1)
    assert counts() == (0, 0, 1) and "autograd graph" in told("unverifiable")[0]["reason"]


def test_large_parameters_are_watched(monkeypatch):
    """Beyond a limit of copies. A run that writes to them cannot be undone: its answer stands."""
    monkeypatch.setattr("pliant.jit.verify.snapshot.MOST_BYTES", 400)
    model = nn.Linear(16, 16)
    verifying(model)(t(2, 16))
    assert counts() == (1, 0, 0)

    def step(x):
        with torch.no_grad():
            model.weight.add_(1)
        return model(x)

    before = model.weight.detach().clone()
    got = verifying(step)(t(2, 16))
    assert torch.equal(model.weight, before + 1) and torch.allclose(got, model(t(2, 16)), atol=1e-6)
    assert counts() == (1, 0, 1) and "more memory" in told("unverifiable")[0]["reason"]
    verifying(lambda x: x + 1)(t(200))
    assert counts() == (1, 0, 2) and "no parameters" in told("unverifiable")[1]["reason"]


def test_under_modes_and_transforms():
    target = verifying(lambda x: x.sin() * 2)
    assert torch.allclose(torch.vmap(target)(t(2, 3)), t(2, 3).sin() * 2, atol=1e-6)
    assert counts()[1] == 0


# -- the rule for floats --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("dtype", "fine", "wrong"),
    [(torch.float64, 1e-12, 1e-8), (torch.float32, 1e-6, 1e-3), (torch.float16, 1e-3, 0.1), (torch.bfloat16, 1e-2, 0.3)],
)
def test_the_rule_by_type(dtype, fine, wrong):
    e = torch.linspace(1, 2, 64, dtype=dtype)
    assert floats.close(e, e) and floats.close(e, (e.double() * (1 + fine)).to(dtype))
    assert not floats.close(e, (e.double() * (1 + wrong)).to(dtype))


def test_the_rule_for_what_is_not_finite():
    inf, nan = float("inf"), float("nan")
    e = torch.tensor([inf, -inf, nan, 1.0])
    assert floats.close(e, e.clone())
    for i, v in ((0, -inf), (0, 3.0), (2, 1.0), (3, nan), (3, inf)):
        c = e.clone()
        c[i] = v
        assert not floats.close(e, c)


def test_texts_of_numbers():
    same = floats.close_texts
    assert same("loss 0.123457 after 3", "loss 0.123456 after 3")
    assert not same("loss 0.125 after 3", "loss 0.123 after 3") and not same("loss 0.5 after 3", "loss 0.5 after 4")


def test_float64_excuses_rounding_alone(monkeypatch):
    """A sum that cancels: what is left is rounding, in which eager itself is wrong by as much."""

    def fn(x):
        return (x * 1e6).sum(-1) - x.sum(-1) * 1e6

    big = t(4, 1000)
    with monkeypatch.context() as m:
        results(m, lambda r: r * 1.5)
        verifying(fn)(big)
    assert counts() == (1, 0, 0)  # eager's error is as large as that
    pliant.reset()
    results(monkeypatch, lambda r: r + 1000.0)
    with pytest.raises(VerificationError):
        verifying(fn)(big)


def test_an_argmax_between_equals(monkeypatch):
    """Whole numbers that hang on a rounding pass if float64 gives what the compiled program gave."""
    x = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    near = torch.stack((x.sum().float(), torch.tensor(0.6, dtype=torch.float32)))

    def fn(v):
        return torch.stack((v.sum(), torch.tensor(0.6, dtype=v.dtype))).argmax()

    results(monkeypatch, lambda r: 1 - r)
    assert near.shape == (2,)
    with pytest.raises(VerificationError):  # here float64 stands by eager
        verifying(fn)(torch.tensor([1.0, 2.0, 3.0]))


# -- methods of tensors that the program has replaced ------------------------------------------------------------------------------
def written_to(x, w):
    x.add_(1)
    w["n"] = w["n"] + 1
    return torch.sin(x), torch.argmax(w["t"])


def with_gradients(x, w):
    return torch.tanh(w["p"] * x), w["p"]


def of_complex(x, w):
    return torch.view_as_complex(torch.stack((x, x), -1)), torch.transpose(w["t"], 0, -1)


def raises_behind_a_write(x, w):
    x.mul_(2)
    raise KeyError("none")


ANSWERS = (
    "numel", "dim", "stride", "is_conj", "is_neg", "is_complex", "is_floating_point", "storage_offset", "is_inference", "size",
    "untyped_storage", "detach", "abs", "square", "mean", "resolve_neg", "resolve_conj", "isnan", "isfinite", "any", "all", "sum",
    "max", "to", "double", "clone", "set_", "as_strided", "requires_grad_", "detach_", "element_size", "numpy", "cpu", "nan_to_num",
    "reshape", "__sub__", "__le__", "__eq__", "__or__", "__and__", "__invert__", "__add__", "__rmul__", "__bool__", "__float__",
    "__int__", "__format__", "__repr__", "__reduce_ex__", "tolist", "item",
)  # fmt: skip


def refuses(*args, **kwargs):
    raise AssertionError("a method of the program's was called")


ASKED = [written_to, with_gradients, of_complex, raises_behind_a_write]


@pytest.mark.parametrize("fn", ASKED)
@pytest.mark.parametrize("found", [False, True], ids=["alike", "otherwise"])
def test_it_asks_tensors_as_pytorch_has_them(fn, found, monkeypatch):
    verify_without(ANSWERS, fn, found, monkeypatch)


@pytest.mark.parametrize("found", [False, True], ids=["alike", "otherwise"])
def test_it_asks_for_items_as_pytorch_has_them(found):
    """Apart: CPython takes tensors for sequences for ever, once their class has had this method (`torch.tensor` raises then)."""
    code = f"""import pytest
from tests import conftest
from tests.jit import test_verify as own
for fn in own.ASKED:
    with pytest.MonkeyPatch.context() as patch:
        own.verify_without(["__getitem__"], fn, {found}, patch)
print("verified", len(own.ASKED))"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == f"verified {len(ASKED)}\n", run.stderr


def verify_without(methods, fn, found, monkeypatch):
    """The program calls none of these methods: whoever does is verification. It finds what it finds without them replaced."""

    def world():
        return {"n": 0, "t": t(3), "p": nn.Parameter(t(3))}

    made = verifying(fn, strict=False)
    answer = contextlib.suppress(KeyError)
    with answer:
        made(t(3), world())
    before, x, w = counts(), t(3, seed=1), world()
    if found:
        monkeypatch.setattr(floats, "close", lambda *args, **named: False)
        monkeypatch.setattr("pliant.jit.verify.runs.Judge.steady", lambda *args: None)
    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in methods:
            patch.setattr(torch.Tensor, name, refuses)
        with answer:
            made(x, w)
    verified, mismatches, unverifiable = (now - was for now, was in zip(counts(), before, strict=True))
    assert verified + mismatches == 1 and not unverifiable
