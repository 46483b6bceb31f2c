"""Convolutions inside segments: the native function over every kind of geometry, and which operations become one."""

from __future__ import annotations

import ctypes
import random

import pytest
import torch
from torch.nn import functional as F

import pliant
from pliant import native
from pliant.codegen.cpu import runtime, segment
from pliant.lower import emit

pytestmark = pytest.mark.skipif(native.own_products()[0] < 512, reason="needs AVX-512")
FENCE = 32
REFERENCES = (F.conv1d, F.conv2d, F.conv3d)


def function():
    segment.functions(runtime.own_bits())  # tells of the thread pool
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(native.convolution_function())


def filled(values: list[int], value: int) -> list[int]:
    return [value] * (3 - len(values)) + values


class Case:
    """One convolution; x may be part of a larger tensor."""

    def __init__(self, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, stride, padding, dilation, groups: int) -> None:
        self.x, self.w, self.bias, self.geometry = x, w, bias, (stride, padding, dilation, groups)
        reference = REFERENCES[x.dim() - 3]
        self.expected = reference(x.double(), w.double(), None if bias is None else bias.double(), *self.geometry)
        self.scale = reference(x.double().abs(), w.double().abs(), None, *self.geometry) + 1

    def run(self, fn) -> torch.Tensor:
        x, w, (stride, padding, dilation, groups) = self.x, self.w, self.geometry
        n = self.expected.numel()
        memory = torch.full((n + 2 * FENCE,), 7.0)
        out = memory[FENCE : FENCE + n].view(self.expected.shape).fill_(float("nan"))
        pointers = [t.data_ptr() if t is not None else 0 for t in (x, w, self.bias, out)]
        fields = [x.shape[0], groups, w.shape[1], w.shape[0] // groups]
        fields += [*filled(list(x.shape[2:]), 1), *filled(list(out.shape[2:]), 1), *filled(list(w.shape[2:]), 1)]
        fields += [*filled(stride, 1), *filled(padding, 0), *filled(dilation, 1)]
        fields += [x.stride(0), x.stride(1), *filled(list(x.stride()[2:-1]), 0)[1:]]
        box = (ctypes.c_int64 * 30)(*pointers, *fields)
        assert fn(ctypes.addressof(box)) == 0
        assert (memory[:FENCE] == 7).all() and (memory[-FENCE:] == 7).all(), "written beyond the result"
        return out

    def check(self, out: torch.Tensor) -> None:
        error = (out.double() - self.expected).abs()
        assert (error <= 2e-6 * self.scale).all(), (self.x.shape, self.x.stride(), self.w.shape, self.geometry, float(error.max()))


def random_case(rng: random.Random, dims: int) -> Case:
    groups, channels = rng.choice((1, 1, 2, 4)), rng.randint(1, 5) * rng.choice((1, 1, 8))
    features = rng.randint(1, 12) * rng.choice((1, 1, 4))
    kernel, stride, padding, dilation = ([rng.randint(low, high) for _ in range(dims)] for low, high in ((1, 4), (1, 4), (0, 3), (1, 3)))
    most = 40 if dims < 3 else 9
    sizes = [max(rng.randint(1, most), d * (k - 1) + 1 - 2 * p) for k, p, d in zip(kernel, padding, dilation, strict=True)]
    around = [rng.choice((0, 0, 3)) for _ in range(dims + 2)]
    x = torch.randn(rng.randint(1, 3) + around[0], channels * groups + around[1], *[s + a for s, a in zip(sizes, around[2:], strict=True)])
    x = x[tuple(slice(a, None) for a in around[:-1])][..., : sizes[-1]]
    w, bias = torch.randn(features * groups, channels, *kernel), torch.randn(features * groups) if rng.random() < 0.5 else None
    return Case(x, w, bias, stride, padding, dilation, groups)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_every_geometry(dims):
    fn, rng = function(), random.Random(dims)
    for _ in range(250):
        case = random_case(rng, dims)
        case.check(case.run(fn))


def test_a_channel_of_its_own_for_every_feature():
    fn, rng = function(), random.Random(0)
    for k in range(200):
        kernel, stride, groups = rng.choice((3, 5, 7)), rng.choice((1, 2)), rng.randint(2, 7)
        padding = [rng.randint(0, 4) for _ in range(2)]
        sizes = [max(rng.randint(1, 40), kernel - 2 * p) for p in padding]
        x = torch.randn(rng.randint(1, 3), groups + 1, sizes[0] + 2, sizes[1] + 3)[:, 1:, 1 : sizes[0] + 1, : sizes[1]]
        bias = torch.randn(groups) if k % 2 else None
        case = Case(x, torch.randn(groups, 1, kernel, kernel), bias, [stride] * 2, padding, [1, 1], groups)
        case.check(case.run(fn))


LARGE = [  # (x, weight, stride, padding, groups): with and without borders, packed, in place, rest of a few pixels, only a product
    ((2, 20, 30, 31), (24, 20, 3, 3), 1, 1, 1),
    ((3, 64, 7, 7), (70, 64, 3, 3), 1, 1, 1),
    ((5, 32, 5, 9), (40, 16, 3, 3), 1, 1, 2),
    ((1, 40, 14, 14), (64, 40, 3, 3), 2, 1, 1),
    ((4, 48, 10, 10), (80, 48, 1, 1), 1, 0, 1),
    ((1, 32, 32, 32), (64, 32, 1, 1), 1, 0, 1),
    ((7, 96, 1, 1), (50, 96, 1, 1), 1, 0, 1),
    ((2, 3, 64, 48), (33, 3, 16, 16), 16, 0, 1),
    ((9, 17, 2, 2), (40, 17, 2, 2), 1, 0, 1),
    ((3, 50, 40, 41), (50, 1, 5, 5), 2, 2, 50),
]


@pytest.mark.parametrize("x, w, stride, padding, groups", LARGE)
def test_threads_change_no_bit(x, w, stride, padding, groups):
    fn = function()
    torch.manual_seed(0)
    case = Case(torch.randn(x), torch.randn(w), torch.randn(w[0]), [stride] * 2, [padding] * 2, [1, 1], groups)
    alone = case.run(fn)
    case.check(alone)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(case.run(fn), alone)
    finally:
        torch.set_num_threads(threads)


def test_a_value_that_is_no_number_reaches_its_neighbours_only():
    case = Case(torch.randn(2, 16, 9, 9), torch.randn(24, 16, 3, 3), None, [1, 1], [1, 1], [1, 1], 1)
    case.x[1, 3, 4, 8] = float("nan")
    out = case.run(function())
    want = torch.zeros(out.shape, dtype=torch.bool)
    want[1, :, 3:6, 7:] = True
    assert torch.equal(out.isnan(), want)


def test_nothing_to_compute():
    fn = function()
    for x, w, groups in (((0, 3, 5, 5), (4, 3, 3, 3), 1), ((2, 0, 5, 5), (4, 0, 3, 3), 1)):
        case = Case.__new__(Case)
        case.x, case.w, case.bias, case.geometry = torch.randn(x), torch.randn(w), torch.randn(4), ([1, 1], [1, 1], [1, 1], groups)
        case.expected = case.bias.double()[:, None, None].expand(x[0], 4, 5, 5)
        case.scale = torch.ones(())
        case.check(case.run(fn))


# -- which operations become one --


def native_convolutions(monkeypatch) -> list[int]:
    """The number of convolutions in each segment that is printed from now on."""
    seen: list[int] = []
    make = emit.make_segment

    def watch(name, items, *others):
        seen.append(sum(type(s).__name__ == "Convolution" for item in items for s in item.steps))
        return make(name, items, *others)

    monkeypatch.setattr(emit, "make_segment", watch)
    return seen


@pytest.mark.parametrize("kind", ["1d", "2d", "3d", "groups", "depthwise", "part", "strided", "function"])
def test_compiled(kind, monkeypatch):
    if runtime.products() is None or not runtime.own_convolutions():
        pytest.skip("PyTorch's own kernels are used here")
    seen = native_convolutions(monkeypatch)
    torch.manual_seed(0)
    space = {"1d": 1, "3d": 3}.get(kind, 2)
    layer = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)[space - 1](6, 8, 3, padding=1, groups=2 if kind == "groups" else 1)
    if kind == "depthwise":
        layer = torch.nn.Conv2d(6, 6, 5, stride=2, padding=1, groups=6)
    if kind == "strided":
        layer = torch.nn.Conv2d(6, 8, 3, stride=2, dilation=2, bias=False)

    def fn(x):
        if kind == "part":
            x = x[1:, :, 2:, 1:-1]
        if kind == "function":
            return F.conv2d(x.relu(), layer.weight.flip(0), None, 1, "same").tanh()
        return layer(x * 2).relu() + 1

    compiled = pliant.compile(fn, backend="native")
    with torch.no_grad():
        for batch, size in ((2, 9), (3, 12), (5, 20), (1, 17)):
            x = torch.randn(batch + (kind == "part"), 6, *[size + i + 2 * (kind == "part") for i in range(space)])
            torch.testing.assert_close(compiled(x), fn(x), rtol=1e-5, atol=1e-5)
    assert 1 in seen
    x = torch.randn(2, 6, *[10] * space, requires_grad=True)
    twin = x.detach().clone().requires_grad_()
    (compiled(x) if kind != "part" else compiled(torch.cat([x, x], 0))).square().sum().backward()
    (fn(twin) if kind != "part" else fn(torch.cat([twin, twin], 0))).square().sum().backward()
    torch.testing.assert_close(x.grad, twin.grad, rtol=1e-4, atol=1e-4)


