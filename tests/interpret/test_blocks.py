"""Repeated blocks: what a capture with replays records is what one without records, and layers that differ are never taken for alike."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import pliant
from pliant.interpret import blocks
from pliant.interpret.types.row import LOCATED
from pliant.interpret.world import World
from pliant.jit import region


def place(site: Any) -> list:
    return [] if site is None else [str(site), site.offset, *place(site.outer)]


def meta(x: Any) -> tuple:
    if not hasattr(x, "vid"):
        return ()
    numbers = [str(getattr(getattr(n, "node", None), "expr", n)) for n in (*x.sizes, *x.strides, x.offset)]
    return f"@{x.vid}", f"@{x.storage_id}", numbers, x.dtype, x.requires_grad, x.is_leaf, x.dense, x._is_view()


def renumbered(lines: list[str]) -> list[str]:
    """Tensors numbered as they are met. A replay that finds a difference has made the inputs before it first, and so numbers them lower."""
    numbers: dict[str, str] = {}
    return [re.sub(r"[%@](\d+)", lambda m: f"%{numbers.setdefault(m[1], str(len(numbers)))}", line) for line in lines]


def told(found: Any) -> list[str]:
    """All that a capture has learned, as text."""
    trace, world = found.trace, found.world
    lines: list[Any] = [("op", str(op), op.torch_index, op.grad, op.again, place(op.site), *map(meta, op.outs)) for op in trace.ops]
    lines += [("call", str(o), o.begin, place(o.site)) for o in trace.torch_ops]
    lines += [("input", x.source.name, *meta(x)) for x in trace.inputs]
    for g in found.guards:
        value = [(v.name if hasattr(v, "name") else v) for v in (g.value if type(g.value) in (tuple, list) else (g.value,))]
        lines.append(("guard", g.source.name, g.kind, value if g.kind != "TENSOR_MATCH" else "", place(g.site)))
    lines += [("relation", str(g), place(g.site)) for g in trace.scope.guards] + [("assert", str(a)) for a in trace.scope.asserts]
    lines += [("effect", e.kind, e.args) for e in found.effects]
    lines.append((type(found.exit).__name__, trace.next_unbacked, len(trace.constants), [f"@{m}" for m in sorted(trace.known)]))
    lines.append(("shadows", [(h.source.name, list(h.located), list(h.lacks), h.all, h.keys_known) for h in world.made]))
    lines.append(("world", world.n_symbols, list(world.symbols), len(world.outside), [s.name for s in world.sources.values()]))
    return renumbered([re.sub(r"0x[0-9a-f]+", "0x", repr(line)) for line in lines])


@pytest.fixture
def both(monkeypatch) -> Callable[..., int]:
    """Compile and call with and without replays; compare what was captured, and the results with eager's. Returns the number of replays."""
    seen: list[tuple[list[str], int]] = []

    def watched(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        made = found.world.blocks
        seen.append((told(found), made.replayed if made is not None else 0))
        return found

    original = region.capture
    monkeypatch.setattr(region, "capture", watched)

    def run(make: Callable[[], Any], *args: Any) -> int:
        captured = []
        for enabled in (True, False):
            monkeypatch.setattr(blocks, "ENABLED", enabled)
            pliant.reset()
            seen.clear()
            fn, reference = make(), make()
            given, expected_args = copy.deepcopy(args), copy.deepcopy(args)
            torch.manual_seed(3)
            got = pliant.compile(fn, strict=True)(*given)
            captured.append(list(seen))
            torch.manual_seed(3)
            expected = reference(*expected_args)
            torch.testing.assert_close(got, expected, equal_nan=True)
            torch.testing.assert_close(given, expected_args)
        with_replays, without = captured
        assert len(with_replays) == len(without)
        for (a, _), (b, _) in zip(with_replays, without, strict=True):
            assert len(a) == len(b)
            for x, y in zip(a, b, strict=True):
                assert x == y
        return sum(n for _, n in with_replays)

    return run


class Inner(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(n, n), nn.Linear(n, n)
        self.scale = 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(x))) * self.scale


class Layer(nn.Module):
    def __init__(self, n: int = 8) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(n)
        self.inner = Inner(n)
        self.drop = nn.Dropout(0.25)
        self.register_buffer("shift", torch.zeros(n))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        y = self.drop(self.inner(self.norm(x))) + self.shift
        if mask is not None:
            y = y * mask
        return x + y


