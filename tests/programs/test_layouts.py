"""How results lie in memory: strides, and whose memory it is, where eager's kernels decide by how the operands lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import pliant
from tests.helpers import check, compiled


def laid_out(x: Any, order: tuple[int, ...]) -> Any:
    """`x` with its dims in this order in memory."""
    back = tuple(order.index(d) for d in range(len(order)))
    if isinstance(x, np.ndarray):
        return np.ascontiguousarray(x.transpose(order)).transpose(back)
    return x.permute(order).contiguous().permute(back)


# -- tensors ------------------------------------------------------------------------------------------------------------------
ORDERS = {
    2: [(0, 1), (1, 0)],
    3: [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1)],
    4: [(0, 1, 2, 3), (3, 2, 1, 0), (0, 2, 3, 1), (1, 0, 2, 3)],
}
PROGRAMS: dict[str, tuple[Callable, tuple[int, ...], torch.dtype]] = {
    "one_hot": (lambda x: F.one_hot(x % 4, 4), (3, 4), torch.int64),
    "one_hot_3": (lambda x: F.one_hot(x % 5, num_classes=5), (2, 3, 4), torch.int64),
    "nearest": (lambda x: F.interpolate(x, size=6), (2, 3, 4), torch.float32),
    "nearest_factor": (lambda x: F.interpolate(x, scale_factor=2.0), (2, 3, 4), torch.float32),
    "nearest_exact": (lambda x: F.interpolate(x, scale_factor=1.5, mode="nearest-exact"), (2, 3, 4), torch.float32),
    "linear": (lambda x: F.interpolate(x, size=5, mode="linear"), (2, 3, 4), torch.float32),
    "bilinear": (lambda x: F.interpolate(x, size=(5, 6), mode="bilinear"), (2, 3, 4, 5), torch.float32),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), (2, 3, 6), torch.float32),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (2, 3, 4, 6), torch.float32),
    "index_copy": (lambda x: torch.index_copy(x, 0, torch.tensor([1, 0]), x[:2]), (3, 4), torch.float32),
    "index_fill": (lambda x: torch.index_fill(x, 0, torch.tensor([1, 0]), 2.0), (3, 4), torch.float32),
    "index_add": (lambda x: torch.index_add(x, 1, torch.tensor([1, 0]), x[:, :2]), (3, 4), torch.float32),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_tensors(name: str) -> None:
    fn, sizes, dtype = PROGRAMS[name]
    for order in ORDERS[len(sizes)]:
        x = torch.arange(int(np.prod(sizes))).reshape(sizes).to(dtype)
        check(fn, (laid_out(x, order),), (laid_out(x + 1, order),))


def test_writes_to_tensors_of_inference_mode() -> None:
    with torch.inference_mode():
        made = [torch.ones(3) for _ in range(2)]

    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            with torch.inference_mode():
                self.register_buffer("seen", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += x
            return self.seen * 2

    def through_a_view(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        t[1:].mul_(2)
        return x + t

    seen = []
    for prepare in (lambda fn: fn, lambda fn: pliant.compile(fn, strict=True)):
        module = Counting()
        for fn, args in ((module, (torch.ones(3),)), (through_a_view, (torch.ones(3), made.pop()))):
            fn = prepare(fn)
            with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
                fn(*args)
            with torch.inference_mode():
                fn(*args)
            with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
                fn(*args)
        seen.append(module.seen.tolist())
    assert seen[0] == seen[1]


# -- leaves ---------------------------------------------------------------------------------------------------------------------
def leaf_and_loss(x: torch.Tensor) -> tuple:
    w = torch.full((3,), 2.0, requires_grad=True)
    return (x * w).sum(), w


def loss(x: torch.Tensor) -> torch.Tensor:
    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    return (x * w).sum()


def through_numpy(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tensor(np.ones(3, np.float32), requires_grad=True)


def backward(x: torch.Tensor) -> tuple:
    w = torch.ones(3, requires_grad=True)
    y = (x * w).sum()
    y.backward()
    return w.grad, w, y


def inside(x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        w = torch.ones(3, requires_grad=True)
        return torch.autograd.grad((x.detach() * w).sum(), w)[0]


def beside_another(x: torch.Tensor) -> tuple:
    w = x.detach().requires_grad_(True)
    return w * 3, x * 2


def beside_what_is_not_differentiated(x: torch.Tensor) -> tuple:
    return x.detach().clone().requires_grad_() * 2, x.floor() + x.detach(), x.exp().detach()


def alone_and_with_another(x: torch.Tensor) -> tuple:
    w = torch.ones(3, requires_grad=True)
    return w * w, x * w, x * x, (w * 2).sum()


def kept_by_its_result(x: torch.Tensor) -> tuple:
    y = x.detach().requires_grad_(True) * -2.0
    y.retain_grad()
    return y, x + 1


ALL_LEAVES = [
    leaf_and_loss, loss, through_numpy, backward, inside, beside_another, beside_what_is_not_differentiated, alone_and_with_another,
    kept_by_its_result,
]  # fmt: skip


@pytest.mark.parametrize("fn", ALL_LEAVES)
@pytest.mark.parametrize("grad", [False, True])
def test_leaves_made_in_a_region(fn: Callable, grad: bool) -> None:
    def flat(r: Any) -> tuple:
        return r if isinstance(r, tuple) else (r,)

    compiled = pliant.compile(fn, strict=True)
    for n in (1.0, 2.0):
        x, y = (torch.full((3,), n, requires_grad=grad) for _ in range(2))
        wanted, got = flat(fn(x)), flat(compiled(y))
        for a, b in zip(wanted, got, strict=True):
            assert (a.is_leaf, a.requires_grad) == (b.is_leaf, b.requires_grad)
            torch.testing.assert_close(a, b)
        if fn is leaf_and_loss:
            wanted[0].backward()
            got[0].backward()
            torch.testing.assert_close(wanted[1].grad, got[1].grad)
            torch.testing.assert_close(x.grad, y.grad)


# -- arrays ---------------------------------------------------------------------------------------------------------------------
def described(r: Any) -> Any:
    """All that can be seen of how arrays lie; strides of dims of 1 are nobody's."""
    if isinstance(r, tuple):
        return [described(x) for x in r]
    strides = tuple(s for s, n in zip(r.strides, r.shape, strict=True) if n != 1)
    return type(r).__name__, r.shape, strides, r.flags.c_contiguous, r.flags.f_contiguous, r.tobytes("A"), r.flags.writeable


