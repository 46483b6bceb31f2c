"""What the themes `caches`, `flips` and `carriers` have beside the grammar: state that programs carry from call to call.

`caches`: inference loops whose caches of keys and values grow, are written in place, cut, rolled or reordered, with early exits on data.
`flips`: modules whose hooks, flags, submodules, classes and parameters change between calls. `carriers`: dataclasses, dicts, records and
nested containers that hold tensors and numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tests.differential.grammar import blocks, rows


@dataclasses.dataclass(frozen=True)
class Theme:
    """The source of its world, the globals of that which are compared, rows for the grammar, and its own arguments if it has some.

    `use`: there is a function of this name around the compiled one: what it does to the arguments, how it calls, what it does behind, and
    expressions for all that (`grammar_outside.py`)."""

    prelude: str
    names: tuple[str, ...]
    expressions: dict[str, list[str]]
    statements: list[str]
    arguments: Callable[[Any], Any] | None = None
    use: tuple[list[str], list[str], list[str], dict[str, list[str]]] | None = None


CACHES = Theme(
    '''
class Grown:
    """Keys and values that are concatenated, at most so many."""

    def __init__(self, most=None):
        self.keys = self.values = None
        self.seen, self.most = 0, most

    def update(self, k, v):
        if self.keys is None:
            self.keys, self.values = k, v
        else:
            self.keys, self.values = torch.cat([self.keys, k]), torch.cat([self.values, v])
        if self.most is not None and self.keys.shape[0] > self.most:
            self.keys, self.values = self.keys[-self.most :], self.values[-self.most :]
        self.seen += k.shape[0]
        return self.keys, self.values

    def crop(self, n):
        if self.keys is not None:
            self.keys, self.values = self.keys[:n], self.values[:n]

    def reorder(self, index):
        if self.keys is not None:
            self.keys = self.keys.index_select(0, index)
            self.values = self.values[index]

    def length(self):
        return 0 if self.keys is None else self.keys.shape[0]


class Placed(Grown):
    """A buffer that is written in place, by turns in all ways there are."""

    def __init__(self, room, width):
        super().__init__(room)
        self.buffers = torch.zeros(2, room, width)
        self.at, self.place, self.turn = 0, torch.zeros((), dtype=torch.long), 0

    def update(self, k, v):
        n = min(k.shape[0], self.most)
        if self.at + n > self.most:
            self.buffers.copy_(self.buffers.roll(-n, 1))
            self.at = self.most - n
        self.place.fill_(self.at)
        own, end, how = self.buffers, self.at + n, self.turn % 4
        for side, new in enumerate((k[:n], v[:n])):
            if how == 0:
                own[side, self.at : end] = new
            elif how == 1:
                own[side].index_copy_(0, torch.arange(self.at, end), new)
            elif how == 2:
                own[side].narrow(0, self.at, n).copy_(new)
            else:
                own[side].index_put_((self.place + torch.arange(n),), new)
        self.at, self.turn = end, self.turn + 1
        self.seen += n
        self.keys, self.values = own[0, :end], own[1, :end]
        return self.keys, self.values


class Layer:
    def __init__(self, scale, kind):
        self.scale, self.kind, self.caches = scale, kind, {}

    def cache(self, width):
        if width not in self.caches:
            self.caches[width] = Grown() if self.kind == 0 else Grown(5) if self.kind == 1 else Placed(6, width)
        return self.caches[width]

    def __call__(self, t, kept=True):
        k, v = t * self.scale, t.flip(-1)
        if kept:
            k, v = self.cache(t.shape[1]).update(k, v)
        scores = t @ k.t() / max(t.shape[1], 1) ** 0.5
        if t.shape[0] > 1 and scores.shape[1] >= t.shape[0]:
            scores = scores + torch.full(scores.shape, float("-inf")).triu(1 + scores.shape[1] - t.shape[0])
        return t + scores.softmax(-1) @ v


LAYERS = [Layer(0.5, 0), Layer(-0.25, 1), Layer(1.0, 2)]
PREFIXES, OUTPUT = {}, []


def forward(t, layers=None, limit=None):
    """Leaves early where the data say so."""
    for i, layer in enumerate(LAYERS if layers is None else LAYERS[:layers]):
        t = layer(t)
        if limit is not None and t.abs().max() > limit:
            return t, i
    return t, -1


def generate(t, most, stop):
    tokens = []
    out, _ = forward(t)
    for _ in range(most):
        token = int(out[-1].argmax())
        tokens.append(token)
        if token == stop:
            break
        out, _ = forward(out[-1:] * 0.5 + token)
    OUTPUT.append(tokens)
    return out


def sampled(t, most):
    """Until every row is done."""
    done = torch.zeros(t.shape[0], dtype=torch.bool)
    rounds = 0
    while not done.all() and rounds < most:
        t = torch.where(done[:, None], t, t * 0.5 + 0.25)
        done |= t.sum(-1) > 0.25
        rounds += 1
    return t, rounds


def accepted(t, draft):
    """How much of a draft holds."""
    n = int((t.argmax(-1) == draft.argmax(-1)).long().cumprod(0).sum())
    for layer in LAYERS:
        layer.cache(t.shape[1]).crop(n)
    return t[:n]


def beams(t, most):
    flat = t.reshape(-1)
    best, where = flat.topk(min(most, flat.numel()))
    rows = where // max(t.shape[1], 1)
    for layer in LAYERS[:2]:
        c = layer.cache(t.shape[1])
        if c.length() >= t.shape[0] > 0:
            c.reorder(rows)
    return t[rows]


def prefix(t):
    key = tuple(t.shape)
    if key not in PREFIXES:
        PREFIXES[key] = (t.cumsum(0), len(PREFIXES))
    held, number = PREFIXES[key]
    held[:1].add_(1)
    return held + number
''',
    ("LAYERS", "PREFIXES", "OUTPUT"),
    {
        "T": rows(r"""