class Stack(nn.Module):
    def __init__(self, n_layers: int = 5, n: int = 8, kind: type = Layer) -> None:
        super().__init__()
        self.first = nn.Linear(n, n)
        self.layers = nn.ModuleList([kind(n) for _ in range(n_layers)])

    def forward(self, x: torch.Tensor, *rest: Any) -> Any:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x, *rest)
        return x


def stack(change: Callable[[Stack], None] | None = None, *, train: bool = False, kind: type = Layer) -> Callable[[], Stack]:
    """A maker of stacks that are the same each time."""

    def make() -> Stack:
        torch.manual_seed(0)
        torch.utils.hooks.RemovableHandle.next_id = 0
        m = Stack(kind=kind).train(train)
        if change is not None:
            change(m)
        return m

    return make


X = torch.linspace(-1, 1, 24).reshape(3, 8)


def test_alike_layers_are_captured_once(both) -> None:
    with torch.no_grad():
        assert both(stack(), X) == 4
        assert both(stack(), X, torch.ones(3, 1)) == 4


def test_with_gradients(both) -> None:
    assert both(stack(), X) == 4
    assert both(stack(train=True), X) == 4
    assert both(stack(), X.clone().requires_grad_()) == 4


def test_gradients_of_replayed_layers() -> None:
    x = X.clone().requires_grad_()
    m, reference = stack()(), stack()()
    torch.manual_seed(1)
    out = pliant.compile(m, strict=True)(x)
    out.square().sum().backward()
    y = X.clone().requires_grad_()
    reference(y).square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    for p, q in zip(m.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)


# -- layers that differ in one thing --------------------------------------------------------------------------------------------
class Sub(Layer):
    pass


class Other(Layer):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(x, mask) + 1


class Doubled(nn.Module):
    def forward(self, w: torch.Tensor) -> torch.Tensor:
        return w * 2


def set_p(m: Stack) -> None:
    m.layers[2].drop.p = 0.75


def set_eps(m: Stack) -> None:
    m.layers[2].norm.eps = 0.5


def set_scale(m: Stack) -> None:
    m.layers[2].inner.scale = -0.0


def set_scale_int(m: Stack) -> None:
    m.layers[2].inner.scale = 2


def hook(m: Stack) -> None:
    m.layers[2].register_forward_hook(lambda module, args, out: out + 10)


def inner_hook(m: Stack) -> None:
    m.layers[2].inner.register_forward_hook(lambda module, args, out: out + 10)


def pre_hook(m: Stack) -> None:
    m.layers[2].inner.a.register_forward_pre_hook(lambda module, args: (args[0] + 1,))


def train_one(m: Stack) -> None:
    m.layers[2].train()


def train_drop(m: Stack) -> None:
    m.layers[2].drop.train()


def no_bias(m: Stack) -> None:
    m.layers[2].inner.a = nn.Linear(8, 8, bias=False)


def wider(m: Stack) -> None:
    m.layers[2].inner.a, m.layers[2].inner.b = nn.Linear(8, 4), nn.Linear(4, 8)


def strided(m: Stack) -> None:
    m.layers[2].inner.a.weight = nn.Parameter(torch.randn(8, 8).t())


def frozen(m: Stack) -> None:
    m.layers[2].inner.a.weight.requires_grad_(False)


def int_buffer(m: Stack) -> None:
    m.layers[2].shift = torch.zeros(8, dtype=torch.int32)


def broadcast_buffer(m: Stack) -> None:
    m.layers[2].shift = torch.ones(1)


def tied(m: Stack) -> None:
    m.layers[2].inner.a.weight = m.layers[2].inner.b.weight


def tied_layers(m: Stack) -> None:
    m.layers[3].inner.a.weight = m.layers[1].inner.a.weight


def tied_before(m: Stack) -> None:
    m.layers[0].inner.a.weight = m.first.weight


def views(m: Stack) -> None:
    both_weights = torch.randn(2, 8, 8)
    m.layers[2].shift = both_weights[0, 0]
    m.layers[3].shift = both_weights[0, 0]


def shared_inner(m: Stack) -> None:
    m.layers[3].inner = m.layers[1].inner


def shared_by_all(m: Stack) -> None:
    for layer in m.layers:
        layer.inner = m.layers[0].inner


def subclass(m: Stack) -> None:
    m.layers[2] = Sub().eval()


def other_class(m: Stack) -> None:
    m.layers[2] = Other().eval()


def same_layer_twice(m: Stack) -> None:
    m.layers[2] = m.layers[1]
    m.layers.append(m.layers[0])


