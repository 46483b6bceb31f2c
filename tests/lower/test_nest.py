"""Nests: what they remember of their nodes, and rewriting that changes nothing."""

from __future__ import annotations

import gc
import random
import types
import weakref

import pytest
import torch

from pliant.lower import liveness
from pliant.lower.loop_nest import LoopNest, TensorStore, reorder
from pliant.lower.loops import Node, operands_first


def load(root: int, strides: tuple) -> Node:
    return Node("load", (), "f32", (root, strides, 0, ()))


def put(node: Node, strides: tuple = (8, 1), full: bool = True) -> TensorStore:
    return TensorStore(None, 9, strides, 0, node, full)


def random_dag(seed: int) -> list[Node]:
    r = random.Random(seed)
    nodes = [load(k, (1,)) for k in range(3)]
    for _ in range(r.randint(1, 40)):
        nodes.append(Node("add", tuple(r.choices(nodes, k=r.randint(0, 3))), "f32"))
    return r.choices(nodes, k=r.randint(1, 4))


def test_operands_come_first_in_the_order_of_the_arguments():
    """As a recursion would give them, which deep chains do not allow."""

    def recursive(n: Node, out: list[Node]) -> None:
        if any(n is x for x in out):
            return
        for a in n.args:
            recursive(a, out)
        out.append(n)

    for seed in range(60):
        roots, want = random_dag(seed), []
        for n in roots:
            recursive(n, want)
        assert [id(n) for n in operands_first(roots)] == [id(n) for n in want]
    deep = load(0, (1,))
    for _ in range(5000):
        deep = Node("neg", (deep,), "f32")
    assert len(operands_first([deep])) == 5001


def test_a_nest_whose_puts_change_has_other_nodes():
    x, y = load(1, (8, 1)), load(2, (8, 1))
    nest = LoopNest((4, 8), 0, [put(Node("add", (x, y), "f32"))])
    assert nest.loads() == [x, y] and nest.nodes() is nest.nodes()
    nest.stores[0].node = y
    assert nest.nodes() == [y]
    nest.stores.append(put(x))
    assert nest.loads() == [y, x]
    nest.stores[1].index = (load(3, (8, 1)),)
    assert [n.attrs[0] for n in nest.loads()] == [2, 3, 1]
    assert nest.only(nest.stores) is nest and nest.only(nest.stores[:1]).loads() == [y]


def test_dims_that_stay_where_they_are_leave_the_nodes_alone():
    x = load(1, (8, 1))
    nest = LoopNest((4, 8), 0, [put(Node("neg", (x,), "f32"))], {3}, 7)
    same = reorder(nest, [0, 1], (4, 8), 1)
    assert same.stores == nest.stores and same.stores is not nest.stores and (same.reduced, same.ops, same.cost) == (1, {3}, 7)
    turned = reorder(nest, [1, 0], (8, 4), 0)
    assert turned.loads()[0].attrs[1] == (1, 8) and turned.stores[0].strides == (1, 8)
    wider = reorder(nest, [0, 1], (4, 8, 2), 1)
    assert wider.loads()[0].attrs[1] == (8, 1, 0)
    rows = LoopNest((4, 8), 1, [put(Node("reduce", (x,), "f32", ("sum",)), (1,), full=False)])
    assert reorder(rows, [0, 1], (4, 8), 0).stores[0].strides == (1, 0), "all dims are outer ones now"


def test_facts_of_operators_are_kept_by_operator():
    asked = []
    known = liveness.of_operator(lambda target: (asked.append(target), str(target))[1])
    add, mul = torch.ops.aten.add.Tensor, torch.ops.aten.mul.Tensor
    assert [known(t) for t in (add, mul, add, mul)] == [str(t) for t in (add, mul, add, mul)] and asked == [add, mul]


def test_an_error_is_no_fact_and_what_was_asked_about_may_go():
    asked = []

    def fact(target):
        asked.append(target)
        if len(asked) == 1:
            raise KeyError(target)
        return [target]

    known, add = liveness.of_operator(fact), torch.ops.aten.add.Tensor
    with pytest.raises(KeyError):
        known(add)
    assert known(add) is known(add) and len(asked) == 2
    for wrong in (lambda: known(), lambda: known(add, add), lambda: known(target=add)):
        with pytest.raises(TypeError):
            wrong()
    holders = [types.ModuleType("holder")]
    vars(holders[0])["known"] = fact_of = liveness.of_operator(lambda target: [target])
    fact_of(holders[0])
    del fact_of
    gone = weakref.ref(holders.pop())
    gc.collect()
    assert gone() is None