forward(<T>)[0]
forward(<T>, <I> % 4)[0]
forward(<T>, limit=<F>)[0]
LAYERS[<I> % 3](<T>)
LAYERS[<I> % 3](<T>, kept=<B>)
generate(<T>, <I> % 4, <I> % 3)[-1:] + <T>
sampled(<T>, <I> % 5)[0]
prefix(<T>)
LAYERS[2].cache(x.shape[1]).buffers[0][: x.shape[0]].sum() + <T>
torch.nn.functional.scaled_dot_product_attention(<T>[None], <T>[None], <T>[None], is_causal=flag)[0]
"""),
        "R": rows(r"""
forward(<T>)[0].sum(0)
accepted(<T>, <T>).sum(0)
beams(<T>, <I> % 3 + 1).sum(0)
LAYERS[2].cache(x.shape[1]).buffers[1].sum(0)
"""),
        "I": rows(r"""
LAYERS[<I> % 3].cache(x.shape[1]).length()
LAYERS[<I> % 3].cache(x.shape[1]).seen % 50
forward(<T>, limit=<F>)[1]
sampled(<T>, 4)[1]
len(PREFIXES)
sum(map(len, OUTPUT)) % 50
LAYERS[2].cache(x.shape[1]).at
accepted(<T>, <T>).shape[0]
"""),
        "B": rows(r"""
LAYERS[0].cache(x.shape[1]).keys is None
LAYERS[1].cache(x.shape[1]).length() == 5
x.shape[1] in LAYERS[2].caches
tuple(x.shape) in PREFIXES
"""),
        "N": rows(r"""
(OUTPUT[-1] if OUTPUT else []) + [<I>]
[layer.cache(x.shape[1]).length() for layer in LAYERS]
"""),
    },
    rows(r"""
LAYERS[0].caches.clear()
LAYERS[<I> % 3].caches.pop(x.shape[1], None)
LAYERS[<I> % 2].cache(x.shape[1]).crop(<I> % 4)
LAYERS[<I> % 3].scale = <F>
LAYERS.reverse() if len(LAYERS) != 3 else None
LAYERS[2].cache(x.shape[1]).buffers.zero_()
LAYERS[2].cache(x.shape[1]).buffers[:, : <I> % 3].mul_(<F>)
PREFIXES.clear()
OUTPUT.clear()
del OUTPUT[:-2]
<new:T> = generate(<T>, <I> % 5, <I> % 3)[-1:] + x
<new:T>, <new:I> = forward(<T>, limit=<F>)
<new:T>, <new:I> = sampled(<T>, 6)
accepted(<T>, <T>)
""")
    + blocks(r"""
