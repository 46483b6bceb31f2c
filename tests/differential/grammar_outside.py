"""What the theme `outside` has beside the grammar: what programs do around a compiled function.

Each program has a second function, `use`, which nobody compiles. It makes the arguments something else (leaves, what has a past, views
of one base, of a class, over an array, of inference mode), calls `fn` (under grad modes, settings and hooks on saved tensors, behind
generators, more than once, fed with its own results), and does things with what it is given: gradients of one result with respect to
another, second gradients, hooks, writes in place and behind autograd's back, `backward()` in any order, changes of a module with a buffer.
What `use` learns is in `LOG`. Histories are kept (`retain_graph`): what is freed with what is a known difference.
"""

from __future__ import annotations

from tests.differential.grammar import blocks, rows
from tests.differential.grammar_states import Theme

PRELUDE = '''
import copy, types

LOG = []


class Plain(torch.Tensor):
    """A class with nothing of its own."""


class Told(torch.Tensor):
    """A class that is told what is done to its tensors."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "?")
        if name in ("mul", "add", "sum", "__add__", "__mul__"):
            LOG.append(name)
        return super().__torch_function__(func, types, args, kwargs or {})


class Norm(torch.nn.Module):
    """Parameters, and buffers that each call in training writes."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(0.5))
        self.bias = torch.nn.Parameter(torch.tensor([0.25]))
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, t):
        out = (t - self.mean) * self.weight + self.bias
        if self.training:
            with torch.no_grad():
                self.mean = self.mean * 0.5 + t.mean().float() * 0.5  # another tensor: what was read stays
                self.count += 1
        return out


MOD = Norm()
OPT = torch.optim.SGD(MOD.parameters(), lr=0.1, momentum=0.5)
SPARE = torch.ones(1, requires_grad=True)


def flat(o, found=None):
    """The tensors of a result, each once, in order."""
    found = [] if found is None else found
    if isinstance(o, torch.Tensor):
        if not any(o is t for t in found):
            found.append(o)
    elif isinstance(o, dict):
        for v in o.values():
            flat(v, found)
    elif isinstance(o, (list, tuple, collections.deque)):
        for v in o:
            flat(v, found)
    elif isinstance(o, Box):
        flat(vars(o), found)
    elif dataclasses.is_dataclass(o) and not isinstance(o, type):
        flat([getattr(o, f.name) for f in dataclasses.fields(o)], found)
    return found


def heads(*values):
    return [t for t in flat(values) if t.requires_grad and t.is_floating_point()] or [SPARE * 1]


def pick(found, i):
    return found[i % len(found)]


def leaf(t):
    return t.detach().clone().requires_grad_()


def solid(t):
    """No view: PyTorch itself crashes where a hook is set on one whose base was written through another."""
    return t * 1 if t._is_view() else t


def weighted(t):
    return (t * torch.linspace(0.5, 1.5, t.numel(), dtype=t.dtype).reshape(t.shape)).sum()


def slope(y, *hs, create=False):
    return tuple(torch.autograd.grad(weighted(y), hs, retain_graph=True, create_graph=create, allow_unused=True)) if y.requires_grad else ()


def given(ys, hs):
    return torch.autograd.grad(ys, hs, [None, torch.ones(())], retain_graph=True, allow_unused=True)


def batched(y, hs, shape):
    return torch.autograd.grad(y, hs, torch.ones(2, *shape), retain_graph=True, allow_unused=True, is_grads_batched=True)


def second(y, h):
    """Zeros for none: what gradients of gradients do not depend on is a known difference."""
    return [torch.zeros_like(h) if g is None else g for g in slope(y, h)]


def note(name, *grads):
    """Gradients are compared as such (they round as their largest parts do), but not how they are laid out, which is a known difference."""
    LOG.append((name, [types.SimpleNamespace(grad=None if g is None else g.detach().clone().contiguous()) for g in grads]))


def safely(name, do):
    try:
        got = do()
    except (RuntimeError, ValueError, NotImplementedError, IndexError, TypeError) as e:
        LOG.append((name, type(e).__name__))
    else:
        LOG.append((name, "done"))
        return got


def heard(name):
    def hook(g):
        note(name, g)

    return hook


def told(t):
    return t.is_leaf, t.requires_grad, t._is_view(), type(t).__name__, t.grad_fn is None, t.is_inference()


def shares(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() if a.numel() and b.numel() else a is b


def one_by_one(fn, *calls):
    """A generator calls it."""
    for args in calls:
        got = yield fn(*args)
        LOG.append(got)


@contextlib.contextmanager
def default(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def pack(t):
    return t.detach().clone()


def unpack(t):
    return t * 1


def between(i, n):
    LOG.clear()
    MOD.train(n % 2 == 0)
    MOD.weight.grad = None
    MOD.bias.requires_grad_(n % 3 != 0)
'''

