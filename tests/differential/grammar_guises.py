"""What the themes `guises` and `transforms` have beside the grammar.

`guises` (differentiated): arguments that come in another form with each call. Sizes of 0 and 1, dtypes, layouts (transposed, stepped,
expanded, a window of something larger), gradients or none, and names for one memory, in part or as a whole; one more argument, `vec`,
is a tensor of any dtype.
`transforms` (differentiated): `torch.func`, `autograd.grad` and `backward` inside, an `autograd.Function`, closures that
are made anew, generators and `try` around all that.
"""

from __future__ import annotations

from typing import Any

import torch

from tests.differential.grammar import blocks, rows
from tests.differential.grammar_states import Theme
from tests.helpers import Call

DTYPES = (torch.float32, torch.int64, torch.float64, torch.bool, torch.complex64, torch.uint8, torch.bfloat16, torch.int32)


def flat(count: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Values are fixed, exact in binary, of both signs."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 6
    if dtype.is_complex:
        return torch.complex(values / 4, values.flip(0) / 2)
    if dtype is torch.bool:
        return values > 0
    return (values / 4).to(dtype) if dtype.is_floating_point else values.abs().to(dtype)


def laid(rows: int, cols: int, seed: int, how: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A matrix in one of eight layouts."""
    match how % 8:
        case 1:
            return flat(rows * cols, seed, dtype).reshape(cols, rows).t()
        case 2:
            return flat(rows * cols * 2, seed, dtype).reshape(rows, cols * 2)[:, ::2]
        case 3:
            return flat((rows + 2) * (cols + 1), seed, dtype).reshape(rows + 2, cols + 1)[1 : rows + 1, 1:]
        case 4:
            return flat(cols, seed, dtype).expand(rows, cols)
        case 5:
            return flat(rows * cols * 2, seed, dtype).reshape(rows * 2, cols)[1::2]
        case 6:
            return flat(rows * cols, seed, dtype).as_strided((rows, cols), (1, max(rows, 1)))
        case _:
            return flat(rows * cols, seed, dtype).reshape(rows, cols)


def guised(s: Any) -> Call:
    """Arguments from their sizes alone. With gradients now and then, and then without writes through other names from outside."""
    dice = s.rows * 5 + s.cols * 3 + s.n * 7 + s.items + s.flag
    grad = dice % 3 == 0
    wide = torch.float64 if dice % 5 == 4 else torch.float32
    x = laid(s.rows, s.cols, 0, dice, wide).detach()
    y = laid(s.rows, s.cols, 1, dice // 2, wide).detach()
    if s.alias == 1:
        y = x
    elif s.alias == 2 and s.rows:  # x and y overlap in part
        whole = flat((s.rows + 1) * s.cols, 3, wide).reshape(s.rows + 1, s.cols)
        x, y = whole[:-1], whole[1:]
    elif s.alias == 3:
        y = x.t().t()
    items = [laid(s.rows, s.cols, i + 2, dice + i) for i in range(s.items)]
    if s.alias == 2:
        items[0] = y
    table = {"a": laid(s.rows, s.cols, 10, dice // 3), "b": x[:1] if dice % 2 else x.view_as(x)}
    if grad:
        x, y = x.detach().clone().requires_grad_(), y.detach().requires_grad_(s.alias not in (1, 3))
        y = x if s.alias == 1 else y
        table["b"] = items[0]
    return Call((x, y, s.n, s.flag, items, table, any_kind(s, dice), s.n % 3, s.n / 4 - 0.5), {})


def any_kind(s: Any, dice: int) -> torch.Tensor:
    """Any dtype, with 0 to 3 dims."""
    dtype = DTYPES[dice % 8]
    shape = ((), (s.rows,), (s.rows, s.cols), (1, s.rows, s.cols), (s.cols, 1))[(dice // 3 + s.items) % 5]
    count = 1
    for n in shape:
        count *= n
    t = flat(count * 2, 4, dtype)[::2] if dice % 4 == 1 else flat(count, 4, dtype)
    return t.reshape(shape).conj() if dtype.is_complex and s.flag else t.reshape(shape)


GUISES = Theme(
    '''
SHELF = [torch.zeros(3), torch.arange(6.0).reshape(2, 3), torch.ones(2, 2, dtype=torch.int64)]
OUT = torch.empty(0)


def fit(t, like):
    """A tensor like the others of the program, of any tensor."""
    if t.dtype.is_complex:
        t = torch.view_as_real(t.resolve_conj()).sum(-1)
    if t.dtype is not torch.float32:
        t = t.float()
    return t if t.shape == like.shape else torch.zeros(like.shape) + t.sum()


def fact(t):
    return tuple(t.shape), str(t.dtype)[6:], t.stride() if t.numel() > 1 and 1 not in t.shape else (), t.requires_grad, t.is_leaf, t.dim()


def both(a, b):
    """One may be the other, or overlap it."""
    c = a * 2
    d = b + c
    return c, d


def own(t):
    return t.detach().clone()


def written(a, b, k):
    a, b = own(a), b.detach()
    a.view(-1)[::2].mul_(k)
    return a + b


def shares(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() if a.numel() and b.numel() else a is b


def between(i, n):
    SHELF[n % 3] = (torch.zeros(n % 4), torch.ones(n % 3, 2, dtype=torch.float64), torch.arange(4).bool())[i % 3]
''',
    ("SHELF", "OUT"),
    {
        "T": rows(r"""
fit(<G>, x)
fit(<G>, x)
fit(<G> + <G>, x)
fit(<G> * <F>, x)
fit(<G> + <I>, x)
fit(<T> + <C>.double(), x)
fit(written(<T>, <T>, <F>), x)
fit(both(<T>, <T>)[<I> % 2], x)
fit(both(<G>, <G>)[<I> % 2], x)
fit(x[1:], x)
fit(x[:1] * y, x)
fit(x[:0], x)
fit(SHELF[<I> % 3], x)
fit(torch.where(<M>, <T>, <T>), x)
fit(torch.cat([x, y]), x)
fit(torch.stack([<T>, y], <I> % 3), x)
fit(x.unsqueeze(0).expand(2, -1, -1), x)
fit(x.t().contiguous(), x)
fit(x.reshape(-1, 1), x)
fit(<T>.unsqueeze(1).squeeze(), x)
fit(<T>.permute(1, 0), x)
fit(<T>.to(<G>.dtype), x)
fit(<G>.to(<T>), x)
fit(<T>.type_as(x), x)
fit(<T>.swapaxes(0, 1).flatten(), x)
fit(torch.broadcast_tensors(x, x[:1])[1], x)
fit(<G>.reshape(-1)[:2], x)
fit(<G>.flatten().repeat(2), x)
fit(<G>.abs(), x)
fit(<G>.new_zeros(2), x)
fit(torch.zeros_like(<G>), x)
fit(torch.empty_like(x).fill_(1), x)
fit(torch.bmm(<T>.unsqueeze(0), <T>.t().unsqueeze(0)), x)
fit(x @ y.t(), x)
fit(torch.nn.functional.linear(<T>, y), x)
fit(x.chunk(2)[-1], x)
fit(x.split(1, 1)[0], x)
fit(x.tile(2, 1), x)
fit(x.narrow(0, 0, min(x.shape[0], 1)), x)
fit(torch.as_strided(own(x), (x.numel(),), (1,)), x)
fit(x.mean(1, keepdim=True), x)
fit(x.std(0), x)
fit((lambda g: g.sum(-1) if g.dim() else g)(<G>), x)
fit(<G>.any(), x)
fit(torch.outer(<A>, <A>), x)
fit(<G>.unsqueeze(-1), x)
fit(torch.index_select(x, 0, torch.arange(x.shape[0])), x)
fit(x.gather(1, torch.zeros(x.shape, dtype=torch.long)) if x.numel() else x, x)
fit(x.masked_select(<M>), x)
fit(torch.movedim(<T>, 0, 1), x)
fit(torch.tril(x), x)
fit(torch.nn.functional.pad(x, (1, 0)), x)
fit(x.nonzero(), x)
fit(torch.logical_not(<G>), x)
fit(x.T.clone(), x)
fit(x.clone(memory_format=torch.contiguous_format), x)
fit(<G>.real, x)
fit(x.sort(stable=True, dim=0).values, x)
"""),
        "G": rows(r"""
vec
<G>[None]
<G>.reshape(-1)
<G>.clone()
<G> * 2
<G> + <G>
<G>.to(torch.float64)
<G>.to(x.dtype)
<G> == <G>
<G>.long()
<G>.bool()
(lambda g: g.t() if g.dim() < 3 else g)(<G>)
<G>.unsqueeze(0)
<G>.squeeze()
SHELF[<I> % 3]
torch.tensor(<I>)
torch.tensor([<F>, 1], dtype=<G>.dtype)
x.t()
y[:1]
x[:, :1]
x.detach()
<M>
<T>.double()
torch.ones(<I> % 3, <I> % 2)
torch.empty(0, dtype=<G>.dtype)
torch.where(<G>.bool(), <G>, <G>)
(lambda g: g.cumsum(0) if g.dim() else g)(<G>)
<G:var>.view_as(<G:var>)
"""),
        "S": rows(r"""
str(fact(x))
str(fact(<G>))
str(fact(<T>))
str(fact(fit(<G>, x)))
str(<G>.dtype)
"""),
        "B": rows(r"""
x is y
x is <T:var>
shares(x, y)
shares(x, <T>)
shares(<T:var>, <G:var>)
x.is_contiguous()
<G>.is_contiguous()
<G>.is_floating_point()
<G>.is_complex()
x.requires_grad
<T:var>.requires_grad
<T:var>.is_leaf
<G>.dtype == x.dtype
x.shape == <G>.shape
x.numel() == 0
len(x) > 1
1 in x.shape
x.data_ptr() == y.data_ptr()
torch.equal(x, <T>)
"""),
        "I": rows(r"""
x.stride(0) if x.numel() > 1 and 1 not in x.shape else 0
x.storage_offset() % 9
<G>.dim()
<G>.numel()
<G>.element_size()
y.storage_offset() % 9
len(SHELF[<I> % 3])
"""),
    },
    rows(r"""
SEEN.append(fact(x))
SEEN.append(fact(<G>))
SEEN.append(x is y)
SEEN.append(shares(x, y))
SHELF[<I> % 3] = own(<G>)
SHELF[<I> % 3].add_(1) if SHELF[0].dtype is not torch.bool else None
SHELF.insert(0, SHELF.pop())
<new:G> = <G>
<new:G> = <G>.clone()
<new:G> = own(<T>).t()
<new:T> = fit(<G>, x)
""")
    + blocks(r"""
if not x.requires_grad:
    x.view_as(x)[:1].mul_(<F>)
<new:T> = y + x

if not x.requires_grad and not x._is_view():
    x += <I>
    y.mul_(<F>) if not y.requires_grad else None
<new:T> = y * x

<new:T> = x
try:
    x.t().add_(1)
    <=1> = x * 2
except RuntimeError as err:
    SEEN.append(str(err)[:60])

try:
    y[1:].copy_(x[:-1])
    SEEN.append('copied')
except RuntimeError as err:
    SEEN.append(str(err)[:40])

<new:T> = y
try:
    <=1> = fit(x.view(-1), x)
except RuntimeError as err:
    SEEN.append(str(err)[:40])
    <block>

try:
    g = own(<G>)
    g += <G>
    SEEN.append(fact(g))
except RuntimeError as err:
    SEEN.append(str(err)[:40])

<new:G> = vec
try:
    <=1> = <G> // <I>
except (RuntimeError, ZeroDivisionError) as err:
    SEEN.append(str(err)[:40])
else:
    <block>
finally:
    SEEN.append('done')

out = torch.empty(x.shape, dtype=x.dtype)
got = torch.mul(<T>.detach(), 2, out=out) if x.dtype is torch.float32 else out.zero_()
SEEN.append(got is out)
<new:T> = fit(out, x)

out = own(x).t()
torch.exp(y.detach().t(), out=out)
<new:T> = fit(out, x)

with torch.no_grad():
    torch.sub(x, 1, out=OUT.resize_(0))
    <new:T> = fit(OUT, x)

out = torch.empty(0, dtype=x.dtype)
torch.cat([x.detach(), y.detach()], out=out)
<new:T> = fit(out, x)

mine, theirs = own(x), x.detach()
mine[:1], theirs = theirs[:1] * 2, mine
theirs.sub_(<F>)
<new:T> = fit(mine, x)

g = own(<G>)
g[...] = <I> % 2
g.fill_(<I> % 2)
<new:G> = g

h = own(<T>)
h.unsqueeze_(0)
SEEN.append(fact(h))
h.squeeze_(0)
<new:T> = fit(h, x)

h = own(<T>)
h.t_()
h.resize_(x.shape[0], x.shape[1])
<new:T> = h + 0

h = own(<T>).requires_grad_(<B>)
k = (h * <T>).sum()
SEEN.append((h.is_leaf, k.requires_grad))
if k.requires_grad:
    (g,) = torch.autograd.grad(k, h)
    SEEN.append(fact(g))
    <block>
<new:T> = h + 1

match x.dtype, x.dim():
    case torch.float64, 2:
        SEEN.append('wide')
        <block>
    case _:
        <block>

match <G>.dim():
    case 0:
        SEEN.append(vec.dtype == torch.bool)
    case 1 | 2:
        SEEN.append(<G>.shape)
        <block>
    case d:
        SEEN.append(d)

def <fn:T>(t, *, like=<G>, k=<I>):
    return fit(t + k, x) + fit(like, x)
<new:T> = <=1>(<T>)
<new:T> = <=1>(y, like=x)

for a, b in ((x, y), (y, x), (x, x), (x, x[:1])):
    c = fit(a * b, x)
    SEEN.append(a is b)
    <loop>
<new:T> = c

for i, row in enumerate(x):
    if i > 2:
        break
    SEEN.append(fact(row))
    <loop>

d = {x: 1, y: 2}
SEEN.append((len(d), d[x]))
<new:T> = fit(list(d)[-1], x)
"""),
    guised,
)

TRANSFORMS = Theme(
    '''
LAYER = torch.nn.Linear(2, 2)
with torch.no_grad():
    LAYER.weight.copy_(torch.arange(4.0).reshape(2, 2) / 4)
    LAYER.bias.copy_(torch.tensor([0.5, -0.5]))
LOG = []
HOOKS = []


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, k):
        ctx.save_for_backward(t)
        ctx.k = k
        return t * k

    @staticmethod
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        return g * ctx.k + g * t * 0, None


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        return t.round()

    @staticmethod
    def backward(ctx, g):
        return g


class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.mark_non_differentiable(c := (a > b).float())
        ctx.save_for_backward(a, b)
        return a * b, c

    @staticmethod
    def backward(ctx, g, _):
        a, b = ctx.saved_tensors
        return g * b if ctx.needs_input_grad[0] else None, g * a if ctx.needs_input_grad[1] else None


def cube(t):
    return t**3


def energy(t, k=1):
    return (t.sin() * k).sum()


def scaled_by(k):
    """A closure, made anew in each call."""
    def scale(t):
        return t * k + t.sin()

    return scale


def counter():
    n = 0

    def step(t):
        nonlocal n
        n += 1
        LOG.append(n)
        return t * n

    return step


STEP = counter()


def mapped(t, k):
    return torch.func.vmap(scaled_by(k))(t) if t.shape[0] else t


def inner_grad(t, k):
    h = t.detach().requires_grad_()
    (g,) = torch.autograd.grad(energy(h, k), h)
    return g


def leaf_grad(t, k):
    h = t.detach().clone().requires_grad_()
    (energy(h, k) + (h * h).sum()).backward()
    return h.grad


def pieces(t):
    for i, row in enumerate(t):
        yield row * i
        LOG.append(i)


@contextlib.contextmanager
def lodged(name):
    LOG.append(name)
    try:
        yield len(LOG) % 7
    except ValueError as e:
        LOG.append(str(e))
    finally:
        LOG.append("-" + name)


def layer(t):
    """The first two columns, or as many as there are, through a layer."""
    flat = t.reshape(-1)
    return LAYER(flat[: flat.shape[0] // 2 * 2].reshape(-1, 2)).sum() + t


def between(i, n):
    LAYER.weight.requires_grad_(n % 3 != 0)
    LAYER.weight.grad = None
    LOG.clear()
''',
    ("LOG", "LAYER"),
    {
        "T": rows(r"""
torch.func.vmap(cube)(<T>)
torch.func.vmap(torch.mul)(<T>, <T>)
torch.func.vmap(lambda a, b: a * b.sum(), in_dims=(0, None))(<T>, <T>)
torch.func.vmap(lambda a: a.cumsum(0) + <F>, in_dims=1, out_dims=1)(<T>)
torch.func.vmap(torch.func.grad(energy))(<T>)
torch.func.vmap(torch.func.grad(lambda r: (r * r.flip(0)).sum()))(<T>)
torch.func.vmap(torch.func.vmap(scaled_by(<F>)))(<T>)
torch.func.vmap(lambda a: torch.where(a > 0, a, a.mean()))(<T>)
torch.func.vmap(lambda r: r - r.max())(<T>)
torch.func.vmap(lambda r: r.softmax(0))(<T>)
torch.func.grad(energy)(<T>)
torch.func.grad(energy)(<T>, <I>)
torch.func.grad(lambda t: (scaled_by(<F>)(t) * x).sum())(<T>)
torch.func.grad(lambda t: torch.func.grad(energy)(t).sum())(<T>)
torch.func.grad_and_value(energy)(<T>)[0]
torch.func.grad(lambda a, b: (a * b).sum(), argnums=1)(<T>, <T>)
torch.func.grad(lambda a, b: ((a * b).sum(), a), argnums=(0, 1), has_aux=True)(<T>, <T>)[0][1]
torch.func.jvp(cube, (<T>,), (<T>,))[1]
torch.func.jvp(scaled_by(<F>), (<T>,), (torch.ones_like(x),))[0]
torch.func.vjp(cube, <T>)[1](<T>)[0]
torch.func.vjp(scaled_by(<I>), <T>)[0]
torch.func.linearize(cube, <T>)[1](<T>)
torch.func.jacrev(lambda r: r.sin())(<R>).sum() + <T>
torch.func.jacfwd(lambda r: r * r.sum())(<R>).sum(0) + <T>
torch.func.hessian(lambda r: (r**3).sum())(<R>).diagonal() + <T>
torch.func.functional_call(LAYER, {'weight': LAYER.weight * <F>}, (torch.ones(1, 2),)).sum() + <T>
torch.func.functionalize(lambda t: (t * 1).add_(1))(<T>)
torch.autograd.functional.vjp(cube, <T>, <T>)[1]
mapped(<T>, <F>)
inner_grad(<T>, <I>)
leaf_grad(<T>, <F>)
layer(<T>)
Double.apply(<T>, <F>)
Double.apply(<T>, <I>)
Straight.apply(<T>)
Two.apply(<T>, <T>)[<I> % 2]
scaled_by(<F>)(<T>)
STEP(<T>)
counter()(<T>)
torch.stack(list(pieces(<T>)))
sum(pieces(<T>), <T>)
next(pieces(<T>)) + <T>
torch.utils.checkpoint.checkpoint(scaled_by(<F>), <T>, use_reentrant=False)
torch.autograd.grad((<T> * x).sum() + x.sum(), x, create_graph=<B>)[0]
torch.autograd.grad([(x * <T>).sum(), x.sin().sum()], [x], [torch.ones(()), torch.tensor(<F>)], create_graph=True)[0]
torch.autograd.grad(x.sin().sum(), x, create_graph=True)[0].pow(2)
"""),
        "R": rows(r"""
torch.func.vmap(torch.sum, in_dims=1)(<T>)
torch.func.vmap(lambda c: c @ c, in_dims=1)(<T>)
torch.func.grad(energy)(<R>)
"""),
        "C": rows(r"""
torch.func.grad(lambda c: c.sin() * <F>)(<C>)
torch.func.grad(torch.func.grad(lambda c: c**3 * <I>))(<C>)
torch.func.grad_and_value(energy)(<T>)[1]
energy(<T>, <I>)
torch.func.vmap(energy)(<T>).sum()
"""),
    },
    rows(r"""
LOG.append(tuple(<T>.shape))
LOG.append(<T>.requires_grad)
LOG.append(torch.is_grad_enabled())
<new:T> = STEP(<T>)
""")
    + blocks(r"""
k = <F>
def <fn:T>(t):
    return t * k + <T>
<new:T> = <=1>(<T>)
k = <I>
<new:T> = <=1>(<T>)

with lodged('a') as got:
    <new:T> = <T> * got
    if <B>:
        raise ValueError('left')
    <block>

try:
    with torch.no_grad(), lodged('b'):
        <block>
        raise KeyError(<I>)
except KeyError as e:
    LOG.append(e.args)
finally:
    LOG.append(torch.is_grad_enabled())

try:
    torch.func.vmap(torch.mul)(<T>, torch.ones(x.shape[0] + 1))
except ValueError as e:
    LOG.append('sizes')
    <block>

try:
    torch.func.grad(cube)(<T>)
except RuntimeError as e:
    LOG.append(str(e)[:30])

try:
    torch.autograd.grad(<T>.sum(), torch.ones(1))
except RuntimeError as e:
    LOG.append(str(e)[:30])

with torch.enable_grad():
    h = <T>.detach().requires_grad_()
    en = energy(h, <I>)
    <block>
(g,) = torch.autograd.grad(en, h)
<new:T> = g * 2

h = <T>.detach().requires_grad_()
w = torch.full((), <F>, requires_grad=True)
loss = (h * w).sin().sum()
gs = torch.autograd.grad(loss, (h, w), create_graph=True)
<new:T> = gs[0] * gs[1]
(gg,) = torch.autograd.grad(gs[0].sum(), w)
<new:C> = gg

h = <T>.detach().clone()
for <loc:I> in range(<I> % 4):
    h = h.detach().requires_grad_()
    (g,) = torch.autograd.grad(energy(h, <=1>), h)
    with torch.no_grad():
        h = h - 0.1 * g
    <block>
<new:T> = h

acc = []
def hook(g):
    acc.append(g.sum())
    return g * 2
h = <T>.detach().requires_grad_()
m = h * 3
m.register_hook(hook)
m.sum().backward()
<new:T> = h.grad + len(acc)

out, pull = torch.func.vjp(lambda t: (t.sin(), t * 2), <T>)
<new:T> = pull((out[0], torch.ones_like(out[1])))[0]

it = pieces(<T>)
for <loc:R> in it:
    if <B>:
        break
    <loop>
it.close()

steps = [scaled_by(i) for i in range(<I> % 4)]
h = <T>
for s in steps:
    h = s(h)
<new:T> = h

params = {n_: p.detach() * <F> for n_, p in LAYER.named_parameters()}
gs = torch.func.grad(lambda p: torch.func.functional_call(LAYER, p, (torch.ones(3, 2),)).sin().sum())(params)
<new:C> = gs['weight'].sum() + gs['bias'].sum()
LOG.append(sorted(gs))

def <fn:T>(t):
    <func>
    return <ret>
<new:T> = torch.utils.checkpoint.checkpoint(<=1>, <T>, use_reentrant=False)

with torch.inference_mode(bool(<B>)):
    c = <T>.detach() * 2
    LOG.append(c.is_inference())
<new:T> = <T> + c.sum().item()
"""),
)

THEMES = {"guises": GUISES, "transforms": TRANSFORMS}