def test_geometry_that_only_a_run_knows(monkeypatch):
    if runtime.products() is None or not runtime.own_convolutions():
        pytest.skip("PyTorch's own kernels are used here")
    seen = native_convolutions(monkeypatch)
    w = torch.randn(8, 6, 3, 3)

    def fn(x, stride, padding, dilation):
        return F.conv2d(x * 2, w, None, stride, padding, dilation).relu()

    compiled = pliant.compile(fn, backend="native", strict=True)
    for stride, padding, dilation in ((2, 1, 1), (3, 2, 2), (4, 3, 2), (2, 4, 3), (5, 2, 4)):
        x = torch.randn(2, 6, 15, 17)
        torch.testing.assert_close(compiled(x, stride, padding, dilation), fn(x, stride, padding, dilation), rtol=1e-5, atol=1e-5)
    assert seen and all(seen)
    for wrong in ((0, 1, 1), (2, -1, 1), (2, 1, 0)):
        with pytest.raises(RuntimeError) as theirs:
            fn(x, *wrong)
        with pytest.raises(RuntimeError) as ours:
            compiled(x, *wrong)
        assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("kind", ["channels last", "depthwise, uneven", "double", "transposed"])
def test_left_to_pytorch(kind, monkeypatch):
    seen = native_convolutions(monkeypatch)
    layer: torch.nn.Module = torch.nn.Conv2d(6, 6, 3)
    if kind == "depthwise, uneven":
        layer = torch.nn.Conv2d(6, 6, (3, 5), groups=6)
    x = torch.randn(2, 6, 9, 9)
    if kind == "channels last":
        x = x.to(memory_format=torch.channels_last)
    if kind == "double":
        layer, x = layer.double(), x.double()
    if kind == "transposed":
        layer = torch.nn.ConvTranspose2d(6, 6, 3)
    with torch.no_grad():
        out, want = pliant.compile(layer, backend="native")(x), layer(x)
    torch.testing.assert_close(out, want, rtol=1e-5, atol=1e-5)
    assert out.stride() == want.stride() and not any(seen)
