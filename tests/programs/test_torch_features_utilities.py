"""Programs by feature: PyTorch's helpers around models (`nn.utils`, `parametrize`, averaged weights, packed sequences, checkpoints,
hooks of the tape, overrides, pytrees, distributions, custom operators, autocast), once more.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, rnn
from torch.utils import _pytree as pytree
from torch.utils import checkpoint

from tests.programs.registry import cases, each, program, t

F = nn.functional
ROWS = each(3, 5, 2, tail=(4,))
GRADS = each(3, 5, 2, tail=(4,), grad=True)
WHOLE = {"breaks": 0, "captures": 1}
BACK = {"grad": True, **WHOLE}
D = torch.distributions


def filled(module):
    with torch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(t(*p.shape, seed=i))
    return module


# -- torch.nn.utils -----------------------------------------------------------------------------------------------------
@program(*GRADS, world=True, grad=True)
def utils_vectors():
    m = filled(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)))

    def f(x):
        v = nn.utils.parameters_to_vector(m.parameters())
        return m(x), v.norm(), nn.utils.get_total_norm([p.detach() for p in m.parameters()])

    return f, m


@program(*ROWS, world=True)
def utils_vector_written_back():
    m = filled(nn.Linear(4, 3))

    def f(x):
        with torch.no_grad():
            v = nn.utils.parameters_to_vector(m.parameters()) * 0.5
            nn.utils.vector_to_parameters(v, m.parameters())
        return m(x).detach()

    return f, m


@program(*ROWS, world=True)
def utils_clipping():
    m = filled(nn.Linear(4, 3))

    def f(x):
        m.zero_grad()
        m(x).square().sum().backward()
        total = nn.utils.clip_grad_norm_(m.parameters(), 0.5)
        nn.utils.clip_grad_value_(m.parameters(), 0.05)
        return total, [p.grad.clone() for p in m.parameters()]

    return f, m


@program(*ROWS, world=True)
def utils_clipping_norms():
    m = filled(nn.Linear(4, 3))

    def f(x):
        m.zero_grad()
        m(x).square().sum().backward()
        return nn.utils.clip_grad_norm_(m.parameters(), 0.5, norm_type=float("inf"), error_if_nonfinite=False), nn.utils.clip_grad_norm_(
            m.weight, 1.0, norm_type=1, foreach=False)  # fmt: skip

    return f, m


@program(*GRADS, world=True, **BACK)
def utils_weight_norm():
    return parametrizations.weight_norm(filled(nn.Linear(4, 3)), dim=0)


@program(*GRADS, world=True, grad=True)
def utils_orthogonal():
    torch.manual_seed(0)
    return parametrizations.orthogonal(filled(nn.Linear(4, 4)), orthogonal_map="cayley")


@program(*ROWS, world=True)
def utils_spectral_norm():
    torch.manual_seed(0)
    return parametrizations.spectral_norm(filled(nn.Linear(4, 3)), n_power_iterations=2)


@program(*ROWS, world=True)
def utils_old_norms():
    torch.manual_seed(0)
    return nn.Sequential(nn.utils.spectral_norm(filled(nn.Linear(4, 3))), nn.utils.weight_norm(filled(nn.Linear(3, 2))))


class Doubled(nn.Module):
    def forward(self, w):
        return w * 2

    def right_inverse(self, w):
        return w / 2


class Halves(nn.Module):
    def forward(self, a, b):
        return torch.cat([a, b])

    def right_inverse(self, w):
        return w[:1], w[1:]


@program(*GRADS, world=True, grad=True)
def parametrized_twice():
    m = filled(nn.Linear(4, 3))
    parametrize.register_parametrization(m, "weight", Doubled())
    parametrize.register_parametrization(m, "weight", Doubled())
    return m


@program(*GRADS, world=True, grad=True)
def parametrized_of_parts():
    m = filled(nn.Linear(4, 3))
    parametrize.register_parametrization(m, "weight", Halves())
    return lambda x: (m(x), parametrize.is_parametrized(m), parametrize.is_parametrized(m, "bias"), m.weight.shape), m


@program(*GRADS, world=True, grad=True)
def parametrized_and_cached():
    m = filled(nn.Linear(4, 4))
    parametrize.register_parametrization(m, "weight", Doubled())

    def f(x):
        with parametrize.cached():
            return m(m(x)), m.weight is m.weight

    return f, m


@program(*ROWS, world=True)
def parametrized_and_assigned():
    m = filled(nn.Linear(4, 4))
    parametrize.register_parametrization(m, "weight", Doubled())

    def f(x):
        with torch.no_grad():
            m.weight = m.weight * 0.5
        return m(x).detach()

    return f, m


@program(*GRADS, world=True, grad=True)
def utils_pruned():
    from torch.nn.utils import prune

    m = filled(nn.Linear(4, 3))
    prune.l1_unstructured(m, "weight", amount=0.5)
    return m


@program(*GRADS, world=True, **BACK)
def utils_skip_init():
    m = filled(nn.utils.skip_init(nn.Linear, 4, 3))
    return nn.utils.fusion.fuse_linear_bn_eval(m.eval(), nn.BatchNorm1d(3).eval())


@program(*each(3, 5, 2, tail=(2, 6, 6)), world=True, breaks=0)
def utils_memory_format():
    m = filled(nn.Conv2d(2, 3, 3))
    return nn.utils.convert_conv2d_weight_memory_format(m, torch.channels_last)


@program(*ROWS, world=True, breaks=0)
def utils_named_members():
    m = filled(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    return lambda x: (
        m(x),
        [n for n, _ in m.named_parameters()],
        [n for n, _ in m.named_modules()],
        sum(p.numel() for p in m.parameters()),
    ), m


@program(*ROWS, world=True, breaks=0)
def utils_stateless():
    m = filled(nn.Linear(4, 3))
    other = {"weight": t(3, 4, seed=8)}

    def f(x):
        return (
            torch.func.functional_call(m, other, (x,)),
            torch.func.functional_call(m, (other, {"bias": x[0, :3]}), (x,), strict=True),
            m(x),
        )

    return f, m


# -- packed sequences ---------------------------------------------------------------------------------------------------
LENGTHS = [([t(n, 3, seed=i) for i, n in enumerate(ns)],) for ns in ((4, 2, 1), (3, 3, 2), (6, 5, 1))]


@program(*LENGTHS)
def packed_and_padded(rows):
    p = rnn.pack_sequence(rows)
    padded, lengths = rnn.pad_packed_sequence(p, batch_first=True, padding_value=-1.0)
    return p.data, p.batch_sizes, padded, lengths, rnn.unpack_sequence(p)


@program(*LENGTHS)
def packed_of_padded(rows):
    padded = rnn.pad_sequence(rows, batch_first=True, padding_value=0.5)
    lengths = torch.tensor([r.shape[0] for r in rows])
    p = rnn.pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
    return padded, p.data * 2, p.batch_sizes, p.sorted_indices, p.unsorted_indices


@program(*LENGTHS, breaks=0)
def padded_both_ways(rows):
    return rnn.pad_sequence(rows), rnn.pad_sequence(rows[::-1], batch_first=True, padding_side="left"), rnn.unpad_sequence(
        rnn.pad_sequence(rows), torch.tensor([r.shape[0] for r in rows]))  # fmt: skip


@program(*LENGTHS, world=True)
def packed_through_layers():
    m = filled(nn.GRU(3, 4, batch_first=True))

    def f(rows):
        out, h = m(rnn.pack_sequence(rows))
        return rnn.pad_packed_sequence(out)[0].detach(), h.detach(), type(out).__name__

    return f, m


@program(*[(rnn.pack_sequence(rows),) for (rows,) in LENGTHS])
def packed_argument(p):
    return p.data + 1, p.batch_sizes, rnn.pad_packed_sequence(p)[0], p.is_cuda


@program(*LENGTHS)
def packed_moved(rows):
    p = rnn.pack_sequence(rows).to(torch.float64)
    return p.data, p.double().data, rnn.PackedSequence(p.data * 2, p.batch_sizes)


# -- averaged weights, schedules ----------------------------------------------------------------------------------------
@program(*ROWS, world=True)
def averaged_weights():
    m = filled(nn.Linear(4, 3))
    averaged = torch.optim.swa_utils.AveragedModel(m)

    def f(x):
        with torch.no_grad():
            m.weight.add_(0.25)
        averaged.update_parameters(m)
        return averaged(x).detach(), averaged.n_averaged.clone()

    return f, (m, averaged)


@program(*ROWS, world=True)
def averaged_exponentially():
    m = filled(nn.Linear(4, 3))
    averaged = torch.optim.swa_utils.AveragedModel(m, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True)

    def f(x):
        with torch.no_grad():
            m.weight.mul_(0.5)
        averaged.update_parameters(m)
        return averaged(x).detach()

    return f, (m, averaged)


@program(*ROWS, world=True)
def averaged_by_hand():
    m = filled(nn.Linear(4, 3))
    kept = [p.detach().clone() for p in m.parameters()]

    def f(x):
        with torch.no_grad():
            torch._foreach_lerp_(kept, list(m.parameters()), 0.25)
            for k, p in zip(kept, m.parameters(), strict=True):
                k.lerp_(p, 0.5)
        return m(x).detach(), kept[0].sum()

    return f, (m, kept)


@program(*ROWS, world=True)
def schedule_inside():
    m = filled(nn.Linear(4, 3))
    opt = torch.optim.SGD(m.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.5)

    def f(x):
        opt.zero_grad()
        m(x).square().mean().backward()
        opt.step()
        schedule.step()
        return opt.param_groups[0]["lr"]

    return f, lambda: [p.detach().clone() for p in m.parameters()]


# -- checkpoints --------------------------------------------------------------------------------------------------------
@program(*GRADS, world=True, **BACK)
def checkpoint_of_a_module_with_keywords():
    m = filled(nn.Linear(4, 4))
    body = lambda x, *, scale, shift=None: m(x).sin() * scale + (0 if shift is None else shift)  # noqa: E731
    return lambda x: checkpoint.checkpoint(body, x, scale=2.0, shift=x * 0.5, use_reentrant=False), m


@program(*GRADS, world=True, **BACK)
def checkpoint_of_a_sequence():
    m = nn.Sequential(*[filled(nn.Linear(4, 4)) for _ in range(4)])
    return lambda x: checkpoint.checkpoint_sequential(m, 2, x, use_reentrant=False), m


@program(*GRADS, grad=True)
def checkpoint_that_stops_early(x):
    with checkpoint.set_checkpoint_early_stop(False):
        return checkpoint.checkpoint(lambda v: (v.sin() * v).cos(), x, use_reentrant=False)


@program(*GRADS, grad=True)
def checkpoint_selective(x):
    keep = [torch.ops.aten.sin.default]
    contexts = functools.partial(checkpoint.create_selective_checkpoint_contexts, keep)
    return checkpoint.checkpoint(lambda v: (v.sin() * v).cos(), x, use_reentrant=False, context_fn=contexts)


@program(*GRADS, grad=True)
def checkpoint_old_form(x):
    return checkpoint.checkpoint(lambda v, w: (v.sin() * w).cos(), x, x * 2, use_reentrant=True)


@program(*GRADS, **BACK)
def checkpoint_of_many_results(x):
    a, (b, c) = checkpoint.checkpoint(lambda v: (v * 2, {"b": v.sin(), "c": v.shape[0]}.values()), x, use_reentrant=False)
    return a + b, c


# -- the tape -----------------------------------------------------------------------------------------------------------
@program(*GRADS, grad=True)
def tape_nodes(x):
    y = x.sin()
    z = (y * y).sum()
    return z, z.grad_fn.name(), type(y.grad_fn).__name__, len(z.grad_fn.next_functions)


@program(*GRADS, grad=True)
def tape_edge(x):
    y = x.sin()
    edge = torch.autograd.graph.get_gradient_edge(y)
    return torch.autograd.grad((y * 2).sum(), edge)[0]


@program(*GRADS, grad=True)
def tape_saved_on_cpu(x):
    with torch.autograd.graph.save_on_cpu(pin_memory=False):
        return x.exp() * x


@program(*GRADS, grad=True)
def tape_saving_disabled(x):
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        return x.exp() * 2


@program(*GRADS, grad=True)
def tape_of_many_hooks(x):
    y = x * 3
    y.register_hook(lambda g: g * 2)
    y.register_hook(lambda g: g + 1)
    handle = y.register_hook(lambda g: g * 100)
    handle.remove()
    return y.sin()


@program(*GRADS, grad=True)
def tape_multi_hook(x):
    a, b = x * 2, x * 3
    seen = []
    torch.autograd.graph.register_multi_grad_hook((a, b), lambda gs: seen.append(len(gs)))
    return a.sin() + b


@program(*GRADS, **BACK)
def tape_gradients_that_are_unused(x):
    y = x * 2
    unused = torch.zeros_like(x, requires_grad=True)
    g, u = torch.autograd.grad(y.sum(), (x, unused), allow_unused=True, create_graph=True)
    z, m = torch.autograd.grad(x.sin().sum(), (x, unused), materialize_grads=True, create_graph=True)
    return g * x, u, z * x, m.detach()


@program(*GRADS, **BACK)
def tape_switches(x):
    with torch.set_grad_enabled(False):
        a = x * 2
    with torch.no_grad(), torch.enable_grad():
        b = x * 3
    with torch.inference_mode(False):
        c = x * 4
    return a.requires_grad, b, c, a


@torch.no_grad()
def without(x):
    return x * 2


@program(*GRADS, **BACK)
def tape_decorated(x):
    @torch.enable_grad()
    def inner(v):
        return v * v

    with torch.no_grad():
        y = inner(x)
    return without(x), y, y.requires_grad


# -- overrides, pytrees -------------------------------------------------------------------------------------------------
@program(*ROWS, **WHOLE)
def overrides_asked(x):
    o = torch.overrides
    return (
        o.has_torch_function((x,)),
        o.is_tensor_like(x),
        o.is_tensor_method_or_property(torch.Tensor.add),
        o.resolve_name(torch.add),
        x + 1,
    )


class Counting(torch.overrides.TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(torch.overrides.resolve_name(func) or func.__name__)
        return func(*args, **(kwargs or {}))


@program(*ROWS, breaks=0)
def overrides_mode(x):
    with Counting() as m:
        y = torch.cat([x.sin(), x + 1]).sum(0)
    return y, m.names


class Like:
    def __init__(self, data):
        self.data = data

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        args = pytree.tree_map(lambda a: a.data if isinstance(a, Like) else a, args)
        return Like(func(*args, **(kwargs or {})))


@program(*ROWS, breaks=0)
def overrides_of_what_is_no_tensor(x):
    return torch.add(Like(x), 2).data, torch.stack([Like(x), Like(x * 2)]).data, torch.overrides.is_tensor_like(Like(x))


@dataclasses.dataclass
class Pair:
    a: torch.Tensor
    b: object


pytree.register_dataclass(Pair)
Point = collections.namedtuple("Point", "x y")


@program(*ROWS, breaks=0)
def trees(x):
    tree = {"a": [x, x * 2], "b": (Point(x.sum(), 3), None), "c": collections.OrderedDict(z=x[0])}
    leaves, spec = pytree.tree_flatten(tree)
    again = pytree.tree_unflatten([v * 2 if torch.is_tensor(v) else v for v in leaves], spec)
    return again, spec.num_leaves, pytree.tree_all(torch.is_tensor, [x, x]), pytree.tree_map_only(int, lambda n: n + 1, tree)


@program(*ROWS, breaks=0)
def trees_of_dataclasses(x):
    p = pytree.tree_map(lambda v: v * 2, Pair(x, Pair(x + 1, 3)))
    return p.a, p.b.a, p.b.b, pytree.tree_structure(p) == pytree.tree_structure(Pair(1, Pair(2, 3)))


@program(*ROWS, breaks=0)
def trees_with_paths(x):
    tree = {"a": [x, {"b": x * 2}], "c": Point(1, x)}
    found = pytree.tree_map_with_path(lambda path, v: (pytree.keystr(path), v), tree)
    paths, _ = pytree.tree_flatten_with_path(tree)
    return found, [pytree.keystr(p) for p, _ in paths], pytree.tree_leaves(tree, is_leaf=lambda v: isinstance(v, Point))


@program(*ROWS, breaks=0)
def trees_broadcast(x):
    return pytree.tree_map(lambda a, b: a * b, {"k": x, "l": [x, 2]}, {"k": 2, "l": [3, x]}), pytree.tree_any(
        lambda v: v is None, (1, None)
    )


# -- distributions ------------------------------------------------------------------------------------------------------
@program(*GRADS, grad=True)
def distributions_of_logits(x):
    c = D.Categorical(logits=x)
    m = D.Multinomial(4, logits=x)
    return (
        c.log_prob(torch.zeros(x.shape[0], dtype=torch.int64)),
        c.entropy(),
        m.log_prob(torch.ones_like(x)),
        D.Bernoulli(logits=x).entropy(),
    )


@program(*GRADS, grad=True)
def distributions_reparametrized(x):
    return (
        D.Normal(x, 1.0).rsample((2,)),
        D.Gamma(x.abs() + 1, 1.0).rsample(),
        D.Beta(x.abs() + 1, 2.0).rsample(),
        D.Dirichlet(x.abs() + 1).rsample(),
    )


@program(*ROWS)
def distributions_of_mixtures(x):
    mix = D.MixtureSameFamily(D.Categorical(logits=x), D.Normal(x, x.abs() + 1))
    return mix.log_prob(x[:, 0]), mix.mean, mix.variance, mix.sample(), mix.batch_shape


@program(*ROWS)
def distributions_transformed(x):
    base = D.Normal(x, x.abs() + 1)
    d = D.TransformedDistribution(base, [D.SigmoidTransform(), D.AffineTransform(1.0, 2.0)])
    s = d.sample()
    return s, d.log_prob(s), d.cdf(s), D.transform_to(D.constraints.positive)(x), D.biject_to(D.constraints.simplex)(x)


@program(*ROWS)
def distributions_more(x):
    p = x.abs() + 1
    return D.VonMises(x, p).log_prob(x), D.Weibull(p, p).mean, D.Pareto(p, p + 2).variance, D.Kumaraswamy(p, p).log_prob(x.sigmoid()), \
        D.NegativeBinomial(p, logits=x).log_prob(p.floor()), D.RelaxedBernoulli(torch.tensor(0.5), logits=x).rsample(), \
        D.InverseGamma(p, p).log_prob(p), D.FisherSnedecor(p, p).log_prob(p)  # fmt: skip


@program(*ROWS)
def distributions_of_many(x):
    cov = torch.eye(4) * 2
    d = D.MultivariateNormal(x, cov)
    low = D.LowRankMultivariateNormal(x, torch.ones(4, 1), torch.ones(4))
    return (
        d.log_prob(x + 1),
        d.entropy(),
        low.log_prob(x),
        D.kl_divergence(d, D.MultivariateNormal(x * 0, cov)),
        d.expand((2, x.shape[0])).sample().shape,
    )


@program(*ROWS, breaks=1)
def distributions_refused(x):
    try:
        D.Normal(x, -1.0, validate_args=True)  # the default is another one once torch.compile was at work, in `torch.cond` say
    except ValueError as e:
        said = str(e).splitlines()[0]
    return said, D.Normal(x, -1.0, validate_args=False).scale, D.Normal(0.0, 1.0).log_prob(x), D.Uniform(x, x + 1).support.check(x + 0.5)


# -- custom operators ---------------------------------------------------------------------------------------------------
@torch.library.custom_op("pliant_utilities::scaled", mutates_args=())
def scaled(x: torch.Tensor, by: float, shift: int | None = None) -> torch.Tensor:
    return x * by + (shift or 0)


scaled.register_fake(lambda x, by, shift=None: torch.empty_like(x))
scaled.register_autograd(lambda ctx, g: (g * ctx.by, None, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]))
scaled.register_vmap(lambda info, dims, x, by, shift=None: (scaled(x, by, shift), dims[0]))


@torch.library.custom_op("pliant_utilities::grow_", mutates_args=("x",))
def grow_(x: torch.Tensor, by: torch.Tensor) -> None:
    x.add_(by)


@torch.library.custom_op("pliant_utilities::parted", mutates_args=())
def parted(xs: list[torch.Tensor], dims: list[int]) -> list[torch.Tensor]:
    return [x.sum(dims) for x in xs]


parted.register_fake(lambda xs, dims: [x.new_empty(x.sum(dims).shape) for x in xs])


@torch.library.custom_op("pliant_utilities::chosen", mutates_args=())
def chosen(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


@chosen.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@program(*GRADS, **BACK)
def custom_scaled(x):
    return scaled(x, 2.0), scaled(x, 0.5, 3), torch.vmap(lambda v: scaled(v, 3.0))(x), torch.ops.pliant_utilities.scaled(x, 1.5)


@program(*ROWS, **WHOLE)
def custom_writes(x):
    y = x * 2
    z = y[1:]
    grow_(y, x)
    grow_(z, x[1:])
    return y, z.sum()


@program(*ROWS, **WHOLE)
def custom_lists(x):
    a, b = parted([x, x * 2], [0])
    return a + b, len(parted([x], [1]))


@program(*ROWS, breaks=0)
def custom_sizes_of_data(x):
    y = chosen(x)
    return y * 2, y.shape[0] + 1


@torch.library.triton_op("pliant_utilities::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    return x / 2


@program(*ROWS, **WHOLE)
def custom_triton_op_of_torch(x):
    return halved(x) + 1


# -- autocast -----------------------------------------------------------------------------------------------------------
@program(*GRADS, world=True, grad=True)
def autocast_nested():
    m = filled(nn.Linear(4, 4))

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = m(x)
            with torch.autocast("cpu", enabled=False):
                b = m(x)
            c = a @ b.T.to(a.dtype)
        return a, b, c, torch.is_autocast_enabled("cpu"), torch.amp.is_autocast_available("cpu")

    return f, m


@torch.autocast("cpu", dtype=torch.bfloat16)
def cast(x):
    return x @ x.T, torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()


@program(*ROWS, **WHOLE)
def autocast_decorated(x):
    return cast(x), x @ x.T


@program(*ROWS, world=True)
def scaler_of_gradients():
    m = filled(nn.Linear(4, 3))
    opt = torch.optim.SGD(m.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def f(x):
        opt.zero_grad()
        scaler.scale(m(x).square().mean()).backward()
        scaler.unscale_(opt)
        scaler.step(opt)
        scaler.update()
        return scaler.get_scale()

    return f, lambda: [p.detach().clone() for p in m.parameters()]


# -- attention, func ----------------------------------------------------------------------------------------------------
Q = [(t(2, 2, n, 4, seed=1, grad=True), t(2, 2, n + 1, 4, seed=2, grad=True)) for n in (3, 5, 2)]


@program(*Q, **BACK)
def attention_forms(q, k):
    mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    a = F.scaled_dot_product_attention(q, k, k, attn_mask=mask)
    b = F.scaled_dot_product_attention(q, k, k, scale=0.25)
    with nn.attention.sdpa_kernel([nn.attention.SDPBackend.MATH, nn.attention.SDPBackend.FLASH_ATTENTION], set_priority=False):
        c = F.scaled_dot_product_attention(q, k, k, is_causal=True)
    return a + b, c


@program(*Q)
def attention_with_bias(q, k):
    from torch.nn.attention import bias

    b = bias.causal_lower_right(q.shape[-2], k.shape[-2])
    return F.scaled_dot_product_attention(q, k, k, attn_mask=b)


@program(*Q, grad=True)
def attention_grouped(q, k):
    return F.scaled_dot_product_attention(q.repeat(1, 2, 1, 1), k, k, enable_gqa=True)


@program(*GRADS, **BACK)
def func_composed(x):
    f = lambda v: (v.sin() * v).sum()  # noqa: E731
    g = torch.func.vmap(torch.func.grad(f))(x)
    value, pull = torch.func.vjp(lambda v: v.sin(), x)
    return g, pull(value)[0], torch.func.jvp(f, (x,), (x.cos(),)), torch.func.vmap(torch.func.jacrev(lambda v: v * v))(x)


@program(*ROWS, world=True)
def func_per_sample():
    m = filled(nn.Linear(4, 3))

    def f(x):
        params = dict(m.named_parameters())
        loss = lambda p, row: torch.func.functional_call(m, p, (row,)).square().sum()  # noqa: E731
        per = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(params, x)
        return {k: v.detach() for k, v in per.items()}

    return f, m


@program(*ROWS, world=True, **WHOLE)
def func_ensemble():
    ms = [filled(nn.Linear(4, 3)) for _ in range(2)]
    params, buffers = torch.func.stack_module_state(ms)
    base = copy.deepcopy(ms[0]).to("meta")
    run = lambda p, b, x: torch.func.functional_call(base, (p, b), (x,))  # noqa: E731
    return lambda x: torch.vmap(run, in_dims=(0, 0, None))(params, buffers, x).detach(), params


@program(*ROWS, breaks=0)
def func_of_trees(x):
    g, aux = torch.func.grad(lambda p: ((p["a"] * p["b"][0]).sum(), p["a"].shape[0]), has_aux=True)({"a": x, "b": [x * 2]})
    return g, aux, torch.func.debug_unwrap(x) is x


@program(*ROWS, breaks=0)
def func_of_in_dims(x):
    return torch.vmap(lambda a, b: a * b, in_dims=(1, None), out_dims=1)(x, x[:, 0]), torch.vmap(
        lambda d: d["k"].sum(), in_dims=({"k": 0},)
    )({"k": x})


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()