SUBSCRIPTS = (
    "[:, [0, 2]]", "[[0, 1]]", "[:, :, [0, 1]]", "[[0, 1], :, [1, 1]]", "[:, [0, 1], [1, 1]]", "[1, :, [0, 1]]", "[:, 1:, [0, 2]]",
    "[:, None, [0, 1]]",
    "[:, np.array([[0, 1], [1, 0], [2, 2]])]", "[:, np.array([True, False, True])]", "[::2, [1, 0]]", "[[0], ..., [1, 1]]",
)  # fmt: skip


@pytest.mark.parametrize("subscript", SUBSCRIPTS)
def test_subscripts_with_arrays(subscript: str) -> None:
    fn = eval(f"lambda a: (a{subscript}, a{subscript} * 2, a{subscript}.T, a{subscript}.copy())")
    for order in ORDERS[3]:
        compiled = pliant.compile(fn, strict=True)
        for i in range(2):
            a = laid_out(np.arange(36.0).reshape(3, 3, 4) + i, order)
            assert described(compiled(a)) == described(fn(a))


EMPTY = (
    "a[:0]", "a[:, :0]", "a[:0].T", "a[:0] + 1", "a[:0].copy()", "a[:0].reshape(4, 0)", "a[:0].ravel()", "a[::2, :0]", "a[:0][:, 1:]",
    "np.zeros((3, 0, 2))", "a[:0].squeeze()", "np.split(a, [0, 1])[0]", "a[:n]", "(a * 2)[:n]", "a[:n].T", "np.diagonal(a[:n])",
)  # fmt: skip


