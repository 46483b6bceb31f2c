"""Logs and explanations: what they print for a program that one knows."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys

import pytest
import torch

import pliant
from pliant import events
from pliant.guards import source as S
from pliant.guards.guard import KINDS, Guard, Site, TensorSpec
from pliant.lower.loops import Buffer, Kernel, Node, Store
from pliant.report import guards, logs, tables
from pliant.report.explain import Collector, collect, explain, fresh


def toy_example(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


@pytest.fixture(autouse=True)
def silence():
    yield
    logs.set_logs()


def toy_args():
    return torch.linspace(-1, 1, 10), torch.linspace(0, 1, 10)


def printed(*channels, fn=toy_example, calls=(None,)):
    out = io.StringIO()
    compiled = pliant.compile(fresh(fn))
    with logs.logging_to(out, *channels):
        for args in calls:
            compiled(*(args or toy_args()))
    return out.getvalue()


# -- tables ------------------------------------------------------------------------------------------------
def test_text_table():
    assert tables.text_table(("op", "n"), [("add", 1), ("multiply", 22)]).splitlines() == [
        "op        n",
        "--------  --",
        "add       1",
        "multiply  22",
    ]
    assert tables.clip("a\n  b", 10) == "a b" and tables.clip("abcdef", 4) == "abc…"


def test_table_of_an_fx_graph():
    def f(x):
        return torch.relu(x).view(2, -1) + 1

    lines = tables.graph_table(torch.fx.symbolic_trace(f).graph).splitlines()
    assert lines[0].split() == ["opcode", "name", "target", "args", "kwargs"]
    assert [line.split()[:2] for line in lines[2:]] == [
        ["placeholder", "x"], ["call_function", "relu"], ["call_method", "view"], ["call_function", "add"], ["output", "output"],
    ]  # fmt: skip
    assert "(relu, 2, -1)" in lines[4]


# -- logs of the toy example -----------------------------------------------------------------------------------
def test_graph_log(no_joins):
    text = printed("graph")
    first, second = text.strip().split("\n\n")
    rows = [line.split() for line in first.splitlines()[3:]]
    assert "TRACED GRAPH" in first and [r[:2] for r in rows if r[0] != "output"] == [
        ["placeholder", "a"], ["placeholder", "b"], ["call_function", "abs_1"], ["call_function", "add"], ["call_function", "truediv"],
        ["call_method", "sum_1"], ["call_function", "lt"],
    ]  # fmt: skip
    assert "(a, add)" in first and "(sum_1, 0)" in first
    assert "call_function  mul" in second


def test_guards_log():
    text = printed("guards")
    assert "] GUARDS:\n - local 'a' TENSOR_MATCH " in text
    assert " - local 'b' TENSOR_MATCH " in text and " - global 'torch' ID_MATCH " in text
    assert "float32[?] on cpu" in text and "# test_report.py:" in text
    assert "s0 = local 'a'.size()[0]" in text


def test_bytecode_log(no_joins):
    text = printed("bytecode")
    original, modified = text.split("MODIFIED BYTECODE")[:2]
    assert "ORIGINAL BYTECODE toy_example" in original and re.search(r"POP_JUMP_(FORWARD_)?IF_FALSE", original) and "torch)" in original
    assert "_resume_at_" in modified and "torch)" not in modified.split("ORIGINAL")[0]


def test_breaks_log(no_joins):
    text = printed("breaks")
    assert text.count("Graph break PL0001: Branch on the value of a tensor") == 1
    assert f"where: {__file__}:{toy_example.__code__.co_firstlineno + 2} in toy_example" in text
    assert "fix: Compute both sides" in text


def test_recompiles_log():
    def f(x):
        return x + 1 if x.size(0) > 5 else x - 1

    text = printed("recompiles", fn=f, calls=[(torch.ones(9),), (torch.ones(8),), (torch.ones(3),)])
    assert text.count("RECOMPILE") == 1 and text.count("\n    ") >= 1


def test_channels_are_checked_and_switched():
    out = io.StringIO()
    with pytest.raises(ValueError, match="unknown log 'graphs': choose from graph, guards"):
        logs.set_logs("graphs")
    logs.set_logs("breaks", file=out, recompiles=True, graph=False)
    assert set(logs._printers.rows) == {"graph_break", "recompile", "limit", "short_lived"}
    events.emit("graph_break", frame_id="7/0", code="PL0019", reason="r", site=None)
    logs.set_logs()
    events.emit("graph_break", frame_id="8/0", code="PL0019", reason="r", site=None)
    assert out.getvalue().startswith("[7/0] Graph break PL0019") and "8/0" not in out.getvalue()
    assert set(logs.parse_channels("all")) == set(logs.CHANNELS)
    assert all(kind in events.KINDS for channel in logs.CHANNELS.values() for kind in channel)


def test_every_channel_prints_its_events():
    site = Site("m.py", 3, "f")
    one = Store(1, (1,), 0, Node("load", (), "f32", (0, (1,), 0, ())))
    kernel = Kernel("k77", ("n",), 0, [Buffer("f32", False), Buffer("f32", True)], [one], ("n",))
    fields = {
        "capture_start": {"name": "f", "filename": "m.py", "lineno": 1},
        "capture_end": {"ops": 3, "guards": 2, "exit": "Return", "seconds": 0.5},
        "recompile": {"reasons": ["size changed"]}, "graph_break": {"code": "PL0005", "reason": "printing", "site": site},
        "short_lived": {"name": "f", "died": 9, "skipped": 2},
        "exit_point": {"where": "m.py:3 f", "side": True, "takes": "3 true, 0 false"},
        "specialization": {"expr": "s0", "value": 4, "site": site}, "entry_added": {"name": "f", "seconds": 0.25},
        "limit": {"name": "f", "limit": 64}, "fallback": {"id": 1, "name": "f", "error": "E()"},
        "backend_compile": {"backend": "aten", "seconds": 2.5}, "policy": {"what": "dynamic", "where": "L['n']"},
        "warning": {"id": "w", "text": "told once"}, "graph": {"graph": torch.fx.Graph()}, "guards": {"guards": ()},
        "bytecode": {"original": toy_example.__code__, "modified": toy_example.__code__},
        "kernel": {"kernel": kernel, "checked": False},
        "pass": {"name": "cse", "program": "region_0", "level": "", "before": "a\nb", "after": "a"},
        "loop_open": {"where": "m.py:3 in f", "why": "it changes a list"},
        "branch_open": {"where": "m.py:3 in f", "why": "y is of different kinds behind it"},
        "verified": {"name": "f", "entries": ["[0/0]"], "seconds": 0.5},
        "mismatch": {"id": 1, "name": "f", "entries": ["[0/0]"], "what": "result: dtype", "file": "x.py"},
        "unverifiable": {"name": "f", "reason": "it reaches a generator"}, "disk": {"what": "an entry is found", "where": "f"},
        "exchanged": {"name": "f", "seconds": 0.5, "work_seconds": 0.25}, "background_error": {"name": "f", "error": "E()"},
        "fetch": {"why": "float()", "sizes": (2,), "dtype": "float32", "placement": "Shard(0)"}, "gathered": {"what": "aten.sort, m.py:3"},
        "remote": {"what": "a worker is lost", "worker": 1, "text": "killed"},
    }  # fmt: skip
    assert set(fields) == set(events.KINDS) == {kind for channel in logs.CHANNELS.values() for kind in channel}
    out = io.StringIO()
    with logs.logging_to(out, "all"):
        for kind, values in fields.items():
            events.emit(kind, frame_id="4/2", **values)
    text = out.getvalue()
    assert text.count("[4/2]") == len(fields)  # bytecode has two parts; a kernel belongs to no frame
    assert text.count("k77") == 3
    for part in ("seconds=250.0 ms", "seconds=2.50 s", "told once", "value=4", "size changed", "limit=64"):
        assert part in text


def test_environment():
    code = (
        "import torch, pliant\nfrom pliant.report import logs\nlogs.set_logs_from_environment()\n"
        "def f(a):\n    pliant.graph_break()\n    return a + 1\n"
        "pliant.compile(f)(torch.ones(3))\n"
    )
    root = os.path.dirname(os.path.dirname(pliant.__file__))
    env = {**os.environ, "PYTHONPATH": root, "PLIANT_LOGS": "breaks, nonsense", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "unknown log 'nonsense'" in done.stderr and "Graph break PL0019" in done.stderr and "TRACED GRAPH" not in done.stderr


# -- guards ------------------------------------------------------------------------------------------------------
def test_every_kind_of_guard_has_a_text():
    assert set(guards.VALUE_TEXTS) >= set(KINDS)


def test_guard_lines():
    x, n = S.local(0, "self"), S.global_("n")
    spec = TensorSpec(torch.nn.Parameter, torch.float16, torch.device("cpu"), True, 2, (None, 4), (4, 1), None)
    lines = guards.guard_lines([
        Guard(x.attr("weight"), "TENSOR_MATCH", spec, Site("/a/m.py", 7, "f")), Guard(n, "EQ_MATCH", 3), Guard(n, "ALIAS", x),
        Guard(x, "TYPE_MATCH", dict), Guard(x, "DICT_CONTAINS", ("k", False)),
    ])  # fmt: skip
    assert lines[0] == " - local 'self'.weight TENSOR_MATCH  Parameter float16[?, 4] on cpu, requires_grad  # m.py:7"
    assert [line.split("  ")[0] for line in lines[1:]] == [
        " - global 'n' EQ_MATCH", " - global 'n' ALIAS", " - local 'self' TYPE_MATCH", " - local 'self' DICT_CONTAINS",
    ]  # fmt: skip
    for line, part in zip(lines[1:], ("== 3", "is local 'self'", "dict", "'k' not in it"), strict=True):
        assert line.endswith(part)
    assert guards.guard_lines([]) == []


# -- explain -----------------------------------------------------------------------------------------------------
def test_explain_the_toy_example(no_joins):
    a, b = toy_args()
    e = explain(toy_example, a, b)
    torch.testing.assert_close(e.result, toy_example(a, b))
    assert len(e.graphs) == len(e.frames) == 2 and len(e.breaks) == 1
    (found,) = e.breaks
    assert found.code == "PL0001" and found.site.lineno == toy_example.__code__.co_firstlineno + 2 and found.hints
    assert e.op_counts["aten.abs.default"] == 1 and e.op_counts["aten.mul.Tensor"] == 1
    assert e.frames[0].name == "toy_example" and e.frames[1].name.startswith("__resume_at_")
    assert e.frames[0].seconds > 0 and e.n_guards == sum(len(f.guards) for f in e.frames) > 0
    page = str(e)
    assert page.startswith("2 graphs, 1 graph break, ") and "Graph break PL0001" in page and "operators: aten.abs.default 1" in page


def test_explain_leaves_what_is_compiled_alone(no_joins):
    compiled = pliant.compile(toy_example)
    args = toy_args()
    compiled(*args)
    assert len(explain(compiled, *args).frames) == 2
    before = pliant.stats()["captures"]
    compiled(*args)
    assert pliant.stats()["captures"] == before


def test_explain_modules_methods_and_specializations():
    model = torch.nn.Linear(3, 4)
    e = explain(model, torch.ones(5, 3))
    assert e.frames[0].name == "Linear" and not e.breaks and e.result.shape == (5, 4)

    class Net:
        k = 2

        def run(self, x):
            return x * self.k if x.size(0) == 6 else x

    e = explain(Net().run, torch.ones(6))
    (s,) = e.frames[0].specializations
    assert "== 6" in s and "local 'x'.size()[0]" in s and "test_report.py" in s


def test_explain_raises_what_the_program_raises_and_unsubscribes():
    def f(x):
        raise KeyError("missing")

    with pytest.raises(KeyError, match="missing"):
        explain(f, torch.ones(2))
    e = collect(lambda: 5)
    assert e.result == 5 and e.frames == [] and str(e).startswith("0 graphs, 0 graph breaks")


def test_notes_and_recompiles_are_collected():
    c = Collector()
    for kind, fields in (
        ("recompile", {"frame_id": "1/1", "reasons": ["L['x'] changed"]}),
        ("capture_start", {"frame_id": "1/1", "name": "f", "filename": "m.py", "lineno": 2}),
        ("backend_compile", {"frame_id": "1/1", "backend": "b", "seconds": 0.5}),
        ("fallback", {"id": 3, "name": "f", "error": "E()"}),
    ):
        c(events.Event(kind, 1.0, 0, fields))
    (frame,) = c.explanation.frames
    assert (frame.name, frame.recompiled_because, frame.backend_seconds) == ("f", ["L['x'] changed"], 0.5)
    assert c.explanation.notes == ["fallback: id 3, name f, error E()"]


def test_words_of_a_miss_run_no_code_of_the_program():
    """Why an entry does not hold is told without `repr`, `__class__`, `__qualname__` or `__iter__` of the program's objects."""
    asked = []

    class Nosy:
        def __getattribute__(self, name):
            asked.append(name)
            return object.__getattribute__(self, name)

        def __repr__(self):
            asked.append("repr")
            raise KeyError("a")

    class Names(dict):
        def __iter__(self):
            asked.append("iter")
            return super().__iter__()

    box = {"a": 1}

    def fn(x):
        y = x + 1
        return y if box["a"] == 1 else y * 2

    compiled = pliant.compile(fn, backend="aten")
    x = torch.ones(2)
    for value in (1, Nosy(), [Nosy()], {Nosy(): Nosy()}, Names(a=Nosy()), Nosy, 1):
        box["a"] = value
        torch.testing.assert_close(compiled(x), fn(x))
    assert not asked
