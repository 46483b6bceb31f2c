"""Module snapshots: what changes below an instance dict is seen at once; what does not costs no full check."""

from __future__ import annotations

import collections
import gc
import sys
import types

import pytest
import torch

from pliant.guards import source as S
from pliant.guards.guard import Guard, TensorSpec
from pliant.guards.program import compile_guards

X = S.local(0, "self")


def frame(self):
    return self


def spec(t):
    return TensorSpec(type(t), t.dtype, t.device, t.requires_grad, t.ndim, tuple(t.shape), t.stride(), t)


class Layer(torch.nn.Module):
    kind = "layer"

    def __init__(self, n=3):
        super().__init__()
        self.lin = torch.nn.Linear(n, n)
        self.scale = 2
        self.pair = ("a", 1)
        self.list = [1, 2]
        self.table = {"k": 1}
        self.ordered = collections.OrderedDict(a=1, b=2)
        self.cell = types.CellType(5)
        self.register_buffer("buf", torch.zeros(n))

    def forward(self, x):
        return self.lin(x)


def guards_of(m):
    here = X.dict()
    lin = here.key("_modules").key("lin")
    weight, bias = (lin.dict().key("_parameters").key(k) for k in ("weight", "bias"))
    buf = here.key("_buffers").key("buf")
    hooks = collections.OrderedDict
    return [
        Guard(X, "TYPE_MATCH", Layer),
        Guard(here.key("scale"), "EQ_MATCH", m.scale),
        Guard(here.key("training"), "EQ_MATCH", True),
        Guard(here.key("pair").index(1), "EQ_MATCH", 1),
        Guard(here.key("list").index(1), "EQ_MATCH", 2),
        Guard(here.key("table"), "DICT_KEYS", ["k"]),
        Guard(here.key("ordered"), "DICT_KEYS", ["a", "b"]),
        Guard(here.key("cell").contents(), "EQ_MATCH", 5),
        Guard(X.attr("kind"), "EQ_MATCH", "layer"),
        Guard(lin.attr("__constants__"), "ID_MATCH", torch.nn.Linear.__constants__),
        Guard(here, "DICT_CONTAINS", ("forward", False)),
        Guard(lin.dict(), "DICT_LACKS", {"forward": None, "_backward_hooks": hooks, "_forward_pre_hooks": hooks}),
        Guard(lin, "TYPE_MATCH", torch.nn.Linear),
        Guard(lin.dict().key("_forward_hooks"), "LENGTH", 0),
        Guard(lin.dict().key("_parameters"), "DICT_KEYS", ["weight", "bias"]),
        Guard(weight, "TENSOR_MATCH", spec(m.lin.weight)),
        Guard(bias, "TENSOR_MATCH", spec(m.lin.bias)),
        Guard(buf, "TENSOR_MATCH", spec(m.buf)),
        Guard(weight, "NOT_ALIAS", (bias, buf)),
    ], [weight, bias, buf, here.key("scale")]


@pytest.fixture
def setting():
    m = Layer()
    guards, slots = guards_of(m)
    guard = compile_guards(guards, {"w0": slots[0].size(0)}, [], [*slots, "w0"])
    for _ in range(3):
        assert guard.check((m,), frame) == (m.lin.weight, m.lin.bias, m.buf, 2, 3)
    return m, guard


class SubLinear(torch.nn.Linear):
    pass


def swap_dict(m):
    m.__dict__ = dict(m.__dict__, scale=3)


def replace_parameters(m):
    m.lin.__dict__["_parameters"] = {"weight": m.lin.weight, "bias": None}