@pytest.mark.parametrize("text", EMPTY)
def test_arrays_without_elements(text: str) -> None:
    fn = eval(f"lambda a, n: ({text},)")
    compiled = pliant.compile(fn, strict=True)
    for n in (0, 2, 1, 0):
        a = np.arange(12.0).reshape(3, 4)
        assert described(compiled(a, n)) == described(fn(a, n))


MEMORY = ("a[::-1].reshape(-1)", "a[::-1].ravel()", "a[::2].ravel()", "a[::2].reshape(-1)", "a[1:].ravel()", "a.T.ravel()")


@pytest.mark.parametrize("text", MEMORY)
def test_whose_memory_it_is(text: str) -> None:
    def fn(a: Any) -> Any:
        b = view(a)
        a[0] = 7.0
        return b

    view = eval(f"lambda a: {text}")
    compiled = pliant.compile(fn, strict=True)
    for _ in range(2):
        a, b = np.arange(4.0), np.arange(4.0)
        wanted, got = fn(a), compiled(b)
        assert described(wanted) == described(got)
        assert np.shares_memory(wanted, a) == np.shares_memory(got, b)


SHAPES = ("s.squeeze()", "np.squeeze(s)", "s.reshape(())", "s.transpose()", "np.transpose(s)", "s.T", "s.ravel()", "s.reshape(-1)")


@pytest.mark.parametrize("text", SHAPES)
def test_shapes_of_scalars(text: str) -> None:
    fn = eval(f"lambda s: {text}")
    of_sum = eval(f"lambda a: (lambda s: {text})(a.sum())")
    for program, make in ((of_sum, lambda i: np.ones(3) * i), (fn, np.float32), (fn, lambda i: np.array(float(i)))):
        compiled = pliant.compile(program, strict=True)
        for i in (1, 2, 3):
            wanted, got = program(make(i)), compiled(make(i))
            assert (type(wanted), wanted.dtype, wanted.shape, wanted.tolist()) == (type(got), got.dtype, got.shape, got.tolist())


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "uint16", "uint32", "int64", "uint64", "float16", "float64"])
@pytest.mark.parametrize("to", [None, torch.bool, torch.uint8, torch.int64, torch.uint64, torch.float32], ids=str)
@pytest.mark.parametrize("maker", [torch.tensor, torch.as_tensor, torch.asarray], ids=lambda f: f.__name__)
def test_tensors_of_scalars(maker: Callable, to: Any, dtype: str) -> None:
    def told(fn: Callable, *args: Any) -> Any:
        try:
            r = fn(*args)
        except Exception as e:
            return type(e), str(e)
        return r.dtype, r.tolist()

    for fn in (lambda a: maker(a[0], dtype=to), lambda a: maker([a[0], a[1]], dtype=to)):
        compiled = pliant.compile(fn, strict=True)
        for values in ([0, 1], [1, 1], [3, 100]):
            a = np.array(values).astype(dtype)
            assert told(compiled, a) == told(fn, a)


def test_a_kronecker_product_is_no_view():
    fn = compiled(lambda a, b: torch.kron(a, b))
    for n in (2, 3, 4):
        a, b = torch.rand(n, 2, requires_grad=True), torch.rand(3)
        got, want = fn(a, b), torch.kron(a, b)
        assert torch.equal(got, want) and got.stride() == want.stride() and got._is_view() == want._is_view()


STRIDED = {
    "angle": lambda x: torch.complex(x, x).angle(),
    "power": lambda x: 2 ** torch.complex(x, x),
    "roll": lambda x: x.roll(1, -1),
    "roll twice": lambda x: x.roll((1, 2), (0, 1)),
}