EXPRESSIONS = {
    "T": rows(r"""
MOD(<T>)
<T>.sin()
<T> * <T>
<T>.exp().clamp(max=9)
<T> * MOD.weight
<T>.view_as(<T:var>)
<T>.detach() * <T>
<T>.view(-1).view(<T:var>.shape)
(<T> * 1).mul_(<T>)
<T>.pow(2)
"""),
    "C": rows(r"""
MOD(<T>).sum()
<T>.pow(2).mean()
MOD.weight * <C>
MOD.mean
"""),
    "B": rows(r"""
<T>.requires_grad
<T:var>.is_leaf
MOD.training
torch.is_grad_enabled()
torch.is_inference_mode_enabled()
type(<T>) is torch.Tensor
<T>.dtype is torch.float32
MOD.weight.grad is None
"""),
}

STATEMENTS = rows(r"""
<new:T> = MOD(<T>)
<new:T> = <T> * <T>
<new:T> = <T>.sin()
<new:C> = <T>.pow(2).sum()
<new:T> = <T>[:]
<new:T> = <T>.clone().mul_(<T>)
<new:L> = [<T>, <T> * 2]
""") + blocks(r"""
with torch.no_grad():
    <new:T> = <T> * 2

h = <T> * 2
<new:T> = h + <T>
h.mul_(2)

with torch.enable_grad():
    <new:T> = <T> * <T>

if not x.requires_grad:
    x.add_(<I>)

if not y.requires_grad and not y.is_inference():
    y[:1] = <T>[:1].detach()
    risky(x, n)

def <fn:T>(t):
    nonlocal n
    n = (n + 1) % 5
    <func>
    return <ret>
<new:T> = <=1>(<T>)
""")

ENTRANCES = rows(r"""
x.requires_grad_()
y.requires_grad_()
x = leaf(x)
x = leaf(x) * 1
x, y = leaf(x), leaf(y)
x, y = leaf(x), leaf(y)
x, y = leaf(x), leaf(y)
x, y = leaf(x) * 2, leaf(y).sin()
x, y = leaf(x) * 2, leaf(y).sin()
x = leaf(x).t().contiguous().t()
x = leaf(x[:1]).expand_as(x)
x, y = leaf(torch.stack([x, y])).unbind(0)
x, y = leaf(torch.cat([x, y])).chunk(2)
x, y = leaf(torch.cat([x, y])).split(x.shape[0])
x, y = (leaf(torch.cat([x, y])) * 1).split(x.shape[0])
x, y = torch.cat([x, y]).detach().split(x.shape[0])
y = x.view_as(x)
y = x[:]
y = x.detach()
x = torch.nn.Parameter(x.detach().clone())
x = leaf(x).as_subclass(Plain)
x = (leaf(x) * 1).as_subclass(Plain)
y = y.detach().as_subclass(Told)
x = leaf(x).as_subclass(Told)
x = torch.from_numpy(x.detach().numpy())
y = torch.from_numpy(x.detach().numpy())
x = (leaf(x) * 1).mul_(2)
x = x.detach().double()
x, y = leaf(x.double()), leaf(y.double())
x, y, items = leaf(x.double()), leaf(y.double()), [t.detach().double() for t in items]
x = x.detach().bfloat16()
items = [leaf(t) for t in items]
items = [x, x.view_as(x), x.detach()]
items[-1] = y
table = {'a': y, 'b': x}
table['a'] = leaf(table['a']) * 1
y = y.detach().clone().fill_(0)
x = x.detach()[:, :1].expand_as(x)
""") + blocks(r"""
x = leaf(x)
x.register_hook(heard('x'))

x = leaf(x) * 1
x.register_hook(heard('x'))
x.retain_grad()

with torch.inference_mode():
    x = x * 1

with torch.inference_mode():
    y = y.detach().clone()

with torch.no_grad():
    x = leaf(x).view_as(x)

x = leaf(x)
x.grad = torch.ones_like(x)

base = leaf(x) * 1
x, y = base.view_as(x), base.t().t()

base = leaf(x)
x = base.view_as(x)
with torch.no_grad():
    base.mul_(2)

base = leaf(x) * 1
x = base.view_as(x)
base.mul_(2)

MOD.requires_grad_(False)
x = leaf(x)
""")

