"""Further programs that `fullgraph=True` is asked to take: lazy modules, identities of tensors, what is said to other compilers, autograd
functions that use variables of the function around them.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import collections
import unittest
from typing import NamedTuple

import numpy as np
import optree
import pytest
import torch
import torch._dynamo
import torch.utils._cxx_pytree as cxx
from torch import nn
from torch._dynamo.comptime import comptime

import pliant
from tests.programs.registry import cases, each, program, t

ROWS = each(3, 5, 2, tail=(4,))
GRADS = each(3, 5, 2, tail=(4,), grad=True)
PAIRS = each(3, 5, 2, tail=(4,), n=2)
WHOLE = {"breaks": 0, "captures": 1, "options": {"fullgraph": True}}
BACK = {"grad": True, **WHOLE}


# -- identities of tensors ------------------------------------------------------------------------------------------------
@program(*ROWS, **WHOLE)
def identity_of_an_input(x):
    y = x + 1
    return id(x) == id(x), id(x) != id(y), isinstance(id(x), int), y


@program(*PAIRS, **WHOLE)
def identities_of_two(a, b):
    return id(a) == id(b), a + b


SHARED = t(3, 4)


@program((SHARED, SHARED), (t(3, 4), t(3, 4)), (SHARED, SHARED), breaks=0, options={"fullgraph": True})
def identities_of_one_or_two(a, b):
    return a + b if id(a) == id(b) else a - b


@program(*ROWS, world=True, breaks=(1, 9))
def identity_kept_for_later():
    seen: list[int] = []

    def fn(x):
        known = id(x) in seen
        return x + known

    return fn, seen


# -- what is said to other compilers -----------------------------------------------------------------------------------------
@program(*ROWS, **WHOLE)
def compile_time_code(x):
    @comptime
    def _(ctx):
        print("only there")

    comptime.assert_static(x.shape[1])
    comptime.print_graph()
    comptime.print_locals()
    return comptime.print_value_stack_and_return(x + 1)


@program(*ROWS, world=True, **WHOLE)
def compile_time_code_elsewhere():
    log: list[int] = []

    def fn(x):
        comptime(lambda ctx: None, lambda: log.append(x.shape[1]))
        return x * 2

    return fn, log


@program(*ROWS, breaks=0, options={"fullgraph": True})
def sizes_marked_inside(x):
    y = x + 1
    torch._dynamo.mark_static(y, 0)
    torch.compiler.cudagraph_mark_step_begin()
    return y * 2


class CallsStatic:
    @staticmethod
    def __call__(x, k=2):
        return x * k


class CallsClass:
    scale = 3

    @classmethod
    def __call__(cls, x):
        return x * cls.scale


OUTSIDE = CallsStatic()


@program(*ROWS, **WHOLE)
def calls_that_are_no_methods(x):
    return OUTSIDE(x), OUTSIDE(x, k=5), CallsStatic()(x), CallsClass()(x)


@program(*ROWS, **WHOLE)
def kinds_of_dtypes(x):
    a = x.numpy()
    made = np.sin(a) if np.issubdtype(a.dtype, np.floating) else a
    return made, np.issubdtype("int8", np.number), np.issubdtype(np.float32, np.integer)


# -- lazy modules --------------------------------------------------------------------------------------------------------------
LAZY = {
    "linear": lambda: nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2)),
    "norm": lambda: nn.Sequential(nn.LazyBatchNorm1d(), nn.Linear(4, 2)),
    "in_a_dict": lambda: nn.Sequential(nn.ModuleDict({"a": nn.LazyLinear(3)})["a"]),
}


@pytest.mark.parametrize("name", LAZY)
def test_lazy_modules(name):
    """The first call gives them their parameters, in eager PyTorch; then there is one graph."""
    answers = []
    for wrap in (lambda f: f, lambda f: pliant.compile(f, fullgraph=True)):
        torch.manual_seed(0)
        module = LAZY[name]()
        made = []
        fn = wrap(lambda x, m=module: m(x))
        before = pliant.stats()
        for n in (3, 5, 2):
            y = fn(t(n, 4))
            y.sum().backward()
            made.append(y.detach())
        answers.append([*made, *[p.grad for p in module.parameters()], *module.state_dict().values()])
    after = pliant.stats()
    assert [after[k] - before[k] for k in ("captures", "graph_breaks", "fallbacks")] == [1, 0, 0]
    for want, got in zip(*answers, strict=True):
        torch.testing.assert_close(want, got)


def test_a_lazy_module_that_is_made_each_time():
    """There would never be a graph: so it is said."""

    def fn(x):
        return nn.LazyLinear(3)(x)

    with pytest.raises(pliant.errors.GraphBreakError):
        pliant.compile(fn, fullgraph=True)(t(3, 4))


# -- assertions of unittest ------------------------------------------------------------------------------------------------------
class Asserting(unittest.TestCase):
    def runTest(self):
        pass

    def checked(self, x):
        self.assertEqual(x.shape[1], 4)
        self.assertEqual([x.shape[1]], [4])
        with self.assertRaises(IndexError):
            [][1]
        return x + 1


OF_A_TEST = Asserting()


def refuses(*_):
    raise ValueError("far down")


@program(*ROWS, **WHOLE)
def assertions_that_hold(x):
    it = OF_A_TEST
    it.assertTrue(x.shape[1] == 4)
    it.assertIs(x, x)
    it.assertIn(1, [1])
    it.assertIsInstance(x, torch.Tensor)
    it.assertDictEqual({1: 2}, {1: 2})
    it.assertCountEqual([1, 2], [2, 1])
    it.assertAlmostEqual(1.0, 1.00000001)
    it.assertRegex("abc", "b")
    with it.subTest(i=1):
        y = x * 2
    return y, it.checked(x), Asserting().checked(x)


@program(*ROWS, **WHOLE)
def assertions_about_errors(x):
    it = OF_A_TEST
    with it.assertRaises(KeyError) as caught:
        {}["a"]
    with it.assertRaisesRegex(ValueError, "fa+r"):
        refuses()
    with it.assertRaises(ValueError) as chained:
        try:
            raise KeyError(1)
        except KeyError as e:
            raise ValueError(2) from e
    it.assertRaises((TypeError, ValueError), refuses, x)
    return x + 1, caught.exception.args, type(chained.exception.__cause__).__name__


@program(*ROWS, **WHOLE)
def assertions_that_fail(x):
    words = []
    for claim in (
        lambda: OF_A_TEST.assertEqual(1, 2),
        lambda: OF_A_TEST.assertIn(5, [1, 2], "told"),
        lambda: OF_A_TEST.assertRaises(ValueError, int),
        lambda: OF_A_TEST.fail("no"),
    ):
        try:
            claim()
        except AssertionError as e:
            words.append(str(e))
    try:
        with OF_A_TEST.assertRaises(ValueError):
            raise KeyError(3)
    except KeyError as e:
        words.append(e.args)
    return x, words


# -- trees of containers that optree takes apart -------------------------------------------------------------------------------
class Pair(NamedTuple):
    a: torch.Tensor
    b: list


@program(*ROWS, **WHOLE)
def trees(x):
    tree = {"b": [x + 1, None, (2,)], "a": x}
    leaves, spec = optree.tree_flatten(tree, namespace="torch")
    doubled = optree.tree_map(lambda v: v * 2, tree)
    added = cxx.tree_map(lambda a, b: a + b, (x, [x]), (x * 2, [x * 3]))
    return leaves, cxx.tree_unflatten(leaves, spec), doubled, added, cxx.tree_leaves(tree), optree.tree_leaves([x, None], none_is_leaf=True)


@program(*ROWS, **WHOLE)
def trees_of_other_containers(x):
    def once(v):
        return v + 1

    made = Pair(x, [x]), collections.OrderedDict(z=x, a=x), collections.deque([x], maxlen=2), collections.defaultdict(list, q=x)
    return [cxx.tree_map(once, v) for v in made], cxx.tree_map(lambda v: v, [x, {"k": (1, 2)}], is_leaf=lambda v: isinstance(v, dict))


@program(*ROWS, **WHOLE)
def trees_compared(x):
    one, other = cxx.tree_structure([x, {"z": x}]), cxx.tree_structure([1, {"z": 2}])
    return one == other, one.num_leaves, one.num_children, one.is_leaf(), cxx._broadcast_to_and_flatten((x, 1), cxx.tree_structure((0, 1)))


@program(({"a": t(3), "b": [1, t(2)]},), ({"a": t(4), "b": [1, t(2)]},), ({"c": t(4), "b": [1, 2, t(2)]},), breaks=0)
def trees_given(tree):
    return cxx.tree_map(lambda v: v + 1, tree), cxx.tree_structure(tree).num_leaves


def test_a_class_that_becomes_a_container():
    class Box:
        def __init__(self, a):
            self.a = a

    def fn(box, x):
        return len(cxx.tree_leaves([box, x])), x + 1

    compiled = pliant.compile(fn)
    box = Box([1, 2])
    assert compiled(box, t(3))[0] == fn(box, t(3))[0] == 2
    optree.register_pytree_node(Box, lambda b: (tuple(b.a), None), lambda _, c: Box(list(c)), namespace="torch")
    try:
        assert compiled(box, t(3))[0] == fn(box, t(3))[0] == 3
    finally:
        optree.unregister_pytree_node(Box, namespace="torch")
    assert compiled(box, t(3))[0] == 2


# -- autograd functions that are made here -------------------------------------------------------------------------------------
@program(*GRADS, **BACK)
def function_with_variables(x):
    k, w = x.shape[1], x.detach() * 2

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * k * w

        @staticmethod
        def backward(ctx, g):
            return g * k * w

    y = Scaled.apply(x)
    k = 5
    return y


@program(*GRADS, **BACK)
def function_that_logs(x):
    log = []

    class Logged(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            log.append((torch.is_grad_enabled(), x.requires_grad))
            return Logged.twice(x)

        @staticmethod
        def backward(ctx, g):
            return Logged.twice(g)

        @staticmethod
        def twice(x):
            return x * 2

    return Logged.apply(x), log


@program(*GRADS, **BACK)
def function_for_autocast(x):
    class Cast(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu")
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            return g * 2

    return Cast.apply(x)


def test_a_function_with_variables_that_is_used_later():
    def fn(x, k):
        parts = [x * 2]

        class Mixed(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * k + parts[0]

            @staticmethod
            def backward(ctx, g):
                return g * k * parts[0]

        return Mixed.apply(x), Mixed, parts

    compiled = pliant.compile(fn, fullgraph=True)
    for n, k in ((3, 2), (5, 4)):
        found = []
        for f in (fn, compiled):
            x = t(n, grad=True)
            y, cls, parts = f(x, k)
            y.sum().backward()
            parts[0] = parts[0] * 10
            z = cls.apply(x)
            z.sum().backward()
            found.append((y.detach(), z.detach(), x.grad))
        for want, got in zip(*found, strict=True):
            torch.testing.assert_close(want, got)


# -- gradients that are there, or not --------------------------------------------------------------------------------------------
def test_gradients_that_come_and_go_are_no_changing_value():
    """`.grad` was None in some captures and a tensor in others: it became a value that the graph does not take, in the middle of the
    backward part, which cannot be run a second time."""

    def made(kind):
        m = nn.Linear(4, 4)

        def fn(x):
            m(x).pow(2).sum().backward()
            for k in range(5):
                if kind == k:
                    return x + k
            return x

        return m, fn

    for kind in range(5):
        m, fn = made(kind)
        compiled = pliant.compile(fn, fullgraph=True)
        for n in (3, 5, 2):
            compiled(torch.ones(n, 4))
            got = m.weight.grad.clone()
            m.zero_grad(set_to_none=False)
            fn(torch.ones(n, 4))
            torch.testing.assert_close(got, m.weight.grad)
            m.zero_grad(set_to_none=False)


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()
