"""The verifier of graphs for backends: each rule rejects the graph that is malformed in its way, and lets well-formed ones pass."""

from __future__ import annotations

import operator

import pytest
import torch

from pliant.codegen import graph_contract
from pliant.codegen.aten import Executable
from pliant.codegen.dynamo_graph import SymbolInfo, handed
from pliant.codegen.graph_contract import RULES, violations
from pliant.errors import InternalError
from pliant.graph.symnode import to_sym
from tests.codegen.test_backends import recorded
from tests.codegen.tracing import Captured


def program(a, b):
    n = b.sum().item()
    torch._check(n >= 2, lambda: "too small")
    c = (a * n).relu()
    a.add_(1)
    return c[: a.shape[0] - 1], torch.tensor([1.0, 2.0]), n


def graph():
    """What a backend is handed for `program`, and its capture."""
    found = []

    def compiler(trace, inputs, outputs):
        scope = trace.scope
        f = scope.backed("f0", hint=0.5, kind=float)
        call = trace.torch_call(torch.mul, (outputs[0], to_sym(scope, f)), {})
        with trace.recording():
            call.out = outputs[0] * to_sym(scope, f)
        found.append(handed(trace, [*inputs, f], [*outputs, call.out], "region"))
        return Executable(lambda *slots: (), "", 0)

    captured = Captured(recorded(program), torch.randn(3, 4), torch.tensor([1, 2, 3]), compiler=compiler)
    return found[0], captured


def node(h, target):
    return next(n for n in h.module.graph.nodes if n.target == target or n.name == target)


def first(h):
    return next(iter(h.module.graph.nodes))


PLANTS = {}


def plant(rule):
    def register(fn):
        PLANTS[rule] = fn
        return fn

    return register


@plant("placeholders-first")
def placeholder_behind(h, c):
    with h.module.graph.inserting_before(list(h.module.graph.nodes)[-1]):
        h.module.graph.placeholder("late")


@plant("no-submodules")
def submodule(h, c):
    h.module.add_module("inner", torch.nn.ReLU())
    with h.module.graph.inserting_before(list(h.module.graph.nodes)[-1]):
        h.module.graph.call_module("inner", (first(h),))


@plant("defined-before-use")
def used_too_early(h, c):
    node(h, "relu").append(node(h, operator.mul) if any(n.target is operator.mul for n in h.module.graph.nodes) else node(h, "mul"))


@plant("legal-names")
def illegal_name(h, c):
    node(h, "relu").name = "class"


@plant("one-placeholder-each")
def missing_argument(h, c):
    h.at.append(99)


@plant("known-inputs")
def a_bool(h, c):
    h.inputs[-1] = SymbolInfo("b0", bool, False, True, lambda slots: slots[0])


@plant("floats-are-tensors")
def float_used_as_such(h, c):
    f = node(h, "f0")
    node(h, "item_1" if any(n.name == "item_1" for n in h.module.graph.nodes) else "item").replace_all_uses_with(f)


@plant("sizes-are-inputs")
def size_that_is_no_input(h, c):
    h.inputs[[i for i, s in enumerate(h.inputs) if not isinstance(s, SymbolInfo)][0]].sizes = "[s77, 4]"


@plant("inputs-are-used")
def unused_tensor(h, c):
    tensors = [n for n, s in zip(h.module.graph.nodes, h.inputs) if not isinstance(s, SymbolInfo)]
    tensors[0].replace_all_uses_with(tensors[1])


@plant("arguments-are-plain")
def symbol_in_a_slice(h, c):
    relu, size = node(h, "relu"), to_sym(c.scope, next(iter(c.scope.symbols.values())))
    with h.module.graph.inserting_after(relu):
        h.module.graph.call_function(operator.getitem, (relu, (slice(None), [slice(0, size)])))


@plant("targets-can-be-called")
def nameless(h, c):
    node(h, "relu").target = "no_such_method"


@plant("attributes-are-constants")
def parameter_inside(h, c):
    h.module.weight = torch.nn.Parameter(torch.ones(2))
    with h.module.graph.inserting_before(list(h.module.graph.nodes)[-1]):
        h.module.graph.get_attr("weight")


@plant("outputs-are-computed")
def input_returned(h, c):
    out = list(h.module.graph.nodes)[-1]
    out.args = ((*out.args[0], first(h)),)


@plant("assertions-are-nodes")
def assertion_dropped(h, c):
    h.module.graph.erase_node(node(h, torch.ops.aten._assert_scalar.default))
    h.checks.clear()


@plant("effects-are-kept")
def write_dropped(h, c):
    write = node(h, "add_")
    at = list(h.module.graph.nodes).index(write)
    h.module.graph.erase_node(write)
    del h.facts.ops[at], h.sites[at]


@plant("lines-are-known")
def line_lost(h, c):
    site = next(s for s in h.sites if s is not None)
    list(h.module.graph.nodes)[h.sites.index(site)].meta.pop("stack_trace")


@plant("examples-are-plain")
def capture_held(h, c):
    node(h, "relu").meta["val"] = c.trace.inputs[0]


@plant("code-can-be-read")
def freed_too_early(h, c):
    def broken(body):
        return ["".join(body).replace("return (", "getitem = None\nreturn (")]

    h.module.graph.on_generate_code(lambda _: broken)
    h.module.recompile()


def with_sites(h):
    """Some lines, as the interpreter would have noted them."""
    class Site:
        filename, lineno, function, code, outer, offset = __file__, 1, "program", None, None, -1

    at = [i for i, n in enumerate(h.module.graph.nodes) if n.op.startswith("call")]
    for i in at:
        h.sites[i] = Site
        list(h.module.graph.nodes)[i].meta["stack_trace"] = "a line"
    return h


def test_a_well_formed_graph_passes():
    h, _ = graph()
    assert violations(with_sites(h)) == []
    kinds = [type(s).__name__ for s in h.inputs]
    assert kinds.count("TensorSlot") == 2 and kinds.count("SymbolInfo") >= 2 and len(h.checks) == 1
    assert h.writes and h.unbacked and h.effects_from < len(h.sites)


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_each_rule_rejects_what_breaks_it(rule):
    h, captured = graph()
    with_sites(h)
    PLANTS[rule](h, captured)
    if rule != "code-can-be-read":
        h.module.recompile()
    found = violations(h)
    assert any(text.startswith(f"{rule}: ") for text in found), (found, h.module.code)
    with pytest.raises(InternalError, match="malformed graph"):
        graph_contract.verify(h)


def test_every_rule_is_planted():
    assert set(PLANTS) == {rule.name for rule in RULES} and len(PLANTS) == len(RULES)