def own_forward(m: Stack) -> None:
    m.layers[2].forward = lambda x, mask=None: x * 3


def own_inner_forward(m: Stack) -> None:
    m.layers[2].inner.forward = lambda x: x * 3


def inner_replaced(m: Stack) -> None:
    m.layers[2].inner = nn.Identity()


def extra_attribute(m: Stack) -> None:
    m.layers[2].extra = 3


def hidden_module(m: Stack) -> None:
    m.layers[2].__dict__["inner"] = nn.Identity()


def parametrized(m: Stack) -> None:
    parametrize.register_parametrization(m.layers[2].inner.a, "weight", Doubled())


def norm_shape(m: Stack) -> None:
    m.layers[2].norm = nn.LayerNorm((3, 8))


def no_affine(m: Stack) -> None:
    m.layers[2].norm = nn.LayerNorm(8, elementwise_affine=False)


def mask_none(m: Stack) -> None:
    m.layers[2].shift = None
    m.layers[2].shift = torch.zeros(8)


CHANGES = [
    set_p, set_eps, set_scale, set_scale_int, hook, inner_hook, pre_hook, train_one, train_drop, no_bias, wider, strided, frozen,
    int_buffer, broadcast_buffer, tied, tied_layers, tied_before, views, shared_inner, shared_by_all, subclass, other_class,
    same_layer_twice, own_forward, own_inner_forward, inner_replaced, extra_attribute, hidden_module,
    parametrized, norm_shape, no_affine, mask_none,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("grad", [False, True])
def test_one_layer_differs(both, change, grad) -> None:
    with torch.set_grad_enabled(grad):
        n = both(stack(change), X)
    assert n > 0 or change in (shared_by_all,)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_after_the_capture(change) -> None:
    m, reference = stack()(), stack()()
    fn = pliant.compile(m, strict=True)
    torch.testing.assert_close(fn(X), reference(X))
    torch.manual_seed(5)
    change(m)
    torch.manual_seed(5)
    change(reference)
    torch.manual_seed(7)
    got = fn(X)
    torch.manual_seed(7)
    torch.testing.assert_close(got, reference(X))


# -- every leaf that a layer reads ---------------------------------------------------------------------------------------------------
def leaves() -> list[tuple[str, Callable[[Layer], None]]]:
    def put(path: str, value: Any) -> Callable[[Layer], None]:
        *above, name = path.split(".")

        def change(layer: Any) -> None:
            for part in above:
                layer = getattr(layer, part)
            setattr(layer, name, value() if callable(value) else value)

        return change

    values = {
        "drop.p": 0.9, "drop.inplace": True, "norm.eps": 0.1, "inner.scale": 3.0, "norm.normalized_shape": (8,), "training": True,
        "drop.training": True, "inner.a.weight": lambda: nn.Parameter(torch.ones(8, 8)), "shift": lambda: torch.full((8,), 2.0),
        "inner.a.bias": lambda: None, "norm.weight": lambda: None, "inner.b": nn.Identity, "norm": nn.Identity,
    }  # fmt: skip
    return [(path, put(path, value)) for path, value in values.items()]


@pytest.mark.parametrize(("path", "change"), leaves(), ids=[p for p, _ in leaves()])
@pytest.mark.parametrize("at", [0, 1, 4])
def test_perturbed_leaf(path, change, at) -> None:
    m, reference = stack()(), stack()()
    fn = pliant.compile(m, strict=True)
    torch.testing.assert_close(fn(X), reference(X))
    change(m.layers[at])
    change(reference.layers[at])
    torch.manual_seed(7)
    got = fn(X)
    torch.manual_seed(7)
    torch.testing.assert_close(got, reference(X))


# -- blocks that do more than compute ---------------------------------------------------------------------------------------------------
class Counting(Layer):
    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.calls = 0

    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        self.calls += 1
        return super().forward(x)


class Caching(Layer):
    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        self.last = x
        return super().forward(x)


class Listing(Layer):
    def forward(self, x: torch.Tensor, seen: list) -> torch.Tensor:
        seen.append(x)
        return super().forward(x)


class Printing(Layer):
    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        print("layer", x.shape[0])
        return super().forward(x)


class InPlace(Layer):
    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        x += self.inner(x.clone())
        return x


class Viewing(Layer):
    def forward(self, x: torch.Tensor, mask: Any = None) -> Any:
        return super().forward(x).t().t()


class Pair(Layer):
    def forward(self, x: Any, mask: Any = None) -> Any:
        x, n = x if isinstance(x, tuple) else (x, 0)
        return super().forward(x), [n, x][0] + 1


class Noise(Layer):
    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        return super().forward(x) + torch.rand_like(x)


class NoGrad(Layer):
    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        with torch.no_grad():
            s = self.inner(x)
        return super().forward(x) + s


class Cast(Layer):
    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = self.inner(x)
        return x + y.float()


class Asking(Layer):
    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        y = x if torch.is_grad_enabled() else x * 2
        return super().forward(y) + (1 if self.inner.a is self.inner.b else 2)


class Branching(Layer):
    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        if x.sum() > 1000:
            return x
        return super().forward(x)


class Counted(Layer):
    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        return super().forward(x) + x[x > 0].sum() * 0.01


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return g * 3 * ctx.saved_tensors[0]


class Custom(Layer):
    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        return super().forward(Square.apply(x * 0.5))


class Checkpointed(Layer):
    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        return x + torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)