with torch.no_grad():
    for <loc:I> in range(<I> % 4):
        <loc:T> = LAYERS[<I> % 3](<T>[-1:]) + <T>
        <loop>
    <block>

with torch.inference_mode():
    c = LAYERS[0].cache(x.shape[1])
    step = c.update(<T> * 2, <T> + 1)[0].sum()
    SEEN.append(float(step))
c.keys = c.values = None

state = <T>
for layer in LAYERS:
    new = layer(state)
    if (new - state).abs().max() < <F>:
        break
    state = new
else:
    state = state * 0.5
<new:T> = state

for t in <L>[:5]:
    held, _ = LAYERS[1].cache(t.shape[1]).update(t[:1], t[-1:])
    SEEN.append(held.shape[0])
    if held.sum() > <F>:
        continue
    <block>

history = []
token = <T>[:1]
while len(history) < 3:
    token = LAYERS[<I> % 3](token)
    history.append(token)
    if token.sum() < <F>:
        break
<new:T> = torch.cat(history).sum(0) + <T>

window = collections.deque(maxlen=3)
for row in <T>:
    window.append(row)
    mean = sum(window) / len(window)
    row.add_(mean * 0) if <B> else SEEN.append(len(window))
<new:R> = sum(window, torch.zeros(x.shape[1]))
"""),
)

FLIPS = Theme(
    '''
class Part(torch.nn.Module):
    unit = 0

    def __init__(self, w, k=0):
        super().__init__()
        self.w, self.k = torch.nn.Parameter(torch.tensor(w)), k

    def forward(self, t):
        return t * self.w + self.k + self.unit


class Doubled(Part):
    def forward(self, t):
        return super().forward(t) * 2


class Host(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = Part(0.5), Part(-0.25, 1)
        self.parts = torch.nn.ModuleList([Part(1.5)])
        self.named = torch.nn.ModuleDict({"one": torch.nn.Identity()})
        self.line = torch.nn.Sequential(torch.nn.Tanh(), Part(2.0))
        self.on, self.mode, self.extra = True, "plain", None
        self.register_buffer("shift", torch.tensor(0.25))
        self.register_buffer("none", None)

    def forward(self, t, way="one"):
        t = self.a(t)
        if self.on:
            t = self.b(t)
        for p in self.parts:
            t = p(t)
        if self.extra is not None:
            t = self.extra(t)
        if way in self.named:
            t = self.named[way](t)
        if self.none is not None:
            t = t + self.none
        t = self.line(t) if self.training else t
        return {"plain": lambda t: t, "minus": torch.neg}[self.mode](t) + self.shift


HOST, HOOKS = Host(), []


def pre(module, args):
    SEEN.append(("pre", type(module).__name__))
    return (args[0] + 1,)


def post(module, args, out):
    return out * 2 if module.training else None


def post_with(module, args, kwargs, out):
    SEEN.append(sorted(kwargs))


def on_gradient(module, grads, grad):
    SEEN.append(("back", len(grads)))


def longer(self, t):
    return torch.relu(t) * self.w


FLIPS = [
    lambda n: HOOKS.append(HOST.a.register_forward_hook(post)),
    lambda n: HOOKS.append(HOST.b.register_forward_pre_hook(pre)),
    lambda n: HOOKS.append(HOST.register_forward_hook(post_with, with_kwargs=True)),
    lambda n: HOOKS.pop().remove() if HOOKS else None,
    lambda n: HOOKS.pop(0).remove() if HOOKS else None,
    lambda n: setattr(HOST, "on", not HOST.on),
    lambda n: setattr(HOST, "mode", "minus" if HOST.mode == "plain" else "plain"),
    lambda n: setattr(HOST, "extra", (None, torch.nn.ReLU(), Part(0.75), torch.nn.Identity(), torch.nn.Dropout(0.0))[n % 5]),
    lambda n: (setattr(HOST, "spare", HOST.a), setattr(HOST, "a", HOST.b), setattr(HOST, "b", HOST.spare), delattr(HOST, "spare")),
    lambda n: HOST.parts.append(Part(float(n))) if len(HOST.parts) < 3 else HOST.parts.pop(0),
    lambda n: HOST.named.update({("one", "two")[n % 2]: (torch.nn.GELU(), Part(-1.0), torch.nn.Identity())[n % 3]}),
    lambda n: HOST.named.pop("one") if "one" in HOST.named else None,
    lambda n: HOST.a.__dict__.pop("forward", None) or setattr(HOST.a, "forward", longer.__get__(HOST.a)),
    lambda n: HOST.train(n % 2 == 0),
    lambda n: HOST.line.train(n % 2 == 1),
    lambda n: HOST.b.requires_grad_(n % 2 == 0),
    lambda n: setattr(HOST.a, "w", torch.nn.Parameter(torch.tensor(n / 4))),
    lambda n: setattr(HOST.b, "k", (n, n / 2, float(n), bool(n % 2))[n % 4]),
    lambda n: setattr(HOST.a, "__class__", Doubled if type(HOST.a) is Part else Part),
    lambda n: setattr(HOST, "none", None if HOST.none is not None else torch.tensor(float(n))),
    lambda n: HOST.register_buffer("shift", torch.full((1,) * (n % 2), n / 8)),
    lambda n: setattr(HOST.b, "w", HOST.a.w),
    lambda n: HOST.line.append(torch.nn.Sigmoid()) if len(HOST.line) < 4 else HOST.line.__delitem__(-1),
    lambda n: HOST.load_state_dict({"shift": torch.tensor(n / 2)}, strict=False) if HOST.shift.dim() == 0 else None,
    lambda n: HOOKS.append(HOST.line.register_full_backward_hook(on_gradient)),
    lambda n: HOST.line.__setitem__(0, (torch.nn.Tanh(), torch.nn.Softplus(), torch.nn.Hardtanh(-n, n + 1))[n % 3]),
    lambda n: HOST.a.w.data.mul_(0.5),
    lambda n: setattr(Part, "unit", n % 3),
    lambda n: HOST.double() if n % 3 == 0 else HOST.float(),
    lambda n: HOST.zero_grad(set_to_none=n % 2 == 0),
    lambda n: HOST.apply(lambda m: setattr(m, "k", 2) if isinstance(m, Part) else None),
    lambda n: setattr(HOST, "extra", torch.nn.Hardtanh(-1, n + 1)),
    lambda n: setattr(HOST.a, "w", torch.nn.Parameter(HOST.a.w.detach().clone(), requires_grad=bool(n % 2))),
]


def flip(n):
    FLIPS[n % len(FLIPS)](n)


def between(i, n):
    flip(i * 7 + n * 5)
    flip(i * 3 + n)


def used(t, k=1):
    return HOST(t, "two") if k % 2 else HOST(t)


@contextlib.contextmanager
def frozen(module):
    was = [p.requires_grad for p in module.parameters()]
    module.requires_grad_(False)
    try:
        yield module
    finally:
        for p, on in zip(module.parameters(), was):
            p.requires_grad_(on)
''',
    ("HOST",),
    {
        "T": rows(r"""