BREAKS = {
    "int attribute": lambda m: setattr(m, "scale", 3),
    "attribute of another type": lambda m: setattr(m, "scale", 2.0),
    "eval()": lambda m: m.eval(),
    "deleted attribute": lambda m: delattr(m, "scale"),
    "instance forward": lambda m: setattr(m, "forward", lambda x: x),
    "tuple": lambda m: setattr(m, "pair", ("a", 2)),
    "list item": lambda m: m.list.__setitem__(1, 3),
    "shorter list": lambda m: m.list.clear(),
    "dict key": lambda m: m.table.update(z=1),
    "order": lambda m: m.ordered.move_to_end("a"),
    "cell": lambda m: setattr(m.cell, "cell_contents", 6),
    "instance shadows class attribute": lambda m: setattr(m, "kind", "other"),
    "another submodule class": lambda m: setattr(m, "lin", SubLinear(3, 3)),
    "submodule __class__": lambda m: setattr(m.lin, "__class__", SubLinear),
    "hook": lambda m: m.lin.register_forward_hook(lambda *a: None),
    "hook in a dict known to be empty": lambda m: m.lin.register_forward_pre_hook(lambda *a: None),
    "a dict known to be empty is gone": lambda m: delattr(m.lin, "_backward_hooks"),
    "a dict known to be empty is another, and filled": lambda m: setattr(m.lin, "_forward_pre_hooks", {1: 1}),
    "the submodule's own forward": lambda m: setattr(m.lin, "forward", lambda x: x),
    "parameter shape": lambda m: setattr(m.lin, "weight", torch.nn.Parameter(torch.zeros(4, 3))),
    "parameter dtype, in place": lambda m: m.double(),
    "parameter grad": lambda m: m.lin.weight.requires_grad_(False),
    "parameter resized": lambda m: setattr(m.lin.weight, "data", torch.zeros(2, 2)),
    "parameter gone": lambda m: setattr(m.lin, "bias", None),
    "parameter deleted": lambda m: delattr(m.lin, "bias"),
    "new parameter": lambda m: m.lin.register_parameter("extra", None),
    "parameters replaced": replace_parameters,
    "tied": lambda m: setattr(m, "buf", m.lin.bias.detach()) or m._buffers.__setitem__("buf", m.lin.bias),
    "buffer device": lambda m: m.to("meta"),
    "whole dict": swap_dict,
    "own class": lambda m: setattr(m, "__class__", type("Other", (Layer,), {})),
}
KEEPS = {
    "new values": lambda m: m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}),
    "assigned state": lambda m: m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}, assign=True),
    "new parameter object": lambda m: setattr(m.lin, "weight", torch.nn.Parameter(torch.ones(3, 3))),
    "new attribute": lambda m: setattr(m, "unrelated", 1),
    "same attribute": lambda m: setattr(m, "scale", 2),
    "to the same": lambda m: m.to("cpu").float().train(),
    "copied dict": lambda m: setattr(m, "__dict__", dict(m.__dict__)),
    "new submodule of the class": lambda m: setattr(m, "lin", torch.nn.Linear(3, 3)),
    "another empty dict": lambda m: setattr(m.lin, "_backward_hooks", type(m.lin._backward_hooks)()),
    "data": lambda m: setattr(m.lin.weight, "data", torch.zeros(3, 3)),
}


@pytest.mark.parametrize("name", BREAKS)
def test_seen(name, setting):
    m, guard = setting
    BREAKS[name](m)
    for _ in range(3):
        assert guard.check((m,), frame) is None
        assert guard.explain((m,), frame) is not None
    assert guard.check((Layer(),), frame) is not None


@pytest.mark.parametrize("name", KEEPS)
def test_kept_with_fresh_slots(name, setting):
    m, guard = setting
    KEEPS[name](m)
    for _ in range(3):
        seen = guard.check((m,), frame)
        assert seen is not None, guard.explain((m,), frame)
        assert seen[0] is m.lin.weight and seen[1] is m.lin.bias and seen[2] is m.buf


def test_class_attribute_patched(setting):
    m, guard = setting
    try:
        Layer.kind = "patched"
        assert guard.check((m,), frame) is None
    finally:
        Layer.kind = "layer"
    assert guard.check((m,), frame) is not None
    constants = torch.nn.Linear.__constants__
    try:
        torch.nn.Linear.__constants__ = list(constants)
        assert guard.check((m,), frame) is None
    finally:
        torch.nn.Linear.__constants__ = constants
    assert guard.check((m,), frame) is not None