class Constant(Layer):
    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        return super().forward(x) + torch.tensor([1.0, 2.0]).sum()


class Data(Layer):
    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        return super().forward(x) + self.inner.a.weight.data.sum()


class Tagged(Layer):
    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        return super().forward(x) * getattr(self.inner.a.weight, "tag", 1)


class Raising(Layer):
    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        try:
            if x.dim() == 2:
                raise ValueError("two")
        except ValueError as e:
            return super().forward(x) + len(str(e))
        return x


class Making(Layer):
    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        add = lambda y: y + self.inner.scale  # noqa: E731
        return sum(map(add, [super().forward(x), x]))


KINDS = [
    Counting, Caching, Printing, InPlace, Viewing, Pair, Noise, NoGrad, Cast, Asking, Branching, Counted, Custom, Checkpointed, Constant,
    Data, Tagged, Raising, Making,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("grad", [False, True])
def test_kinds_of_blocks(both, kind, grad, capsys) -> None:
    with torch.set_grad_enabled(grad):
        both(stack(kind=kind), X)
    out = capsys.readouterr().out
    assert out.count("layer") == (20 if kind is Printing else 0)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_kinds(kind) -> None:
    torch.manual_seed(0)
    m = Stack(kind=kind).eval()
    reference = copy.deepcopy(m)
    results = []
    for fn, module in ((pliant.compile(m, strict=True), m), (reference, reference)):
        x = X.clone().requires_grad_()
        torch.manual_seed(1)
        out = fn(x)
        out = out[0] if isinstance(out, tuple) else out
        out.square().sum().backward()
        results.append([x.grad, out.detach(), *[p.grad for p in module.parameters()]])
    torch.testing.assert_close(*results, atol=1e-4, rtol=1e-3)


def test_a_list_that_the_layers_fill(both) -> None:
    seen: list = []

    class Filling(Stack):
        def forward(self, x):
            own: list = []
            for layer in self.layers:
                x = layer(x, own)
            return x, own

    def make() -> Any:
        torch.manual_seed(0)
        return Filling(kind=Listing).eval()

    assert both(make, X) == 0
    assert both(stack(kind=Listing), X, seen) == 0


class Config:
    def __init__(self) -> None:
        self.scale, self.flags = 2.0, {"on": True}


class Configured(Layer):
    config: Any = None

    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        return super().forward(x) * self.config.scale if self.config.flags["on"] else x


class Changing(Stack):
    """What the layers share is changed on the way."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i == 1:
                self.config.scale = 3.0
            if i == 3:
                self.config.flags["on"] = False
        self.config.scale, self.config.flags["on"] = 2.0, True
        return x


@pytest.mark.parametrize("grad", [False, True])
def test_shared_state_that_is_changed_on_the_way(both, grad) -> None:
    def make() -> Any:
        torch.manual_seed(0)
        m = Changing(kind=Configured).eval()
        m.config = Config()
        for layer in m.layers:
            layer.config = m.config
        return m

    with torch.set_grad_enabled(grad):
        both(make, X)


def test_a_global_that_is_changed_on_the_way(both) -> None:
    global FACTOR
    FACTOR = 1.0

    class Globally(Layer):
        def forward(self, x, mask=None):
            return super().forward(x) * FACTOR

    class Setting(Stack):
        def forward(self, x):
            global FACTOR
            for i, layer in enumerate(self.layers):
                x = layer(x)
                FACTOR = 2.0 if i % 2 else 1.0
            FACTOR = 1.0
            return x

    def make() -> Any:
        torch.manual_seed(0)
        return Setting(kind=Globally).eval()

    both(make, X)


FACTOR = 1.0


def test_a_layer_that_looks_at_another(both) -> None:
    class Peeking(Layer):
        def forward(self, x, mask=None):
            return super().forward(x) + self.others[0].inner.a.bias

    def make() -> Any:
        torch.manual_seed(0)
        m = Stack(kind=Peeking).eval()
        for i, layer in enumerate(m.layers):
            layer.others = [m.layers[i // 2]]
        return m

    both(make, X)


def test_a_part_that_is_given(both) -> None:
    class Given(Layer):
        def forward(self, x, part):
            return super().forward(x) + part(x)

    class Giving(Stack):
        def forward(self, x):
            for layer in self.layers:
                x = layer(x, self.layers[0].inner)
            return x

    def make() -> Any:
        torch.manual_seed(0)
        return Giving(kind=Given).eval()

    both(make, X)


def test_arguments_that_are_the_same_or_share_memory(both) -> None:
    class Two(Layer):
        def forward(self, x, y):
            y = y.clone() if y is x else y
            return super().forward(x) + y

    class Giving(Stack):
        def forward(self, x):
            x = self.first(x)
            z = self.first(x)
            for i, layer in enumerate(self.layers):
                x = layer(x, (x, z, x.view(3, 8), z, z)[i])
            return x

    def make() -> Any:
        torch.manual_seed(0)
        return Giving(kind=Two).eval()

    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            both(make, X)


def test_two_shapes_of_arguments(both) -> None:
    class Growing(Stack):
        def forward(self, x):
            x = self.first(x)
            for layer in self.layers:
                x = torch.cat([x, layer(x)])
            return x

    def make() -> Any:
        torch.manual_seed(0)
        return Growing().eval()

    assert both(make, X) == 0


@pytest.mark.parametrize("grad", [False, True])
def test_a_replay_that_fails_captures_again(monkeypatch, grad) -> None:
    class Guarded(Stack):
        def forward(self, x):
            x = self.first(x)
            for layer in self.layers:
                try:
                    x = layer(x)
                except BaseException:  # no concern of the program's
                    x = x * 0
            return x

    def fails(*args: Any) -> Any:
        failed.append(args)
        raise blocks.ReplayFailed

    failed: list = []
    for name in ("record_operations", "call_again"):
        monkeypatch.setattr(blocks.Replay, name, fails)
    torch.manual_seed(0)
    m = Guarded().eval()
    with torch.set_grad_enabled(grad):
        torch.testing.assert_close(pliant.compile(m, strict=True)(X), m(X))
    assert len(failed) == 1 and pliant.stats()["captures"] == 1


def of(kind: type, *values: Any) -> Callable[[], Any]:
    """Five layers, whose attribute `mode` has these values (the last one again and again)."""

    def make() -> Any:
        torch.manual_seed(0)
        m = Stack(kind=kind).eval()
        for i, layer in enumerate(m.layers):
            layer.mode = copy.copy(values[min(i, len(values) - 1)])
        return m

    return make


class Table(dict):
    factor = 1


class Whole(int):
    pass


def table(factor: int) -> Table:
    t = Table(a=1)
    t.factor = factor
    return t


class Reading(Layer):
    mode: Any = None

    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        mode = self.mode
        if isinstance(mode, (set, frozenset)):
            return super().forward(x) * (2 if "a" in mode else 3)
        if isinstance(mode, Table):
            return super().forward(x) * mode.factor * mode["a"]
        if isinstance(mode, dict):
            return super().forward(x) * sum(mode.values())
        if isinstance(mode, list):
            return super().forward(x) * len(mode) * mode[-1]
        if isinstance(mode, slice):
            return super().forward(x) + x[:, mode].sum()
        if isinstance(mode, range):
            return super().forward(x) + sum(mode)
        return super().forward(x) * mode


@pytest.mark.parametrize("one, two", [
    ({"a"}, {"b"}), (frozenset("a"), frozenset("b")), (table(2), table(3)), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({"a": 1}, {"a": 2}),
    ([1, 2], [1, 3]), ([1, 2], [1, 2, 2]), (Whole(2), Whole(3)), (slice(0, 2), slice(0, 3)), (range(3), range(4)), (True, 1), (0.0, -0.0),
    (2, 3), (float("nan"), 1.0), (torch.float32.itemsize, 5),
])  # fmt: skip
def test_values_of_attributes(both, one, two) -> None:
    with torch.no_grad():
        both(of(Reading, one, one, two, one, two), X)
        both(of(Reading, one), X)


def test_a_cell_that_is_changed_on_the_way(both) -> None:
    def make() -> Any:
        torch.manual_seed(0)
        m = Stack().eval()
        factor = 1.0

        def forward(self, x, mask=None):
            return Layer.forward(self, x) * factor

        for layer in m.layers:
            layer.__class__ = type("Closed", (Layer,), {"forward": forward}) if layer is m.layers[0] else type(m.layers[0])

        def run(x):
            nonlocal factor
            for i, layer in enumerate(m.layers):
                x = layer(x)
                factor = 2.0 if i % 2 else 1.0
            factor = 1.0
            return x

        return run

    both(make, X)


def test_blocks_within_blocks_that_share_what_is_changed(both) -> None:
    class Part(Configured):
        pass

    class Two(Layer):
        def __init__(self, n):
            super().__init__(n)
            self.parts = nn.ModuleList([Part(n), Part(n), Part(n)])

        def forward(self, x, mask=None):
            for part in self.parts:
                x = part(x)
            return x

    class Run(Stack):
        def forward(self, x):
            for i, layer in enumerate(self.layers):
                x = layer(x)
                if i == 2:
                    self.config.scale = 0.5
            self.config.scale = 2.0
            return x

    def make() -> Any:
        torch.manual_seed(0)
        m = Run(kind=Two).eval()
        m.config = Config()
        for layer in m.layers:
            for part in layer.parts:
                part.config = m.config
        return m

    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            assert both(make, X) > 0


def test_encoder_of_the_library(both) -> None:
    def make() -> Any:
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.1)
        return nn.TransformerEncoder(layer, 5, enable_nested_tensor=False)

    assert both(make, torch.randn(2, 3, 8)) == 3  # the first layer is given the input itself


def test_new_sizes_need_no_new_capture() -> None:
    m = stack()()
    fn = pliant.compile(m, strict=True)
    for n in (3, 5, 4, 9):
        x = torch.randn(n, 8)
        torch.testing.assert_close(fn(x), m(x))
    assert pliant.stats()["captures"] == 1


def test_constants_that_a_replay_reads_without_a_detour() -> None:
    """They are located by one guard, of the kind that the replay writes, whatever is known of them."""
    for t, kind in blocks.GUARDED.items():
        locate = {"EQ_MATCH": World.constant, "ID_MATCH": World.identity}[kind]
        assert LOCATED[t].locate is locate, t


class Holding(nn.Module):
    """Tensors of all kinds of holders, of which some are read behind what is computed."""

    def __init__(self, n: int, way: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(n))
        self.act = nn.Identity()
        self.way, self.k = way, torch.rand(())
        self.items = [torch.rand(()), torch.rand(()) + 1]
        self.table = {"a": torch.rand(()), "b": torch.rand(())}
        self.pair = (torch.rand(()), torch.rand(()))
        self.more = nn.ParameterList([nn.Parameter(torch.rand(n)) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(x * self.weight) + 1
        if self.way == "items":
            for t in self.items:
                x = x * t + self.k
        elif self.way == "table":
            for t in self.table.values():
                x = x * t + self.k
        elif self.way == "pair":
            for t in self.pair:
                x = x * t + self.k
        elif self.way == "more":
            for t in self.more:
                x = x * t + self.k
        elif self.way == "unpacked":
            a, b = self.items
            return x * a - b * self.k
        return x


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("way", ["items", "table", "pair", "more", "unpacked", "none"])
def test_inputs_whose_numbers_are_others_than_the_template_s(both, way, grad) -> None:
    """Inputs of a replay had the numbers of what its operations make, and so their values: where a container's tensors are met behind an
    operation, and where a layer had been called, or read, before its call was recorded."""

    def make(begin: str) -> Callable:
        torch.manual_seed(0)
        net = nn.Sequential(*[Holding(4, way) for _ in range(4)])

        def program(x: torch.Tensor) -> torch.Tensor:
            if begin == "called":
                x = net[0](x)
            elif begin == "read":
                x = x * net[1].weight + net[2].k
            return net(x)

        return program

    for begin in ("", "called", "read"):
        with torch.set_grad_enabled(grad):
            assert both(lambda: make(begin), torch.rand(3, 4)) >= 1  # noqa: B023