HOST(<T>)
HOST(<T>, way='two')
used(<T>, <I>)
HOST.a(<T>)
HOST.b(HOST.a(<T>))
HOST.line(<T>)
HOST.parts[-1](<T>) if len(HOST.parts) else <T>
<T> * HOST.a.w.detach()
<T> + HOST.shift
(HOST.extra or torch.neg)(<T>)
functools.reduce(lambda t, m: m(t), HOST.parts, <T>)
HOST(<T>).detach()
torch.func.functional_call(HOST, {'a.w': <C>.detach()}, (<T>,))
"""),
        "C": rows(r"""
HOST(<T>).sum()
sum(p.sum() for p in HOST.parameters())
HOST.a.w.detach()
"""),
        "I": rows(r"""
len(HOST.parts)
len(HOST.line)
sum(1 for _ in HOST.modules())
len(list(HOST.named_parameters()))
sum(p.requires_grad for p in HOST.parameters())
len(HOST.state_dict())
"""),
        "B": rows(r"""
HOST.training
HOST.on
HOST.extra is None
'one' in HOST.named
HOST.a.w is HOST.b.w
isinstance(HOST.a, Doubled)
HOST.a.w.grad is None
HOST.b.w.requires_grad
any(m.training for m in HOST.children())
"""),
        "S": rows(r"""