CALLS = rows(r"""
r = fn(*args)
r = fn(*args)
r = fn(*args)
r = fn(*args)
r = torch.no_grad()(fn)(*args)
r = torch.utils.checkpoint.checkpoint(fn, *args, use_reentrant=False)
r = [fn(*args), fn(*args)]
r = [fn(*args), fn(y, x, *args[2:])]
r = [fn(x, x, *args[2:])]
r = fn(MOD(x), *args[1:])
r = fn(x, MOD(y), *args[2:])
""") + blocks(r"""
with torch.no_grad():
    r = fn(*args)

with torch.no_grad():
    r = [fn(*args)]
r.append(fn(*args))

with torch.inference_mode():
    r = fn(*args)

with torch.no_grad(), torch.enable_grad():
    r = fn(*args)

with torch.inference_mode(), torch.enable_grad():
    r = fn(*args)

with torch.inference_mode(), torch.inference_mode(False):
    r = fn(*args)

with torch.set_grad_enabled(flag):
    r = fn(*args)

with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
    r = fn(*args)

with default(torch.float64):
    r = fn(*args)

with default(torch.float64):
    r = [fn(*args)]
r.append(fn(*args))

with torch.autograd.set_multithreading_enabled(False):
    r = fn(*args)

with contextlib.suppress(KeyError):
    r = []
    r = fn(*args)

r = list(one_by_one(fn, args, args))

it = one_by_one(fn, args, args)
r = [next(it)]
r.append(it.send(n))
it.close()

first = fn(*args)
r = [first, fn(pick([t for t in flat(first) if t.shape == x.shape and t.dtype == x.dtype] + [x], <I>), *args[1:])]

r = fn(*args)
x.requires_grad_() if x.is_leaf and not x.is_inference() else None
r = [r, fn(*args)]

r = [fn(*args)]
with torch.no_grad():
    x.mul_(1) if not x.is_inference() else None
r.append(fn(*args))

handle = MOD.register_forward_hook(lambda m, a, out: out * 2)
r = fn(*args)
handle.remove()

MOD.weight.requires_grad_(False)
r = fn(*args)
MOD.weight.requires_grad_()
""")

