"""What programs say to PyTorch beside plain operators: subclasses and modes, settings, sparse products, FFT, losses, einops.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from tests.programs.registry import cases, each, program, t

ROWS = each(3, 5, 2, tail=(4,))
TWO = each(3, 5, 2, tail=(4,), n=2)
GRADS = each(3, 5, 2, tail=(4,), grad=True)
CUBES = each(2, 3, 5, tail=(4, 6))
WHOLE = {"breaks": 0, "captures": 1}
BACK = {"grad": True, **WHOLE}
LEFT: dict = {}  # the graph breaks: subclasses, weak references, sparse tensors, checks
W = t(4, 4, seed=3)
try:
    import einops
except ImportError:
    einops = None


def needs_einops(fn):
    return fn if einops is None else program(*CUBES, **WHOLE)(fn)


# -- subclasses and modes ---------------------------------------------------------------------------------------------
class Logged(torch.Tensor):
    calls: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        return out

    def twice(self):
        return self * 2


class Scaled(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.add:
            return torch.sub(*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs or {})


class Doubled(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 2 if func is torch.sin else out


@program(*ROWS, **LEFT)
def as_subclass(x):
    y = x.as_subclass(Logged)
    z = y.twice() + 1
    return z.as_subclass(torch.Tensor)


@program(*ROWS, **LEFT)
def subclass_result(x):
    return (x.as_subclass(Logged) + 1).sin()


@program(*ROWS, world=True, **LEFT)
def subclass_outside():
    held = t(4, seed=2).as_subclass(Logged)
    return lambda x: (x * held + held.twice()).as_subclass(torch.Tensor).sum(0)


@program(*ROWS, **LEFT)
def subclass_overrides(x):
    return torch.add(x.as_subclass(Scaled), 1).as_subclass(torch.Tensor)


@program(*ROWS, **WHOLE)
def mode_inside(x):
    with Doubled():
        return torch.sin(x) + torch.cos(x)


@program(*ROWS, **LEFT)
def disabled_functions(x):
    with torch._C.DisableTorchFunctionSubclass():
        return x.as_subclass(torch.Tensor) * 2


# -- making tensors ---------------------------------------------------------------------------------------------------
@program(*ROWS, **WHOLE)
def parameter_made(x):
    p = nn.Parameter(x.clone())
    return (p * 2).detach(), p.requires_grad, isinstance(p, nn.Parameter)


@program(*ROWS, **WHOLE)
def tensor_constructor(x):
    return torch.Tensor([1.0, 2.0]) + x[0, :2], torch.Tensor(2, 3).shape, torch.Tensor([3.0]) * x


@program(*ROWS, **WHOLE)
def data_set(x):
    y = x.clone()
    y.data = y.data * 2
    return y + 1


@program(*ROWS, **WHOLE)
def data_written(x):
    y = x.clone()
    y.data.mul_(3)
    return y


@program(*ROWS, **WHOLE)
def set_inside(x):
    y = torch.empty(0)
    y.set_(x.clone())
    return y * 2


@program(*ROWS, **WHOLE)
def strided(x):
    return torch.as_strided(x, (2, 2), (1, 2)), x.clone().as_strided_((2, 2), (1, 2))


@program(*ROWS, **LEFT)
def weak_reference(x):
    y = x * 2
    r = weakref.ref(y)
    return r() is y, r() + 1


@program(*ROWS, **WHOLE)
def default_dtype(x):
    torch.set_default_dtype(torch.float64)
    y = torch.ones(3)
    torch.set_default_dtype(torch.float32)
    return y, torch.ones(2), x * 2


@program(*ROWS, **WHOLE)
def default_device(x):
    with torch.device("cpu"):
        y = torch.ones(4)
    torch.set_default_device("cpu")
    z = torch.zeros(4)
    torch.set_default_device(None)
    return x + y + z


@program(*ROWS, **WHOLE)
def inference(x):
    with torch.inference_mode():
        return x * 2 + 1


@program(*GRADS, **WHOLE)
def no_grad(x):
    with torch.no_grad():
        y = x * 2
    return y.requires_grad, (y * x).detach(), torch.is_grad_enabled()


@program(*GRADS, **BACK)
def requires_grad_inside(x):
    y = x.detach().clone()
    y.requires_grad_(True)
    return y * x


@program(*ROWS, **WHOLE)
def attributes(x):
    return x.mT, x.real, x.itemsize, x.nbytes, x.ndim, x.layout, x.device.type, x.is_cuda, x.T.is_contiguous(), x.H


# -- operators of many kinds ------------------------------------------------------------------------------------------
@program(*GRADS, grad=True, breaks=0)  # empty or not is another graph
def masked(x):
    m = x > 0
    return x.masked_fill(m, 2.0), x.masked_scatter(m, x.sin()), x.masked_select(m).sum()


@program(*ROWS, **WHOLE)
def masked_module(x):
    return torch.masked.mean(x, 1, mask=x > 0), torch.masked.softmax(x, 1, mask=x > -1), torch.masked.sum(x, mask=x > 0)


@program(*GRADS, **BACK)
def masked_gradients(x):
    return torch.masked.mean(x, 1, mask=x > 0), torch.masked.log_softmax(x, 1, mask=x > -1), torch.masked.norm(x, 2, 1, mask=x > -2)


@program(*ROWS, **WHOLE)
def masked_more(x):
    m, of = x > -2, torch.masked
    return of.amin(x, 0, mask=m), of.var(x, 1, mask=m), of.argmax(x, 1, mask=m), of.cumsum(x, 1, mask=m), of.prod(x, 1, mask=m)


@program(*ROWS, **WHOLE)
def nested_of_list(x):
    n = torch.nested.nested_tensor([x, x[:1] * 2, x[1:]], layout=torch.jagged)
    return n.softmax(-1).to_padded_tensor(0.0), n.sum(1), n.values(), n.offsets(), n.size(0), n.requires_grad


@program(*GRADS, **BACK)
def nested_of_list_with_gradients(x):
    n = torch.nested.as_nested_tensor([x, x[:1].sin()], layout=torch.jagged)
    return (n * 2).to_padded_tensor(0.0), n.sin().values()


@program(*GRADS, **BACK)
def nested_across(x):
    n = torch.nested.as_nested_tensor([x.T, x.T[:, :1]], layout=torch.jagged)
    return n.values() * 2, n.offsets()


@program(*ROWS, breaks=(1, 2))
def nested_strided(x):
    return torch.nested.nested_tensor([x, x[:1]]).to_padded_tensor(0.0)


@program(*ROWS, breaks=(1, 2))
def nested_refused(x):
    try:
        return torch.nested.nested_tensor([x, x.flatten()], layout=torch.jagged)
    except RuntimeError as e:
        return str(e)


@program(*ROWS, **LEFT)
def sparse_product(x):
    a = torch.eye(4).to_sparse()
    return torch.sparse.mm(a, x.T)


SPARSE = t(4, 4, seed=1).relu().to_sparse()
CSR = t(4, 4, seed=1).relu().to_sparse_csr()


@program(*ROWS, **LEFT)
def sparse_outside(x):
    return SPARSE @ x.T, torch.sparse.mm(CSR, x.T)


@program(*GRADS, **BACK)
def fft(x):
    f = torch.fft.rfft(x, dim=1)
    return f.abs(), torch.fft.irfft(f * 2, n=4, dim=1), torch.fft.fft2(x).real, torch.fft.fftshift(x), torch.fft.fftfreq(4)


@program(*ROWS, **WHOLE)
def stft(x):
    s = torch.stft(x.flatten().repeat(8), 8, 4, window=torch.hann_window(8), return_complex=True)
    return s.abs()


@program(*each(6, 9, 7, tail=(2, 5), grad=True), **BACK)
def ctc(x):
    p = x.log_softmax(2)
    return nn.functional.ctc_loss(p, torch.tensor([[1, 2], [3, 1]]), torch.tensor([6, 6]), torch.tensor([2, 1]))


@program(*ROWS, **WHOLE)
def multinomial(x):
    return torch.multinomial(x.softmax(1), 2), torch.bernoulli(x.sigmoid()), torch.normal(0.0, 1.0, (2, 3))


@needs_einops
def einops_rearrange(x):
    return einops.rearrange(x, "b t d -> (b t) d"), einops.rearrange(x, "b t (h d) -> b h t d", h=2), einops.rearrange(x, "b t d -> b d t")


@needs_einops
def einops_reduce(x):
    return (
        einops.reduce(x, "b t d -> b d", "mean"),
        einops.repeat(x, "b t d -> b (t k) d", k=2),
        einops.einsum(x, x, "b i d, b j d -> b i j"),
    )


@needs_einops
def einops_pack(x):
    p, shapes = einops.pack([x, x[:, 0]], "b * d")
    a, b = einops.unpack(p, shapes, "b * d")
    return p, a, b


@program(*CUBES, **WHOLE)
def einsum(x):
    return torch.einsum("bij,bkj->bik", x, x), torch.einsum("...j->...", x), torch.einsum(x, [0, 1, 2], [0, 2])


@program(*ROWS, **WHOLE)
def linear_algebra(x):
    a = x.T @ x + torch.eye(4) * 5
    return (
        torch.linalg.cholesky(a),
        torch.linalg.inv(a),
        torch.linalg.solve(a, x.T),
        torch.linalg.eigvalsh(a),
        torch.linalg.norm(x),
        torch.linalg.det(a),
    )


@program(*ROWS, **WHOLE)
def sorting(x):
    v, i = x.sort(1)
    return v, i, x.topk(2, 1), x.argsort(), x.kthvalue(2), x.median(1), x.mode(1)[0], torch.searchsorted(v, x)


@program(*ROWS, **WHOLE)
def scatters(x):
    i = torch.tensor([[0, 1, 0, 1]]).expand(x.shape[0], 4)
    return (
        x.scatter_add(1, i, x),
        x.scatter_reduce(1, i, x, "amax"),
        x.index_add(0, torch.tensor([0, 1]), x[:2]),
        x.index_put((torch.tensor([0]),), x[:1], accumulate=True),
        torch.bincount(i.flatten()),
    )


@program(*ROWS, breaks=0)
def packed(x):
    p = nn.utils.rnn.pack_padded_sequence(x[None].expand(2, -1, -1), torch.tensor([2, 1]), batch_first=True)
    y, n = nn.utils.rnn.pad_packed_sequence(p, batch_first=True)
    return y, n


@program(*ROWS, **LEFT)
def distributions(x):
    d = torch.distributions.Normal(x, 1.0)
    c = torch.distributions.Categorical(logits=x)
    return (
        d.log_prob(x + 1),
        d.rsample(),
        c.sample(),
        c.entropy(),
        torch.distributions.kl_divergence(d, torch.distributions.Normal(0.0, 1.0)),
    )


@program(*GRADS, grad=True, **LEFT)
def losses(x):
    y = torch.zeros(x.shape[0], dtype=torch.long)
    f = nn.functional
    return (
        f.cross_entropy(x, y, label_smoothing=0.1),
        f.nll_loss(x.log_softmax(1), y),
        f.kl_div(x.log_softmax(1), x.softmax(1)),
        f.smooth_l1_loss(x, x * 2),
        f.cosine_embedding_loss(x, x, y * 2 + 1),
        f.triplet_margin_loss(x, x + 1, x * 2),
        f.gaussian_nll_loss(x, x * 2, x.exp()),
        f.multilabel_margin_loss(x, torch.zeros_like(x, dtype=torch.long)),
        f.huber_loss(x, x + 3),
        f.poisson_nll_loss(x, x),
    )


@program(*GRADS, **BACK)
def embedding_bags(x):
    i = torch.tensor([0, 1, 1, 0])
    return (
        nn.functional.embedding_bag(i, x, torch.tensor([0, 2])),
        nn.functional.embedding(i, x),
        nn.functional.embedding_bag(i.view(2, 2), x, mode="max"),
    )


@program(*CUBES, **WHOLE)
def images(x):
    y = x[:, None]
    return (
        nn.functional.grid_sample(y, torch.zeros(x.shape[0], 2, 2, 2), align_corners=False),
        nn.functional.unfold(y, 2),
        nn.functional.pixel_unshuffle(y, 2),
        nn.functional.pad(y, (1, 1, 1, 1), mode="reflect"),
        nn.functional.interpolate(y, scale_factor=2),
    )


@program(*ROWS, **WHOLE)
def checks(x):
    torch._check(x.shape[0] > 1)
    n = x.nonzero().shape[0]
    torch._check(n >= 0)
    return torch.zeros(n)


@program(*ROWS, **WHOLE)
def complex_numbers(x):
    c = torch.complex(x, x.sin())
    return torch.view_as_real(c * c.conj()), c.angle(), c.abs(), torch.polar(x.abs(), x).imag


@program(*ROWS, breaks=0)
def ragged_lists(x):
    parts = torch.split(x, 1)
    return (
        nn.utils.rnn.pad_sequence(list(parts)),
        torch.block_diag(*parts[:2]),
        torch.cartesian_prod(x[0], x[1]),
        torch.meshgrid(x[0], x[1], indexing="ij"),
    )


@program(*ROWS, **WHOLE)
def foreach(x):
    a = torch._foreach_add([x, x * 2], 1.0)
    torch._foreach_mul_(a, 2.0)
    return a, torch._foreach_norm(a), nn.utils.clip_grads_with_norm_([], 1.0, x.norm())


@program(*ROWS, **WHOLE)
def quantized_numbers(x):
    return (
        torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127),
        x.to(torch.int8).float(),
        x.to(torch.bfloat16),
        x.bfloat16().view(torch.int16),
    )


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()
