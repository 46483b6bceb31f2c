"""Functions called by C code, by PyTorch and by Python of all kinds: each call is made, once, in its place.

Most of them are not captured, and a capture may not run them: `disable` and its like, methods so decorated, compiled functions, functions
that ask for a break. Some branch on data, end iterators or draw random numbers.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import dataclasses
import functools
import heapq
import itertools
import json
import random
import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import fx, nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from tests.helpers import check, check_world, compiled, pliant
from tests.programs.registry import t

LOG: list[str] = []


def doubled(v: Any = None, *more: Any, **kw: Any) -> Any:
    LOG.append("called")
    return v * 2 if isinstance(v, torch.Tensor) else 2 if v is None else v


def breaking(v: Any = None, *more: Any, **kw: Any) -> Any:
    LOG.append("before")
    pliant.graph_break()
    LOG.append("after")
    return v * 2 if isinstance(v, torch.Tensor) else 2 if v is None else v


def branching(v: Any = None, *more: Any, **kw: Any) -> Any:
    if isinstance(v, torch.Tensor) and v.sum() > 0:
        LOG.append("positive")
        return v * 3
    LOG.append("else")
    return v * 2 if isinstance(v, torch.Tensor) else 2 if v is None else v


def stopping(v: Any = None, *more: Any, **kw: Any) -> Any:
    LOG.append("called")
    if len(LOG) > 1:
        raise StopIteration("stopped")
    return v * 2 if isinstance(v, torch.Tensor) else 2 if v is None else v


def drawing(v: Any = None, *more: Any, **kw: Any) -> Any:
    LOG.append(f"{random.random()}")
    return v * random.random() if isinstance(v, torch.Tensor) else 2 if v is None else v


class Holder:
    def __init__(self, fn: Callable) -> None:
        self.fn = fn

    def __call__(self, *args: Any, **kw: Any) -> Any:
        LOG.append("object")
        return self.fn(*args, **kw)

    @pliant.disable
    def method(self, v: Any = None, *more: Any, **kw: Any) -> Any:
        return doubled(v)


class Hashed(Holder):
    def __hash__(self) -> int:
        LOG.append("hash")
        return 1

    def __eq__(self, other: object) -> bool:
        LOG.append("eq")
        return self is other


KINDS: dict[str, Callable] = {
    "breaking": breaking,
    "disabled": pliant.disable(doubled),
    "disabled by torch": torch.compiler.disable(doubled),
    "disabled, not what it calls": torch._dynamo.disable(doubled, recursive=False),
    "method": Holder(doubled).method,
    "compiled": pliant.compile(doubled),
    "partial": functools.partial(pliant.disable(doubled)),
    "object": Holder(pliant.disable(doubled)),
    "hashed": Hashed(doubled),
    "branching": branching,
    "stopping": stopping,
    "drawing": drawing,
}


def sort(x, f):
    items = [3, 1, 2]
    items.sort(key=f)
    return items


def default_factory(x, f):
    d = collections.defaultdict(f)
    return d[1], d[1], len(d)


def exit_stack(x, f):
    with contextlib.ExitStack() as stack:
        stack.callback(f, x)
        y = x + 1
    return y


def properties(x, f):
    class C:
        of_class = property(lambda self: f(x))
        cached = functools.cached_property(lambda self: f(x))

    c = C()
    return c.of_class, c.cached, c.cached


def dispatched(x, f):
    g = functools.singledispatch(lambda v: 0)
    g.register(torch.Tensor, lambda v: f(v))
    return g(x)


def field(x, f):
    @dataclasses.dataclass
    class D:
        a: Any = dataclasses.field(default_factory=f)

        def __post_init__(self) -> None:
            self.b = f(self.a)

    d = D()
    return d.a, d.b


def hooks(x, f):
    linear = nn.Linear(4, 4)
    linear.weight.data.fill_(0.5)
    linear.bias.data.fill_(0.0)
    linear.register_forward_pre_hook(lambda m, i: (f(i[0]),))
    linear.register_forward_hook(lambda m, i, o: f(o))
    return linear(x[:4])


def tensor_hook(x, f):
    w = x.clone().requires_grad_()
    h = w * 2
    h.register_hook(lambda g: f(g))
    h.sum().backward()
    return w.grad


def function(x, f):
    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return f(a)

        @staticmethod
        def backward(ctx, g):
            return f(g)

    w = x.clone().requires_grad_()
    F.apply(w).sum().backward()
    return w.grad


def thread(x, f):
    made = threading.Thread(target=f, args=(x,))
    made.start()
    made.join()
    return x


def manager(x, f):
    @contextlib.contextmanager
    def g():
        yield f(x)
        f(x)

    with g() as v:
        return v + 1


def generated(x, f):
    def g():
        y = yield f(x)
        yield f(y)

    it = g()
    first = next(it)
    return first, it.send(first)


def missing(x, f):
    class D(dict):
        def __missing__(self, k):
            return f(k)

    return D()[3]


def looped(x, f):
    for i in map(f, range(3)):
        if i == 1:
            continue
        x = x + i
    return x


CALLERS: dict[str, Callable[[Any, Callable], Any]] = {
    "sorted": lambda x, f: sorted([3, 1, 2], key=f),
    "sort": sort,
    "map": lambda x, f: list(map(f, [x, x], [1, 2])),
    "map, starred": lambda x, f: (lambda a, b: a + b)(*map(f, [x, x])),
    "map, looped": looped,
    "map, joined": lambda x, f: "".join(map(f, "abc")),
    "map, stacked": lambda x, f: torch.stack(list(map(f, [x, x]))),
    "map, modules": lambda x, f: nn.Sequential(*map(lambda i: nn.ReLU(f()), range(2)))(x),
    "filter": lambda x, f: list(filter(f, [1, 0, 2])),
    "max": lambda x, f: max([1, 3, 2], key=f),
    "any": lambda x, f: any(map(f, [0, 1, 2])),
    "sum": lambda x, f: sum(map(f, [x, x])),
    "reduce": lambda x, f: functools.reduce(f, [x, x, x]),
    "starmap": lambda x, f: list(itertools.starmap(f, [(x, 1), (x, 2)])),
    "takewhile": lambda x, f: list(itertools.takewhile(f, [1, 2, 0])),
    "filterfalse": lambda x, f: list(itertools.filterfalse(f, [1, 2, 0])),
    "groupby": lambda x, f: [(k, list(g)) for k, g in itertools.groupby([1, 1, 2], f)],
    "accumulate": lambda x, f: list(itertools.accumulate([x, x], f)),
    "iter": lambda x, f: list(itertools.islice(iter(f, 5), 3)),
    "sub": lambda x, f: re.sub("a", lambda m: str(f(1)), "banana"),
    "dumps": lambda x, f: json.dumps({1, 2}, default=lambda o: [f(1)]),
    "cmp_to_key": lambda x, f: sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: f(a) - f(b))),
    "bisect": lambda x, f: bisect.bisect([1, 2, 3], 2, key=f),
    "nlargest": lambda x, f: heapq.nlargest(2, [1, 3, 2], key=f),
    "vectorize": lambda x, f: np.vectorize(f)([1, 2, 3]),
    "tree_map": lambda x, f: pytree.tree_map(f, {"a": x, "b": [x, x]}),
    "checkpoint": lambda x, f: checkpoint(lambda a: f(a) + 1, x.clone().requires_grad_(), use_reentrant=False),
    "vmap": lambda x, f: torch.func.vmap(lambda a: f(a) + 1)(x),
    "grad": lambda x, f: torch.func.grad(lambda a: f(a).sum())(x),
    "jvp": lambda x, f: torch.func.jvp(f, (x,), (x,)),
    "apply": lambda x, f: nn.Sequential(nn.ReLU(), nn.ReLU()).apply(lambda m: (f(), None)[1])(x),
    "default_factory": default_factory,
    "ExitStack": exit_stack,
    "properties": properties,
    "singledispatch": dispatched,
    "field": field,
    "hooks": hooks,
    "tensor hook": tensor_hook,
    "Function": function,
    "thread": thread,
    "contextmanager": manager,
    "generator": generated,
    "__missing__": missing,
    "nested": lambda x, f: f(f(v=x, a=f(1))),
}


@pytest.mark.parametrize("name", CALLERS)
def test_each_call_is_made_once(name):
    caller = CALLERS[name]
    for callee in KINDS.values():

        def factory() -> Callable:
            def f(x):
                LOG.clear()
                return caller(x, callee), x.sum() * 2, list(LOG)  # noqa: B023

            return f

        check_world(factory, (t(4),), (t(6),), must_compile=False, lines=False)


def test_proxies_write_down_what_they_are_told():
    """`torch.cat` of proxies calls their `__torch_function__`, in C, which adds to the program's graph."""

    def f(x, n):
        graph = fx.Graph()
        tracer = fx.proxy.GraphAppendingTracer(graph)
        given = [fx.Proxy(graph.placeholder(f"x{i}", torch.Tensor), tracer) for i in range(n)]
        y = torch.nn.functional.relu(torch.cat(given, dim=-1) + torch.add(given[0], 1).sum())
        graph.output(y.view(-1).node)
        return fx.GraphModule({}, graph)(*[x] * n), str(graph), len(graph.nodes)

    check(f, (t(3), 2), (t(4), 2), (t(4), 3))