def test_data_descriptor_added_to_the_class(setting):
    m, guard = setting
    Layer.kind = property(lambda self: "layer")
    try:
        assert guard.check((m,), frame) is None  # a property is user code
    finally:
        Layer.kind = "layer"


def test_a_snapshot_saves_the_full_check(setting):
    m, guard = setting
    assert guard.stats()["full_runs"] == 1
    for i in range(5):
        m.unrelated = i
        assert guard.check((m,), frame) is not None
    full = guard.stats()["full_runs"]
    assert full <= 6
    for _ in range(10):
        assert guard.check((m,), frame) is not None
    assert guard.stats()["full_runs"] == full


def test_a_counter_does_not_spoil_the_rest():
    m = Layer()
    guards, slots = guards_of(m)
    guard = compile_guards(guards, {}, [], slots)
    for i in range(100):
        m.step = i
        assert guard.check((m,), frame)[0] is m.lin.weight
    assert guard.stats()["full_runs"] < 12
    m.scale = 3
    assert guard.check((m,), frame) is None


class Plain:
    def __init__(self):
        self.a = 1
        self.table = {"k": 1, "z": 2}

    def store(self, value):
        self.a = value


def by_global(table):
    code = compile("global k\nk = 2", "<store>", "exec")
    table["__builtins__"] = {}
    exec(code, table)


# Every way to change what a dict holds under a key that it has; CPython does each in a place of its own.
STORES = {
    "attribute": lambda x: setattr(x, "a", 2),
    "store instruction": lambda x: x.store(2),
    "object.__setattr__": lambda x: object.__setattr__(x, "a", 2),
    "vars": lambda x: vars(x).update(a=2),
    "item of the instance dict": lambda x: x.__dict__.__setitem__("a", 2),
    "deleted and set": lambda x: (delattr(x, "a"), setattr(x, "a", 2)),
    "dict of another": lambda x: setattr(x, "__dict__", {"a": 2, "table": x.table}),
    "item": lambda x: x.table.__setitem__("k", 2),
    "update": lambda x: x.table.update(k=2),
    "update of what was cleared": lambda x: (x.table.clear(), x.table.update({"k": 2, "z": 2})),
    "or": lambda x: x.table.__ior__({"k": 2}),
    "init": lambda x: x.table.__init__(k=2),
    "pop": lambda x: x.table.pop("k"),
    "popitem": lambda x: (x.table.popitem(), x.table.popitem()),
    "del": lambda x: x.table.__delitem__("k"),
    "clear": lambda x: x.table.clear(),
    "popped and set by default": lambda x: (x.table.pop("k"), x.table.setdefault("k", 2)),
    "global": lambda x: by_global(x.table),
    "another dict": lambda x: setattr(x, "table", {"k": 2, "z": 2}),
}


@pytest.mark.parametrize("name", STORES)
def test_every_store_is_seen(name):
    here = X.dict()
    guards = [Guard(here.key("a"), "EQ_MATCH", 1), Guard(here.key("table").key("k"), "EQ_MATCH", 1)]
    for _ in range(40):  # instructions that ran often are specialized
        x = Plain()
        x.store(1)
        order = list(x.__dict__)
        guard = compile_guards(guards)
        for _ in range(3):
            assert guard.check((x,), frame) is not None
        assert guard.stats()["snapshot_instructions"] and guard.stats()["full_runs"] == 1
        assert list(x.__dict__) == order
        for _ in range(10):
            x.store(1)
        for _ in range(3):
            assert guard.check((x,), frame) is not None
        STORES[name](x)
        assert guard.check((x,), frame) is None
        assert guard.explain((x,), frame) is not None