HOST.mode
','.join(k for k, _ in HOST.named_parameters())
type(HOST.a).__name__
"""),
    },
    rows(r"""
flip(<I>)
flip(<I> + 11)
flip(n * 3 + 22)
HOST.train(<B>)
HOST.on = <B>
HOST.eval()
HOST.zero_grad()
<new:T> = HOST(<T>)
<new:T> = used(<T>, <I>)
<new:C> = HOST(<T>).pow(2).mean().detach()
SEEN.append([k for k, m in HOST.named_children()])
""")
    + blocks(r"""
loss = HOST(<T>).pow(2).sum()
if loss.requires_grad:
    loss.backward()
<new:C> = loss.detach()

handle = HOST.a.register_forward_hook(lambda m, a, out: out + 1)
<block>
<new:T> = HOST(<T>)
handle.remove()

with frozen(HOST.b):
    <new:T> = HOST(<T>)
    <block>

was, HOST.mode = HOST.mode, 'minus'
try:
    <new:T> = HOST(<T>)
    <block>
finally:
    HOST.mode = was

for name, child in HOST.named_children():
    if isinstance(child, Part):
        child.k = child.k + <I> % 3
        <block>

for p in HOST.parameters():
    if p.grad is not None:
        with torch.no_grad():
            p -= 0.1 * p.grad
        p.grad = None

with torch.no_grad():
    for p in HOST.parameters():
        p.clamp_(-2, 2)
    <block>

seen = [type(m).__name__ for m in HOST.modules()]
SEEN.append((len(seen), seen[-1]))
"""),
)

CARRIERS = Theme(
    '''
import copy, types
from typing import NamedTuple


@dataclasses.dataclass
class Step:
    t: torch.Tensor
    n: int = 0
    parts: list = dataclasses.field(default_factory=list)
    inner: "Step | None" = None

    def deeper(self):
        return Step(self.t * 2, self.n + 1, [*self.parts, self.n], self)

    def depth(self):
        return 0 if self.inner is None else 1 + self.inner.depth()


@dataclasses.dataclass(frozen=True)
class Frozen:
    t: torch.Tensor
    k: float = 0.5

    def __post_init__(self):
        object.__setattr__(self, "sum", self.t.sum())

    def with_k(self, k):
        return dataclasses.replace(self, k=k)


@dataclasses.dataclass(slots=True, order=True)
class Ranked:
    score: float
    name: str = dataclasses.field(default="a", compare=False)
    t: torch.Tensor | None = dataclasses.field(default=None, compare=False, repr=False)


class Out(NamedTuple):
    hidden: torch.Tensor
    loss: torch.Tensor | None = None
    extra: tuple = ()


class Attributes(dict):
    """A dict whose items are attributes."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self[name] = value


class Registry:
    """Delegates to what it holds, and counts."""

    def __init__(self):
        self.held, self.asked = collections.OrderedDict(), collections.Counter()

    def __getitem__(self, key):
        self.asked[key] += 1
        self.held.move_to_end(key)
        return self.held[key]

    def __setitem__(self, key, value):
        self.held[key] = value
        while len(self.held) > 3:
            self.held.popitem(last=False)

    def __contains__(self, key):
        return key in self.held

    def __len__(self):
        return len(self.held)

    def get(self, key, make):
        if key not in self:
            self[key] = make()
        return self[key]