@pytest.mark.parametrize("name", STRIDED)
def test_strides_are_known_while_capturing(name):
    fn = STRIDED[name]
    stride = compiled(lambda x: fn(x).stride())
    for n in (2, 3, 5):
        x = torch.randn(2, 4, n, 3)
        for y in (x, x.contiguous(memory_format=torch.channels_last), x.permute(3, 2, 1, 0)):
            assert stride(y) == fn(y).stride()


def test_parts_of_a_tensor_with_a_negative_bit_share_its_memory():
    def fn(x):
        a, _ = x.split(2)
        a.mul_(3)
        x.unbind(0)[3].add_(1)
        x.chunk(2)[1].sub_(1)
        return x + 1

    for backend in ("aten", "native"):
        for make in (torch.Tensor.clone, torch._neg_view):
            x, y = make(torch.arange(4.0)), make(torch.arange(4.0))
            assert torch.equal(pliant.compile(fn, backend=backend, background=False)(x), fn(y)) and torch.equal(x, y)


def test_an_index_into_nothing():
    fn = lambda x, i: x[..., i]  # noqa: E731
    check(fn, *[(torch.ones(n, m, k), torch.tensor([0, -1])) for n, m, k in ((3, 4, 5), (3, 0, 0), (0, 3, 4), (3, 0, 2))], lines=False)