def test_a_check_disturbs_no_loop_over_the_dict():
    """Some instances keep their values outside of their dict, which a first check changes."""
    guard = compile_guards([Guard(X.dict().key("a"), "EQ_MATCH", 1)])
    x = Plain()
    for name in "bcdef":
        setattr(x, name, name)
    names = list(vars(x))
    met = []
    for name, value in vars(x).items():
        met.append((name, value))
        assert guard.check((x,), frame) is not None
    assert met == [(name, getattr(x, name)) for name in names] and list(vars(x)) == names


def test_where_everything_changes_none_is_tried_for_long():
    """Of an object whose one attribute counts, nothing is worth to be remembered: not at every check again."""
    m = Layer()
    here = X.dict()
    guard = compile_guards([Guard(X, "TYPE_MATCH", Layer), Guard(here.key("step"), "TYPE_MATCH", int)], {}, [], [here.key("step")])
    for i in range(200):
        m.step = i
        assert guard.check((m,), frame) == (i,)
    stats = guard.stats()
    assert stats["full_runs"] > 150
    assert stats["snapshots_tried"] < 25
    m.step = "no int"
    assert guard.check((m,), frame) is None


def test_many_instances_through_one_guard():
    layers = [Layer() for _ in range(5)]
    guards, slots = guards_of(layers[0])
    guard = compile_guards(guards, {}, [], slots)
    for round in range(20):
        for m in layers:
            seen = guard.check((m,), frame)
            assert seen[0] is m.lin.weight and seen[2] is m.buf
        if round == 10:
            layers[2].scale = 9
            assert guard.check((layers[2],), frame) is None
            layers[2].scale = 2


def test_a_freed_module_is_not_mistaken_for_a_new_one():
    m = Layer()
    guards, slots = guards_of(m)
    guard = compile_guards(guards, {}, [], slots)
    for _ in range(200):
        m = Layer()
        weight = m.lin.weight
        assert guard.check((m,), frame)[0] is weight
        assert guard.check((m,), frame)[0] is weight
        del m, weight


def test_nothing_is_kept_alive():
    import weakref

    m = Layer()
    guards, slots = guards_of(m)
    guard = compile_guards(guards, {}, [], slots)
    del guards
    for _ in range(3):
        guard.check((m,), frame)
    alive, weight = weakref.ref(m), weakref.ref(m.lin.weight)
    del m
    gc.collect()
    assert alive() is None and weight() is None
    assert guard.check((Layer(),), frame) is not None


def test_slots_are_owned():
    m = Layer()
    guards, slots = guards_of(m)
    guard = compile_guards(guards, {}, [], slots)
    weight = m.lin.weight
    before = sys.getrefcount(weight)
    for _ in range(100):
        guard.check((m,), frame)
    assert sys.getrefcount(weight) == before
    seen = guard.check((m,), frame)
    assert sys.getrefcount(weight) == before + 1
    del seen


class Properties:
    __slots__ = ("__dict__", "field")


def test_slots_of_instances_are_read_anew():
    x = Properties()
    x.field, x.other = 1, 2
    guard = compile_guards([Guard(X.attr("field"), "EQ_MATCH", 1), Guard(X.dict().key("other"), "EQ_MATCH", 2)])
    holder = types.SimpleNamespace(x=x)
    below = X.dict().key("x")
    nested = compile_guards([Guard(below.attr("field"), "EQ_MATCH", 1), Guard(below.dict().key("other"), "EQ_MATCH", 2)])
    for _ in range(3):
        assert guard.check((x,), frame) is not None
        assert nested.check((holder,), frame) is not None
    x.field = 2
    assert guard.check((x,), frame) is None
    assert nested.check((holder,), frame) is None
    x.field, x.other = 1, 3
    assert guard.check((x,), frame) is None
    assert nested.check((holder,), frame) is None


