"""Smuggling: a real tensor reaches the trace by each known way. Later calls must see the tensor that is there then, or fail loudly.

Each row builds a fresh world and returns `(fn, put)`: `fn(x)` uses the hidden tensor, `put(tensor)` replaces it. Between calls its
identity, its values in place, its shape and its dtype change. A stale answer is the one thing that may not happen.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import contextvars
import dataclasses
import functools
import gc
import itertools
import operator
import queue
import sys
import threading
import types
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch

from pliant.errors import PliantError
from tests.helpers import Mismatch, Observed, check_world, pliant
from tests.programs.registry import t

WAYS: dict[str, Callable] = {}


def way(make: Callable) -> Callable:
    WAYS[make.__name__] = make
    return make


@way
def closure():
    hidden = t(3)

    def put(v):
        nonlocal hidden
        hidden = v

    return lambda x: x + hidden, put


@way
def closure_of_an_inlined_callee():
    hidden = t(3)

    def inner(x):
        return x * hidden

    def put(v):
        nonlocal hidden
        hidden = v

    return lambda x: inner(x) + 1, put


@way
def default_argument():
    def fn(x, hidden=t(3)):  # noqa: B008
        return x + hidden

    def put(v):
        fn.__defaults__ = (v,)

    return fn, put


@way
def keyword_default_of_a_callee():
    def inner(x, *, hidden=t(3)):  # noqa: B008
        return x + hidden

    def put(v):
        inner.__kwdefaults__ = {"hidden": v}

    return lambda x: inner(x), put


@way
def global_variable():
    space = {"torch": torch, "hidden": t(3)}
    exec("def fn(x):\n    return x + hidden\n", space)
    return space["fn"], lambda v: space.__setitem__("hidden", v)


@way
def global_container_iterated_by_c():
    items = [t(3), t(3)]

    def put(v):
        items[:] = [v, v * 2]

    return lambda x: sum(items, x), put


@way
def map_over_an_outside_list():
    items = [t(3), t(3)]

    def put(v):
        items[0] = v

    return lambda x: list(map(lambda v: v + x, items)), put


@way
def map_of_a_c_function_over_an_outside_list():
    items = [t(3), t(3)]

    def put(v):
        items[0] = v

    return lambda x: [v + x for v in map(torch.neg, items)], put


@way
def map_of_a_bound_method():
    items = [t(3)]
    y = t(3)
    return lambda x: list(map(y.add, items))[0] + x, lambda v: items.__setitem__(0, v)


@way
def c_list_iterator():
    state = {"it": iter([t(3)] * 9)}
    return lambda x: x + next(state["it"]), lambda v: state.__setitem__("it", iter([v]))


@way
def zip_and_enumerate_made_before():
    state = {"it": enumerate([t(3)])}

    def fn(x):
        for i, v in state["it"]:
            x = x + v + i
        return x

    return fn, lambda v: state.__setitem__("it", enumerate([v, v]))


@way
def itertools_cycle():
    state = {"it": itertools.cycle([t(3), t(3, seed=1)])}
    return lambda x: x + next(state["it"]), lambda v: None


@way
def itertools_chain_of_outside_lists():
    a, b = [t(3)], [t(3)]
    return lambda x: sum(itertools.chain(a, b), x), lambda v: b.__setitem__(0, v)


@way
def itertools_repeat_made_before():
    state = {"it": itertools.repeat(t(3))}
    return lambda x: x + next(state["it"]), lambda v: state.__setitem__("it", itertools.repeat(v))


@way
def generator_created_before():
    def gen(v):
        while True:
            yield v
            v = v + 1

    state = {"g": gen(t(3))}
    return lambda x: x + next(state["g"]), lambda v: state.__setitem__("g", gen(v))


@way
def thread_local():
    local = threading.local()
    local.v = t(3)
    return lambda x: x + local.v, lambda v: setattr(local, "v", v)


@way
def context_variable():
    var = contextvars.ContextVar("hidden")
    var.set(t(3))
    return lambda x: x + var.get(), lambda v: var.set(v) and None


@way
def lru_cache():
    box = [t(3)]

    @functools.lru_cache(maxsize=None)
    def get(k):
        return box[0]

    def put(v):
        box[0] = v
        get.cache_clear()

    return lambda x: x + get(1), put


@way
def lru_cache_not_cleared():
    box = [t(3)]

    @functools.lru_cache(maxsize=None)
    def get(k):
        return box[0]

    return lambda x: x + get(x.shape[0] % 2), lambda v: box.__setitem__(0, v)


@way
def lru_cache_over_tensor_argument():
    box = [t(3)]

    @functools.lru_cache(maxsize=None)
    def double(v):
        return v * 2

    return lambda x: x + double(box[0]), lambda v: box.__setitem__(0, v)


@way
def cached_property():
    class Box:
        def __init__(self, v):
            self.v = v

        @functools.cached_property
        def twice(self):
            return self.v * 2

    box = Box(t(3))

    def put(v):
        box.__dict__.pop("twice", None)
        box.v = v

    return lambda x: x + box.twice, put


@way
def memo_dictionary():
    memo = {}
    box = [t(3)]

    def get(k):
        if k not in memo:
            memo[k] = box[0] + 1
        return memo[k]

    def put(v):
        memo.clear()
        box[0] = v

    return lambda x: x + get("k"), put


@way
def partial_argument():
    state = {"f": functools.partial(torch.add, t(3))}
    return lambda x: state["f"](x), lambda v: state.__setitem__("f", functools.partial(torch.add, v))


@way
def partial_keyword():
    state = {"f": functools.partial(torch.add, other=t(3))}
    return lambda x: state["f"](x), lambda v: state.__setitem__("f", functools.partial(torch.add, other=v))


@way
def partial_attribute():
    state = {"f": functools.partial(max, t(3))}
    return lambda x: x + state["f"].args[0], lambda v: state.__setitem__("f", functools.partial(max, v))


@way
def bound_c_method():
    state = {"f": t(3).add}
    return lambda x: state["f"](x), lambda v: state.__setitem__("f", v.add)


@way
def bound_method_self():
    state = {"f": t(3).add}
    return lambda x: state["f"].__self__ + x, lambda v: state.__setitem__("f", v.add)


@way
def method_wrapper():
    state = {"f": t(3).__add__}
    return lambda x: state["f"](x), lambda v: state.__setitem__("f", v.__add__)


@way
def slots():
    class Slotted:
        __slots__ = ("v",)

    s = Slotted()
    s.v = t(3)
    return lambda x: x + s.v, lambda v: setattr(s, "v", v)


@way
def instance_attribute():
    s = types.SimpleNamespace(v=t(3))
    return lambda x: x + s.v, lambda v: setattr(s, "v", v)


@way
def class_attribute():
    class Holder:
        v = t(3)

    return lambda x: x + Holder.v, lambda v: setattr(Holder, "v", v)


@way
def class_attribute_through_an_instance():
    class Base:
        v = t(3)

    class Derived(Base):
        pass

    d = Derived()
    return lambda x: x + d.v, lambda v: setattr(Base, "v", v)


@way
def class_attribute_shadowed_later():
    class Base:
        v = t(3)

    class Derived(Base):
        pass

    d = Derived()
    steps = iter([lambda v: None, lambda v: setattr(Base, "v", v), lambda v: setattr(Derived, "v", v), lambda v: setattr(d, "v", v)])
    return lambda x: x + d.v, lambda v: next(steps, lambda v: None)(v)


@way
def python_property():
    class Holder:
        @property
        def v(self):
            return self.__dict__["_v"]

    h = Holder()
    h.__dict__["_v"] = t(3)
    return lambda x: x + h.v, lambda v: h.__dict__.__setitem__("_v", v)


@way
def c_property():
    class Holder:
        v = property(operator.attrgetter("_v"))

    h = Holder()
    h._v = t(3)
    return lambda x: x + h.v, lambda v: setattr(h, "_v", v)


@way
def dynamic_getattr():
    class Holder:
        store = {"v": t(3)}

        def __getattr__(self, name):
            return self.store[name]

    h = Holder()
    return lambda x: x + h.v, lambda v: Holder.store.__setitem__("v", v)


@way
def getattr_is_a_c_function():
    class Holder:
        __getattr__ = {"v": t(3)}.__getitem__

    h = Holder()
    return lambda x: x + h.v, lambda v: setattr(Holder, "__getattr__", {"v": v}.__getitem__)


@way
def attrgetter():
    s = types.SimpleNamespace(inner=types.SimpleNamespace(v=t(3)))
    return lambda x: x + operator.attrgetter("inner.v")(s), lambda v: setattr(s.inner, "v", v)


@way
def itemgetter():
    d = {"a": [t(3)]}
    return lambda x: x + operator.itemgetter("a")(d)[0] + operator.itemgetter(0)(d["a"]), lambda v: d["a"].__setitem__(0, v)


@way
def methodcaller():
    d = {"a": t(3)}
    return lambda x: x + operator.methodcaller("get", "a")(d), lambda v: d.__setitem__("a", v)


@way
def dict_values():
    d = {"a": t(3), "b": t(3)}
    return lambda x: sum(d.values(), x), lambda v: d.__setitem__("a", v)


@way
def dict_view_made_before():
    d = {"a": t(3), "b": t(3)}
    values, items = d.values(), d.items()
    return lambda x: sum(values, x) + dict(items)["b"], lambda v: d.__setitem__("a", v)


@way
def mappingproxy():
    d = {"a": t(3)}
    proxy = types.MappingProxyType(d)
    return lambda x: x + proxy["a"], lambda v: d.__setitem__("a", v)


@way
def class_dictionary():
    class Holder:
        v = t(3)

    return lambda x: x + Holder.__dict__["v"] + vars(Holder)["v"], lambda v: setattr(Holder, "v", v)


@way
def chain_map():
    d = {"a": t(3)}
    m = collections.ChainMap({}, d)
    return lambda x: x + m["a"], lambda v: d.__setitem__("a", v)


@way
def user_dict():
    m = collections.UserDict(a=t(3))
    return lambda x: x + m["a"], lambda v: m.__setitem__("a", v)


@way
def default_dict():
    m = collections.defaultdict(lambda: t(3))
    return lambda x: x + m["a"], lambda v: m.__setitem__("a", v)


@way
def default_factory():
    state = [t(3)]
    m = collections.defaultdict(lambda: state[0])

    def put(v):
        m.clear()
        state[0] = v

    return lambda x: x + m["a"], put


@way
def dict_get_and_setdefault():
    d = {"a": t(3)}
    return lambda x: x + d.get("a") + d.setdefault("a", None), lambda v: d.__setitem__("a", v)


@way
def dict_subclass():
    class Sub(dict):
        def __missing__(self, k):
            return self["a"]

    d = Sub(a=t(3))
    return lambda x: x + d["zz"], lambda v: d.__setitem__("a", v)


@way
def ordered_dict_popped():
    d = collections.OrderedDict(a=t(3))
    return lambda x: x + d["a"] + next(iter(d.values())), lambda v: d.__setitem__("a", v)


@way
def deque():
    q = collections.deque([t(3)], maxlen=1)
    return lambda x: x + q[0] + q[-1], lambda v: q.append(v)


@way
def deque_iterated():
    q = collections.deque([t(3), t(3)])

    def put(v):
        q.popleft()
        q.append(v)

    return lambda x: sum(q, x), put


@way
def set_of_tensors():
    s = {t(3)}

    def put(v):
        s.clear()
        s.add(v)

    return lambda x: sum(s, x), put


@way
def frozen_set():
    state = {"s": frozenset([t(3)])}
    return lambda x: sum(state["s"], x), lambda v: state.__setitem__("s", frozenset([v]))


@way
def nested_tuple():
    state = {"p": (1, (t(3), [t(3)]))}
    return lambda x: x + state["p"][1][0] + state["p"][1][1][0], lambda v: state.__setitem__("p", (1, (v, [v])))


@way
def namedtuple():
    pair = collections.namedtuple("pair", "a b")
    state = {"p": pair(t(3), 1)}
    return lambda x: x + state["p"].a, lambda v: state.__setitem__("p", pair(v, 1))


@way
def dataclass_field():
    @dataclasses.dataclass
    class Data:
        v: torch.Tensor

    d = Data(t(3))
    return lambda x: x + d.v + dataclasses.replace(d).v, lambda v: setattr(d, "v", v)


@way
def dataclass_default():
    class Data:
        pass

    Data = dataclasses.make_dataclass("Data", [("v", object, dataclasses.field(default=None))])  # noqa: F811
    Data.v = t(3)
    return lambda x: x + Data.v, lambda v: setattr(Data, "v", v)


@way
def weak_reference():
    state = {"keep": t(3)}
    state["ref"] = weakref.ref(state["keep"])

    def put(v):
        state["keep"] = v
        state["ref"] = weakref.ref(v)

    return lambda x: x + state["ref"](), put


@way
def weak_value_dictionary():
    state = {"keep": t(3)}
    d = weakref.WeakValueDictionary(a=state["keep"])

    def put(v):
        state["keep"] = v
        d["a"] = v

    return lambda x: x + d["a"], put


@way
def weak_key_dictionary():
    class Key:
        pass

    k = Key()
    d = weakref.WeakKeyDictionary({k: t(3)})
    return lambda x: x + d[k], lambda v: d.__setitem__(k, v)


@way
def module_in_sys_modules():
    name = f"hidden_module_{len(sys.modules)}"
    module = types.ModuleType(name)
    module.v = t(3)
    sys.modules[name] = module
    return lambda x: x + sys.modules[name].v, lambda v: setattr(module, "v", v)


@way
def import_statement():
    name = f"hidden_import_{len(sys.modules)}"
    module = types.ModuleType(name)
    module.v = t(3)
    sys.modules[name] = module
    space = {}
    exec(f"def fn(x):\n    from {name} import v\n    import {name} as m\n    return x + v + m.v\n", space)
    return space["fn"], lambda v: setattr(module, "v", v)


@way
def function_attribute():
    def fn(x):
        return x + helper.v

    def helper():
        pass

    helper.v = t(3)
    return fn, lambda v: setattr(helper, "v", v)


@way
def torch_function_object():
    class Duck:
        def __init__(self, v):
            self.v = v

        @classmethod
        def __torch_function__(cls, func, kinds, args=(), kwargs=None):
            return func(*[a.v if isinstance(a, cls) else a for a in args], **(kwargs or {}))

    d = Duck(t(3))
    return lambda x: torch.add(x, d), lambda v: setattr(d, "v", v)


@way
def torch_function_mode():
    box = [t(3)]

    class Adds(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, kinds, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            return out + box[0] if func is torch.relu else out

    def fn(x):
        with Adds():
            return torch.relu(x)

    return fn, lambda v: box.__setitem__(0, v)


@way
def c_sort_key():
    items = [t(3), t(3)]
    order = [0, 1]

    def put(v):
        items[0] = v
        order.reverse()

    return lambda x: x + items[sorted(order, key=order.__getitem__)[0]] + max(items, key=lambda v: v.shape[0]), put


@way
def reduce_over_outside_list():
    items = [t(3), t(3)]
    return lambda x: functools.reduce(operator.add, items, x), lambda v: items.__setitem__(1, v)


@way
def torch_stack_of_outside_list():
    items = [t(3), t(3)]

    def put(v):
        items[:] = [v, v]

    return lambda x: torch.stack(items).sum(0) + x, put


@way
def star_arguments():
    items = [t(3), t(3)]
    return lambda x: torch.add(*items) + x, lambda v: items.__setitem__(0, v)


@way
def star_keywords():
    kw = {"other": t(3)}
    return lambda x: torch.add(x, **kw), lambda v: kw.__setitem__("other", v)


@way
def indexing_with_a_hidden_tensor():
    box = [torch.tensor([0, 1, 0])]
    return lambda x: x.repeat(3)[box[0]], lambda v: box.__setitem__(0, (v.flatten().abs() % 2).long())


@way
def in_place_on_a_hidden_tensor():
    box = [t(3)]

    def fn(x):
        box[0].add_(1)
        return x + box[0]

    return fn, lambda v: box.__setitem__(0, v)


@way
def hidden_scalar_tensor():
    box = [torch.tensor(2.0)]
    return lambda x: x * box[0], lambda v: box.__setitem__(0, v.sum())


@way
def hidden_tensor_as_bool():
    box = [t(3)]
    return lambda x: x + 1 if box[0].sum() > 0 else x - 1, lambda v: box.__setitem__(0, v)


@way
def hidden_tensor_item():
    box = [torch.tensor(2.0)]
    return lambda x: x * box[0].item(), lambda v: box.__setitem__(0, v.sum())


@way
def copied_container():
    items = [t(3)]
    return lambda x: list(items)[0] + items.copy()[0] + items[:][0] + (*items,)[0] + x, lambda v: items.__setitem__(0, v)


@way
def container_compared():
    items = [1, t(3)]
    return lambda x: x + items[1] + (items == [1, items[1]]), lambda v: items.__setitem__(1, v)


@way
def exit_stack():
    box = [t(3)]
    return lambda x: x + contextlib.nullcontext(box[0]).__enter__(), lambda v: box.__setitem__(0, v)


@way
def context_manager_result():
    state = {"c": contextlib.nullcontext(t(3))}

    def fn(x):
        with state["c"] as v:
            return x + v

    return fn, lambda v: state.__setitem__("c", contextlib.nullcontext(v))


@way
def callable_instance():
    class Adder:
        def __init__(self, v):
            self.v = v

        def __call__(self, x):
            return x + self.v

    a = Adder(t(3))
    return lambda x: a(x), lambda v: setattr(a, "v", v)


@way
def module_buffer():
    m = torch.nn.Module()
    m.register_buffer("v", t(3))
    return lambda x: x + m.v, lambda v: setattr(m, "v", v)


@way
def module_plain_attribute():
    m = torch.nn.Module()
    m.v = t(3)
    return lambda x: x + m.v, lambda v: setattr(m, "v", v)


@way
def parameter_data():
    m = torch.nn.Linear(1, 1)
    m.w = torch.nn.Parameter(t(3))

    def put(v):
        m.w.data = v.to(m.w.dtype)

    return lambda x: x + m.w.detach(), put


@way
def gradient_of_a_hidden_tensor():
    leaf = t(3).requires_grad_()
    leaf.grad = t(3)

    def put(v):
        leaf.grad = v.float() if v.shape == leaf.shape else leaf.grad * 2

    return lambda x: x + leaf.grad, put


@way
def base_of_a_hidden_view():
    box = [t(6)[3:]]
    return lambda x: x + box[0]._base.sum(), lambda v: box.__setitem__(0, torch.cat([v, v])[1:])


@way
def disabled_function_result():
    box = [t(3)]

    @pliant.disable
    def get():
        return box[0]

    return lambda x: get() + x, lambda v: box.__setitem__(0, v)


@way
def object_returned_by_a_disabled_function():
    box = types.SimpleNamespace(v=t(3), items=[t(3)])

    @pliant.disable
    def get():
        return box

    def put(v):
        box.v = v
        box.items[0] = v

    return lambda x: get().v + x + get().items[0], put


@way
def exception_argument():
    error = ValueError(t(3))

    def fn(x):
        try:
            raise error
        except ValueError as e:
            return x + e.args[0]

    def put(v):
        error.args = (v,)

    return fn, put


@way
def simple_queue():
    q = queue.SimpleQueue()
    q.put(t(3))

    def put(v):
        while not q.empty():
            q.get()
        q.put(v)

    def fn(x):
        v = q.get_nowait()
        q.put(v)
        return x + v

    return fn, put


@way
def array_of_objects():
    a = np.empty(1, dtype=object)
    a[0] = t(3)

    def put(v):
        a[0] = v

    return lambda x: x + a[0], put


@way
def garbage_collector():
    class Marker:
        v = None

    m = Marker()
    m.v = t(3)
    return lambda x: x + [o for o in gc.get_referrers(Marker) if isinstance(o, Marker)][0].v, lambda v: setattr(m, "v", v)


@way
def locals_and_globals():
    space = {"hidden": t(3)}
    exec("def fn(x):\n    return x + globals()['hidden']\n", space)
    return space["fn"], lambda v: space.__setitem__("hidden", v)


@way
def evaluated_source():
    space = {"hidden": t(3)}
    exec("def fn(x):\n    return x + eval('hidden')\n", space)
    return space["fn"], lambda v: space.__setitem__("hidden", v)


@way
def builtins_module():
    name = f"hidden_builtin_{len(vars(builtins))}"
    setattr(builtins, name, t(3))
    space = {}
    exec(f"def fn(x):\n    return x + {name}\n", space)
    return space["fn"], lambda v: setattr(builtins, name, v)


CHANGES = [
    lambda i: t(3),
    lambda i: t(3, seed=1),
    lambda i: t(3, seed=2) * 10,
    lambda i: t(5, seed=3),
    lambda i: t(3, seed=4, dtype=torch.float64),
    lambda i: t(1, seed=5),
    lambda i: t(3, seed=6).requires_grad_(False) * -1,
]


@pytest.mark.parametrize("name", WAYS)
def test_never_stale(name):
    def factory():
        fn, put = WAYS[name]()
        return fn, Observed(lambda: None, put)

    def change(i, world):
        world.space(CHANGES[i](i))

    arguments = [(t(*CHANGES[i](i).shape),) for i in range(len(CHANGES))]
    try:
        check_world(factory, *arguments, before=change, must_compile=False, lines=False)
    except Mismatch as e:
        if not isinstance(e.__cause__, PliantError):
            raise


@pytest.mark.parametrize("name", WAYS)
def test_values_written_in_place(name):
    """The hidden tensor stays the same object; only its values change."""

    def factory():
        fn, put = WAYS[name]()
        mine = t(3)
        put(mine)
        return fn, Observed(lambda: None, mine)

    def change(i, world):
        world.space.add_(i)

    try:
        check_world(factory, *[(t(3, seed=i),) for i in range(4)], before=change, must_compile=False, lines=False)
    except Mismatch as e:
        if not isinstance(e.__cause__, PliantError):
            raise


def test_operators_that_do_not_ask_whether_there_is_memory():
    """The process ended with a segmentation fault: C++ code wrote to the memory of a proxy."""
    engine = torch.quasirandom.SobolEngine(2, scramble=True, seed=3)

    def fn(x):
        engine.fast_forward(2)
        return engine.draw(3) + x

    compiled = pliant.compile(fn, strict=True, background=False)
    for n in range(2):
        x, found = torch.full((2,), float(n)), []
        for f in (fn, compiled):
            engine.reset()
            found.append(f(x))
        assert torch.equal(*found)