STATE = {"layers": [{"k": torch.zeros(1), "n": 0}, {"k": torch.ones(1), "n": 1}], "step": 0, "best": None, "names": ("a", "b")}
STEP, ATTRIBUTES, REGISTRY = Step(torch.zeros(2)), Attributes(a=1, t=torch.ones(1)), Registry()
GROUPS = collections.defaultdict(list)
SPACE = types.SimpleNamespace(t=torch.zeros(1), n=0, nested=types.SimpleNamespace(k=1.5))


def tree(f, s):
    """`f` of each tensor in nested containers."""
    if isinstance(s, torch.Tensor):
        return f(s)
    if isinstance(s, tuple) and hasattr(s, "_fields"):
        return type(s)(*(tree(f, v) for v in s))
    if isinstance(s, (list, tuple)):
        return type(s)(tree(f, v) for v in s)
    if isinstance(s, dict):
        return {k: tree(f, v) for k, v in s.items()}
    if dataclasses.is_dataclass(s):
        return type(s)(**{f_.name: tree(f, getattr(s, f_.name)) for f_ in dataclasses.fields(s) if f_.init})
    return s


def flat(s):
    if isinstance(s, torch.Tensor):
        return [s]
    if isinstance(s, (dict, list, tuple)):
        values = s.values() if isinstance(s, dict) else s
    else:
        values = vars(s).values() if hasattr(s, "__dict__") else ()
    return [t for v in values for t in flat(v)]


def total(s):
    return sum((t.sum() for t in flat(s)), torch.zeros(()))


def advance(state, t):
    state["step"] += 1
    for i, layer in enumerate(state["layers"]):
        layer["k"] = t.sum(0) * (i + 1)
        layer["n"] += t.shape[0]
    if state["best"] is None or t.sum() > state["best"][0]:
        state["best"] = (t.sum(), state["step"])
    return state


def told(o):
    match o:
        case Out(hidden=h, loss=None):
            return h.sum()
        case Out(hidden=h, loss=loss):
            return h.sum() + loss
        case Step(n=0, t=t) | Frozen(t=t):
            return t.sum() * 0.5
        case Step(inner=Step(t=t)):
            return t.sum()
        case {"t": t, **rest}:
            return t.sum() + len(rest)
        case [first, *_]:
            return told(first)
    return torch.zeros(())