def test_ordered_dicts_of_one_item_at_most_are_tied_to_their_version():
    hooks = collections.OrderedDict()
    x = types.SimpleNamespace(hooks=hooks)
    source = X.dict().key("hooks")
    for keys in ([], ["a"]):
        guard = compile_guards([Guard(source, "DICT_KEYS", keys)])
        assert all(guard.check((x,), frame) is not None for _ in range(3))
        assert "KEYS" not in [row[0] for row in guard.listing()][guard.stats()["instructions"] :]
        for key in ("a", "b"):
            hooks[key] = 1
            assert (guard.check((x,), frame) is not None) == (list(hooks) == keys)
        del hooks["b"]
        assert (guard.check((x,), frame) is not None) == (keys == ["a"])
        hooks.clear()
        assert (guard.check((x,), frame) is not None) == (keys == [])
        hooks["a"] = 1


def test_many_known_tensors_and_classes():
    """Each of many parameters and modules is still checked, wherever in the sweep it stands."""
    layers = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(6))
    root = X.dict().key("_modules")
    guards = []
    for i, layer in enumerate(layers):
        here = root.key(str(i))
        guards.append(Guard(here, "TYPE_MATCH", torch.nn.Linear))
        guards += [Guard(here.dict().key("_parameters").key(k), "TENSOR_MATCH", spec(layer._parameters[k])) for k in ("weight", "bias")]
    guard = compile_guards(guards)
    for i in range(6):
        layer = layers[i]
        assert all(guard.check((layers,), frame) is not None for _ in range(3))
        layer.bias.requires_grad_(False)
        assert guard.check((layers,), frame) is None
        layer.bias.requires_grad_(True)
        before, layer.weight.data = layer.weight.data, torch.zeros(3, 2)
        assert guard.check((layers,), frame) is None
        layer.weight.data = before
        layer.__class__ = Layer
        assert guard.check((layers,), frame) is None
        layer.__class__ = torch.nn.Linear
        old, layer.weight = layer.weight, torch.nn.Parameter(torch.zeros(2, 2))
        assert guard.check((layers,), frame) is not None
        layer.weight = old


def test_items_under_objects():
    """What a dict holds under the object at another place is known, while both are as they were; the object is not held."""
    holder = types.SimpleNamespace(places=[Layer], table={Layer: 1, int: 1, str: 2})
    here = X.dict()
    guard = compile_guards([Guard(here.key("table").item(here.key("places").index(0)), "EQ_MATCH", 1)], {}, [], [])
    for _ in range(9):
        assert guard.check((holder,), frame) == ()
    stats = guard.stats()
    assert stats["full_runs"] == 1
    assert "ITEM" not in [op for op, *_ in guard.listing()[-stats["snapshot_instructions"] :]]
    for other, holds in ((int, True), (str, False), (float, False), (Layer, True)):
        holder.places[0] = other
        assert (guard.check((holder,), frame) is not None) == holds, other
    holder.table[Layer] = 2
    assert guard.check((holder,), frame) is None
    holder.table[Layer] = 1
    assert guard.check((holder,), frame) is not None
    del holder.table[Layer]
    assert guard.check((holder,), frame) is None


def test_items_under_texts_that_are_equal():
    holder = types.SimpleNamespace(places=["".join(["a", "b"])], table={"ab": 1, "c": 2})
    here = X.dict()
    guard = compile_guards([Guard(here.key("table").item(here.key("places").index(0)), "EQ_MATCH", 1)], {}, [], [])
    for name, holds in (("ab", True), ("c", False)) * 4:
        holder.places[0] = "".join([*name])
        assert (guard.check((holder,), frame) is not None) == holds


def test_items_under_objects_that_come_and_go():
    class Thing:
        pass

    holder = types.SimpleNamespace(places=[None], table={})
    here = X.dict()
    guard = compile_guards([Guard(here.key("table").item(here.key("places").index(0)), "EQ_MATCH", 1)], {}, [], [])
    for i in range(40):  # at one address, as a rule
        holder.table.clear()
        holder.places[0] = Thing()
        assert guard.check((holder,), frame) is None
        holder.table[holder.places[0]] = 1 + i % 2
        for _ in range(2):
            assert (guard.check((holder,), frame) is not None) == (i % 2 == 0)