AFTER = rows(r"""
note('slope', *slope(<H>, <H>))
note('slope', *slope(<H>, <H>))
note('slope', *slope(<H>, <H>, <H>))
note('all', *slope(<H>, *hs))
note('weight', *slope(<H>, MOD.weight))
safely('add_', lambda: <H>.add_(1))
safely('mul_', lambda: <H>.mul_(2))
safely('view', lambda: <H>[:1].mul_(2))
safely('detach_', lambda: <H>.detach_())
safely('hook', lambda: solid(<H>).register_hook(heard('h')))
safely('retain', lambda: <H>.retain_grad())
safely('double', lambda: solid(<H>).register_hook(lambda g: g * 2))
safely('backward', lambda: weighted(<H>).backward(retain_graph=True))
safely('backward', lambda: (weighted(<H>) + weighted(<H>)).backward(retain_graph=True))
safely('both', lambda: torch.autograd.backward([weighted(<H>), weighted(<H>)], retain_graph=True))
safely('inputs', lambda: weighted(<H>).backward(retain_graph=True, inputs=[<H>]))
safely('given', lambda: note('given', *given([weighted(<H>), <H>.sum()], [<H>])))
safely('batched', lambda: note('batched', *batched(<H>, hs[:2], <H>.shape)))
LOG.append([told(t) for t in flat(r)])
LOG.append([told(t) for t in flat(args)])
LOG.append(shares(<H>, <H>))
LOG.append([shares(a, b) for a in hs[:4] for b in flat(args)[:4]])
LOG.append(<H> is <H>)
LOG.append([t._base is x for t in hs])
x.grad = None
MOD.weight.grad = None
OPT.step()
OPT.zero_grad(set_to_none=flag)
MOD.mean = MOD.mean + 1
MOD.count.add_(1)
MOD.eval()
hs.reverse()
hs = heads(r)
hs = [t for t in hs if t.grad_fn is not None] or [SPARE * 1]
hs.append(<H> * <H>.sum())
hs.append(<H>.detach().requires_grad_())
safely('again', lambda: hs.extend(heads(fn(*args))))
safely('fed', lambda: hs.extend(heads(fn(pick([t for t in hs if t.shape == x.shape] + [x], <I>), *args[1:]))))
safely('copied', lambda: hs.extend(heads(fn(*copy.deepcopy([t.detach() if isinstance(t, torch.Tensor) else t for t in args])))))
""") + blocks(r"""
with torch.no_grad():
    safely('mul_', lambda: <H>.mul_(2))

with torch.no_grad():
    safely('input', lambda: x.add_(1))
    safely('items', lambda: items[0].mul_(2))

with torch.no_grad():
    MOD.weight.mul_(0.5)

with torch.no_grad():
    safely('data', lambda: <H>.data.mul_(2))

got = slope(<H>, <H>, create=True)
note('first', *got)
if got and got[0] is not None and got[0].requires_grad and got[0].grad_fn is not None:
    safely('second', lambda: note('second', *second(got[0], <H>)))

got = slope(<H>, *hs, create=True)
sums = [weighted(g) for g in got if g is not None and g.requires_grad]
if sums:
    safely('penalty', lambda: note('penalty', *[g for h in hs for g in second(sum(sums), h)]))

h = <H>
safely('written', lambda: h.mul_(h.detach()))
note('behind', *slope(<H>, h))

h = <H>
v = h[:1] if h.dim() else h.view(1)
safely('row', lambda: v.add_(1))
safely('behind', lambda: note('behind', *slope(h, <H>)))

h = solid(<H>)
removed = h.register_hook(heard('once'))
safely('once', lambda: weighted(<H>).backward(retain_graph=True))
removed.remove()

h = <H>
h.register_post_accumulate_grad_hook(lambda p: LOG.append('post')) if h.is_leaf else None

with torch.enable_grad():
    <block>

with torch.no_grad():
    <block>

if flag:
    <block>
else:
    <block>

try:
    r = fn(x, <H>, 6, *args[3:])
except (ValueError, KeyError, RuntimeError, TypeError) as e:
    LOG.append(type(e).__name__)
    <block>
""")

OUTSIDE = Theme(
    PRELUDE,
    ("LOG", "MOD", "SPARE"),
    EXPRESSIONS,
    STATEMENTS,
    use=(ENTRANCES, CALLS, AFTER, {"H": ["hs[0]", "hs[-1]", *["pick(hs, <I>)"] * 3], "I": ["0", "1", "2", "3", "5", "7", "n"]}),
)

THEMES = {"outside": OUTSIDE}