''',
    ("STATE", "STEP", "ATTRIBUTES", "REGISTRY", "GROUPS", "SPACE"),
    {
        "T": rows(r"""
Step(<T>, <I>).deeper().t
Frozen(<T>).with_k(<F>).t * <F>
Out(<T>, <C>).hidden
Out(<T>)._replace(hidden=<T>)[0]
tree(torch.relu, {'a': [<T>, (<T>, <I>)]})['a'][1][0]
tree(lambda t: t + 1, Step(<T>, <I>)).t
Attributes(t=<T>).t
<T> + total(STATE)
<T> + STATE['layers'][<I> % 2]['k'].sum()
<T> * STATE['step']
REGISTRY.get(tuple(x.shape), lambda: <T>.detach().clone()) + <T>
<T> + SPACE.t.sum() * SPACE.nested.k
copy.copy(Step(<T>, 1)).t
copy.deepcopy({'t': <T>.detach()})['t']
max([Ranked(<F>, t=<T>), Ranked(<F>, t=<T>)]).t
sorted([(<I>, 0, <T>), (<I>, 1, <T>)], key=operator.itemgetter(0))[0][2]
sum(flat({'a': <T>, 'b': [<T>, {'c': <T>}]}))
collections.ChainMap({'t': <T>}, {'t': <T>, 'u': <T>})['u']
dict(zip(STATE['names'], (<T>, <T>)))['b']
functools.reduce(lambda s, t: s.deeper(), <L>, Step(<T>)).t
dataclasses.replace(STEP, t=<T>).t
dataclasses.asdict(Step(<T>, <I>, [<I>]))['t']
"""),
        "C": rows(r"""
total(STATE)
total([<T>, {'a': <T>}])
told(Out(<T>, <C>))
told(Step(<T>, <I> % 2, inner=Step(<T>)))
told({'t': <T>, 'n': <I>})
told([Frozen(<T>)])
Frozen(<T>).sum
(STATE['best'] or (torch.zeros(()), 0))[0]
SPACE.t.sum()
total(vars(STEP))
"""),
        "I": rows(r"""
STATE['step'] % 50
STATE['layers'][<I> % 2]['n'] % 50
STEP.depth()
len(STEP.parts)
len(REGISTRY)
sum(REGISTRY.asked.values()) % 50
len(GROUPS)
ATTRIBUTES.get('n', 0) % 50
SPACE.n % 50
len(flat(STATE))
len(dataclasses.fields(STEP))
"""),
        "F": rows(r"""
Frozen(<T>).with_k(<F>).k
SPACE.nested.k
Ranked(<F>).score
float(STATE['step'])
"""),
        "B": rows(r"""
STATE['best'] is None
STEP.inner is None
tuple(x.shape) in REGISTRY
'n' in ATTRIBUTES
Ranked(<F>) < Ranked(<F>)
Out(<T>).loss is None
hasattr(SPACE, 'late')
STEP == STEP
"""),
        "S": rows(r"""
str(Ranked(<F>))
','.join(f.name for f in dataclasses.fields(STEP))
str(sorted(ATTRIBUTES))
str(dict(REGISTRY.asked))
"""),
    },
    rows(r"""
advance(STATE, <T>)
STATE['layers'].reverse()
STATE['layers'][<I> % 2]['n'] += <I>
STATE['layers'][<I> % 2]['k'] = <A>
STATE['best'] = None
STATE['step'] = 0
STEP.t = <T>
STEP.n += <I> % 3
STEP.parts.append(<I>)
STEP.inner = Step(STEP.t, STEP.n) if STEP.inner is None else None
ATTRIBUTES.t = <T>
ATTRIBUTES.n = <I>
ATTRIBUTES.pop('n', None)
REGISTRY[<I> % 5] = <T>
REGISTRY[<S>] = <T>
GROUPS[<I> % 3].append(<T>)
GROUPS.pop(<I> % 3, None)
SPACE.t = <T>
SPACE.n += 1
SPACE.nested.k *= 0.5
SPACE.late = <I>
<new:T> = REGISTRY.get(<I> % 4, lambda: <T>)[:1].sum() + x
<new:D> = {**table, 'z': <T>}
<new:P> = (<T>, STATE['step'] % 40)
""")
    + blocks(r"""
step = Step(<T>)
for <loc:I> in range(<I> % 4):
    step = step.deeper()
    step.t = step.t + <T>
    <loop>
<new:T> = step.t
SEEN.append(step.depth())

for layer in STATE['layers']:
    layer['k'] = layer['k'] * <F>
    if layer['n'] > 5:
        layer['n'] = 0
        <block>

snapshot = copy.deepcopy(STATE)
advance(STATE, <T>)
<block>
if STATE['step'] % 2:
    STATE.update(snapshot)

out = Out(<T>, <C>, (<I>,))
hidden, loss, (k,) = out
<new:T> = hidden * k + loss

for key, group in sorted(GROUPS.items()):
    if len(group) > 2:
        del group[0]
        <block>

merged = collections.ChainMap({}, STATE, {'other': <I>})
merged['step'] = <I>
SEEN.append(sorted(merged))
<new:I> = merged['step'] % 40 + merged['other'] % 3

try:
    Frozen(<T>).k = 1
except dataclasses.FrozenInstanceError as err:
    SEEN.append(str(err))

ranked = sorted([Ranked(float(t.sum()), str(i), t) for i, t in enumerate(<L>)], reverse=True)
<new:T> = ranked[0].t + <T>
SEEN.append([r.name for r in ranked])

state = {'t': <T>, 'n': <I> % 5}
while state['n'] > 0 and state['t'].sum() < 40:
    state = {**state, 't': state['t'] + 1, 'n': state['n'] - 1}
    <loop>
<new:T> = state['t']

nested = {'a': {'b': [<T>, <T>]}}
nested['a']['b'][0] = nested['a']['b'][1] * 2
nested['a']['b'].append(nested['a']['b'][0])
<new:L> = nested['a']['b']
"""),
)

THEMES = {"caches": CACHES, "flips": FLIPS, "carriers": CARRIERS}