def graph_of(n: int) -> fx.Graph:
    graph = fx.Graph()
    given = [graph.placeholder(f"x{i}", torch.Tensor) for i in range(n)]
    graph.output(given[-1])
    return graph


@pytest.mark.parametrize("fn", [
    lambda x, graph: (x + 1, str(graph)), lambda x, graph: (x + 1, f"{graph}", len(graph.nodes)),
    lambda x, graph: (x + 1, str([graph])[:9]),
    lambda x, graph: (x + 1, [n.name for n in graph.nodes]), lambda x, graph: (x + 1, list(map(repr, graph.nodes))),
    lambda x, graph: (x + 1, len({n: 1 for n in graph.nodes}), next(reversed(graph.nodes)).op),
])  # fmt: skip
def test_special_methods_of_torchs_classes_called_by_c(fn):
    """`str(graph)` runs Python code of PyTorch that reads the whole graph: it breaks the graph, or the text of the first one stays."""
    run = compiled(fn)
    for n in (2, 3, 2, 5):
        graph = graph_of(n)
        assert str(run(t(3), graph)[1:]) == str(fn(t(3), graph)[1:])
    with graph.inserting_after():
        graph.placeholder("more")
    assert str(run(t(3), graph)[1:]) == str(fn(t(3), graph)[1:])