SIZES_OF_ONE = {
    "sum": (lambda x: x[:, :1] + x.flip(0), (2, 5, 3)),
    "part": (lambda x: x.to(torch.int32)[:, x.size(1) - 1 :] + x, (2, 5, 3)),
    "unfold": (lambda x: torch.where(x.unfold(1, x.size(1), 1) > 0, x, x.unfold(1, x.size(1), 1)) + 1, (2, 2)),
    "index": (lambda x: torch.tensor_split(x, 2)[0][:, [0, -1]], (2, 5, 3)),
    "index from one": (lambda x: x[:, torch.zeros(1, 2, dtype=torch.int64)], (1, 5, 3)),
    "outer": (lambda x: x.t()[:, :, None] * x.t()[:, None], (3, 2)),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", SIZES_OF_ONE)
def test_strides_where_a_size_happens_to_be_one(name, dynamic):
    fn, sizes = SIZES_OF_ONE[name]
    stride = pliant.compile(lambda x: fn(x).stride(), backend="aten", dynamic=dynamic, strict=True)
    for d in (None, *range(len(sizes))):
        for n in (1, 2, 4, 1) if d is not None else (1,):
            shape = [n if i == d else s for i, s in enumerate(sizes)]
            for x in (torch.randn(shape), torch.randn(shape[::-1]).permute(*range(len(shape))[::-1])):
                assert stride(x) == fn(x).stride()


JOINT = {
    "heaviside": torch.heaviside,
    "xlog1py": torch.special.xlog1py,
    "xlogy": torch.xlogy,
    "ldexp": torch.ldexp,
    "ldexp by integers": lambda x, y: torch.ldexp(x, y.int()),
    "ldexp of integers": lambda x, y: torch.ldexp(x.int(), y.int()),
    "ldexp of halves": lambda x, y: torch.ldexp(x.half(), y.long()),
    "copysign": torch.copysign,
}
PAIRS = [
    (((4, 2, 1, 1), (0, 1, 2, 3)), ((4, 2, 3, 5), (2, 3, 0, 1))), (((1, 1, 3), (0, 1, 2)), ((2, 4, 3), (2, 1, 0))),
    (((3, 2, 4), (2, 0, 1)), ((2, 1), (1, 0))), (((3, 1, 4), (0, 2, 1)), ((3, 2, 4), (0, 1, 2))),
]  # fmt: skip


@pytest.mark.parametrize("bits", [False, True])
@pytest.mark.parametrize("name", JOINT)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_strides_of_two_that_lie_otherwise(name, bits):
    """`bits`: the program has met a tensor with a negative bit before, which says nothing of these."""
    fn = JOINT[name]

    def both(x, y, z):
        before = z.conj().imag if bits else z
        r = fn(x, y)
        return r.stride(), r.dtype, before

    got, z = pliant.compile(both, backend="aten", strict=True), torch.ones(3, dtype=torch.complex64)
    for (n, i), (m, j) in PAIRS:
        x, y = laid_out(torch.randn(n), i), laid_out(torch.randn(m), j)
        for a, b in ((x, y), (y, x)):
            assert got(a, b, z)[:2] == both(a, b, z)[:2]


def test_rolls_by_a_whole_turn():
    stride = compiled(lambda x, k: (x.roll(k, 1).stride(), x.roll((1, k), (3, 2)).stride()))
    for n, k in ((2, 1), (2, 2), (3, 3), (3, -1), (3, 0), (1, 1)):
        x = torch.randn(2, n, n, 4).contiguous(memory_format=torch.channels_last)
        assert stride(x, k) == (x.roll(k, 1).stride(), x.roll((1, k), (3, 2)).stride())


EMPTIES: dict[str, Callable] = {
    "columns": lambda n: torch.ones(n, 4)[:, :0], "rows": lambda n: torch.ones(4, n)[:0], "transposed": lambda n: torch.ones(n, 0).t(),
    "middle": lambda n: torch.ones(n, 4, 5)[:, :0], "steps": lambda n: torch.ones(n, 8)[:, 0:0:2],
    "permuted": lambda n: torch.ones(2, n, 4)[:, :, :0].permute(1, 2, 0), "packed": lambda n: torch.ones(n, 0),
}  # fmt: skip
INTO: dict[str, Callable] = {
    "add": lambda x: torch.add(x, 1, out=x.clone()), "sin": lambda x: torch.sin(x, out=x.clone()),
    "like": lambda x: torch.add(x, x, out=torch.empty_like(x)),
    "resized": lambda x: torch.add(x, 1, out=torch.empty(0)), "clone": lambda x: x.clone(), "in place": lambda x: x.clone().add_(1),
}  # fmt: skip


@pytest.mark.parametrize("kind", EMPTIES)
@pytest.mark.parametrize("name", INTO)
def test_strides_of_what_has_no_elements(name: str, kind: str) -> None:
    """`out=` of the right sizes is not resized, whatever its strides are."""
    fn = INTO[name]
    run = compiled(fn)
    for n in (3, 5):
        want, got = fn(EMPTIES[kind](n)), run(EMPTIES[kind](n))
        assert (want.shape, want.stride()) == (got.shape, got.stride())


@pytest.mark.parametrize("bias", [(24,), (1,), (0,), (), (3, 1), (2, 3, 1), (1, 1, 1, 1)])
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_bias_that_a_layer_does_not_fit(bias: tuple, rows: int, dtype: torch.dtype) -> None:
    """It is added in place, so it never enlarges what it is added to."""
    fn = lambda x, w, b: (F.linear(x.transpose(0, 1), w, b), F.linear(x, w, b[:rows] if b.dim() == 1 else b))  # noqa: E731
    weights = torch.linspace(-1, 1, 8 * rows).view(rows, 8), torch.ones(bias, dtype=dtype)
    check(fn, (torch.ones(2, 3, 8), *weights), (torch.ones(2, 4, 8), *weights), (torch.ones(3, 4, 8), weights[0], torch.ones(rows)))


A = torch.ops.aten
TURNED = {
    "leaky_relu_backward": lambda x, y: A.leaky_relu_backward(x, y, 0.1, False),
    "logit_backward": lambda x, y: A.logit_backward(x, y, 0.01),
    "native_dropout_backward": lambda x, y: A.native_dropout_backward(x, y > 0.5, 2.0),
    "mse_loss_backward": lambda x, y: A.mse_loss_backward(x, y, y, 0),
    "smooth_l1_loss_backward": lambda x, y: A.smooth_l1_loss_backward(x, y, y, 0, 1.0),
    "huber_loss_backward": lambda x, y: A.huber_loss_backward(x, y, y, 0, 1.0),
    "binary_cross_entropy": lambda x, y: F.binary_cross_entropy(x, y, reduction="none"),
    "binary_cross_entropy_backward": lambda x, y: A.binary_cross_entropy_backward(x, y, y, None, 0),
    "binary_cross_entropy_with_logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
}


@pytest.mark.parametrize("name", TURNED)
def test_strides_of_what_two_layouts_come_to(name):
    """Which operand decides is the kernel's business; the program asks for the strides as the graph has them."""

    def told(x, y):
        out = TURNED[name](x, y)
        return out, out.stride(), out.is_contiguous()

    a, b = torch.arange(1.0, 13.0).reshape(3, 4) / 16, (torch.arange(1.0, 13.0).reshape(4, 3) / 16).t()
    check(told, (a, b), (b, a), (b, b), (a, a))


def test_gradients_inside_are_laid_out_like_their_leaf():
    def step(x):
        F.leaky_relu(torch.tanh((x * 2).t().contiguous().t())).mul(1.0).sum().backward()

    check(step, *[(torch.arange(float(n * 3)).reshape(n, 3).requires_grad_(),) for n in (3, 2, 4)])


AT = ["None, n - 1", "None, -n", "..., None, n - 1", "None, None, n - 1, 1:", "n - 1, None", "None, n - 1, None",
      "0, None, n - 1", "1:, None, n - 1",
      "None, torch.tensor(n - 1)", "None, n - 1, torch.tensor([0])", "True, None, n - 1", "..., ..., n - 1"]  # fmt: skip


@pytest.mark.parametrize("at", AT)
def test_new_dims_in_front_of_a_number_that_changes(at):
    """Their stride is made of the dim that the number selects."""
    names: dict[str, Any] = {"torch": torch}
    exec(f"def program(x, n):\n    y = x[{at}]\n    z = x.clone()\n    z[{at}] = n\n    return y, y.stride(), z", names)
    check(names["program"], *[(torch.arange(2.0 * n * n).reshape(n, n, 2), n) for n in (3, 2, 4, 3)])


def test_as_many_strides_as_sizes():
    def program(x, n):
        for made in (lambda: x.as_strided((), (n, 1)), lambda: torch.empty_strided((n,), (1, 1)), lambda: F.one_hot(x[:0].long(), n - 2)):
            try:
                made()
            except RuntimeError as e:
                x = x + len(str(e))
        return x

    check(program, *[(torch.ones(n, 2), n) for n in (3, 2, 4)])


@pytest.mark.parametrize("write", ["t_()", "transpose_(0, 1)", "swapaxes_(0, -1)", "unsqueeze_(0)", "squeeze_(0)"])
@pytest.mark.parametrize("of", ["(x * 1).data", "x.data", "x.data[:]", "x[:].data.t()"])
def test_another_layout_in_place_of_data(of: str, write: str) -> None:
    """`.data` is made again behind the graph: what has been given another layout since would have the old one."""
    space: dict = {}
    exec(f"def fn(x):\n    v = {of}\n    v.{write}\n    return v, v.sum(), x", space)
    fn = pliant.compile(space["fn"], backend="aten")
    for shape in ((3, 4), (1, 4), (2, 0), (0, 2), (1, 0)):
        for a, b in zip(space["fn"](torch.ones(shape)), fn(torch.ones(shape)), strict=True):
            strides = [[s for s, n in zip(v.stride(), v.shape, strict=True) if n > 1] for v in (a, b)]
            assert (a.shape, strides[0], a.tolist(), a._version) == (b.shape, strides[1], b.tolist(), b._version)


VIEWED = {
    "more than there is": lambda x: x.as_strided((x.shape[0], 2), (1, 1)) * 2,
    "of what is made": lambda x: (x * 2).as_strided((9, 2), (1, 1)) * 2,
    "unread": lambda x: (x.as_strided((9,), (1,)), x + 1)[1],
    "behind a write": lambda x: (x.add_(1), torch.as_strided(x, (99,), (1,)), x)[2],
    "negative": lambda x: x.as_strided((2,), (-1,)), "all": lambda x: x.as_strided((x.shape[0] - 1, 2), (1, 1)) * 2,
    "of a part": lambda x: x[1:].as_strided((x.shape[0],), (1,), 0) + 1, "other memory": lambda x: x[:1].as_strided((2,), (1,)) * 2,
    "in place": lambda x: (v := x * 1).as_strided_((2,), (1,)) + v,
}  # fmt: skip


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("name", VIEWED)
def test_layouts_that_reach_beyond_the_memory(name: str, backend: str) -> None:
    """PyTorch raises, whoever reads the view; a kernel would read what lies there."""
    fn = pliant.compile(VIEWED[name], backend=backend, background=False)
    for n in (4, 5, 3, 0, 1, 2):
        told: list = []
        for run in (VIEWED[name], fn):
            x = torch.arange(float(n))
            try:
                told.append((run(x).tolist(), x.tolist()))
            except RuntimeError as e:
                told.append((str(e), x.tolist()))
        assert told[0] == told[1]


VIEWS_OF_ONE = {
    "rows cut out of a longer one": lambda n: torch.arange(3.0 * n).view(1, -1)[:, n : 2 * n],
    "a state that is what was left over": lambda n: torch.arange(12.0 * n).view(1, 4, -1)[..., n:],
    "one channel": lambda n: torch.arange(3.0 * n * n).view(n, 1, -1)[..., n:],
    "any stride": lambda n: torch.arange(2.0 * n).as_strided((1, n), (n * 7 % 11 + 2, 1)),
}


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("name", VIEWS_OF_ONE)
def test_strides_of_dims_of_one_may_change(name: str, backend: str) -> None:
    """A batch of one whose rows lie in longer memory (streams, caches): its stride says nothing, and is no reason for another entry."""

    def fn(x):
        made = x * 2 + 1, x[:, 1:], x.reshape(-1), x.transpose(0, 1).contiguous(), torch.empty_like(x).zero_()
        return *made, x.stride(), x.is_contiguous()

    run, before = pliant.compile(fn, backend=backend, background=False), pliant.stats()["captures"]
    for n in range(5, 12):
        x = VIEWS_OF_ONE[name](n)
        for a, b in zip(fn(x), run(x), strict=True):
            if not isinstance(a, torch.Tensor):
                assert a == b
                continue
            assert torch.equal(a, b) and a.stride() == b.stride() and a.storage_offset() == b.storage_offset()
            assert a._is_view() == b._is_view()
    assert pliant.stats()["captures"] - before <= 1


CROPPED = {
    "added": lambda a, x: a[..., : x.size(-1)] + x,
    "rows": lambda a, x: a[..., : x.size(-2), : x.size(-1)] * x,
    "after a convolution": lambda a, x: F.mse_loss(F.interpolate(a[:, :1], scale_factor=2.0)[..., : x.size(-2), : x.size(-1)], x[:, :1]),
    "of one channel": lambda a, x: torch.where(x[:, :1] > 0, a[:, :1, : x.size(-2), : x.size(-1)], x[:, :1]),
    "made alike": lambda a, x: torch.ones_like(a[..., : x.size(-1)]) * a[..., : x.size(-1)].clone()[..., : x.size(-2), :],
    "of another dtype": lambda a, x: a[..., : x.size(-2), : x.size(-1)].double() + x,
}


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("name", CROPPED)
def test_what_is_cropped_to_fit(name: str, backend: str) -> None:
    """Whether something is cut off in the end decides nothing where results are row-major anyway."""
    fn = CROPPED[name]
    run, before = pliant.compile(fn, backend=backend, background=False), pliant.stats()["captures"]
    for h, w in [(5, 5), (6, 5), (5, 6), (6, 6), (7, 8), (8, 8)]:
        a, x = torch.randn(2, 3, h if name in ("added", "made alike") else h + h % 2, w + w % 2), torch.randn(2, 3, h, w)
        expected, found = fn(a, x), run(a, x)
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()
    assert pliant.stats()["captures"] - before <= 1
