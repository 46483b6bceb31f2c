"""What the theme `keepers` has beside the grammar: what a call leaves behind, and other calls and what is around them take up.

Programs keep generators half way through, coroutines, exceptions with tensors in them, closures, objects with descriptors, slots and a
metaclass, views as other dtypes and of other strides, arrays over their results and copies of modules. `use` (`grammar_outside.py`)
drives, throws, writes and differentiates these between calls and hands them back; modules are taken apart and put together again,
copied, pickled, cast and tied, and optimizers get groups, rates and closures.
"""

from __future__ import annotations

from tests.differential.grammar import blocks, rows
from tests.differential.grammar_outside import AFTER, CALLS, ENTRANCES, PRELUDE
from tests.differential.grammar_states import Theme

OWN = '''
import pickle, weakref

KEPT = {}


class Scaled:
    """A descriptor whose values are told by the class of the day."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, o, owner=None):
        return self if o is None else o.__dict__[self.name] * owner.unit

    def __set__(self, o, value):
        LOG.append(("set", self.name))
        o.__dict__[self.name] = value


class Counting(type):
    """A class of classes that counts, and answers for what they lack."""

    def __call__(cls, *args, **kw):
        cls.made = (cls.made + 1) % 50
        return super().__call__(*args, **kw)

    def __getattr__(cls, name):
        if name == "level":
            return cls.unit + 1
        raise AttributeError(name)

    def __len__(cls):
        return cls.made


class Cell(metaclass=Counting):
    made = 0
    unit = 2
    t = Scaled()

    def __init__(self, t, k=1):
        self.t = t
        self.k = k

    def __getattr__(self, name):
        if name.startswith("__") or name == "gone":
            raise AttributeError(name)
        return self.k + len(name)

    @property
    def half(self):
        return self.t * 0.5

    @half.setter
    def half(self, value):
        self.t = value * 2

    @functools.cached_property
    def total(self):
        return self.t.sum()

    def __iadd__(self, other):
        self.t = self.t + other
        return self


class Narrow(Cell):
    unit = 3

    def __getattribute__(self, name):
        if name == "k":
            return 4
        return super().__getattribute__(name)


class Slotted:
    __slots__ = ("t", "k", "__weakref__")

    def __init__(self, t, k=1):
        self.t, self.k = t, k


class Stop(Exception):
    def __init__(self, t, k):
        super().__init__("stop", k)
        self.t = t


def stopping(t, k):
    if k % 2:
        raise Stop(t * 2, k)
    return t


def caught(t, k):
    try:
        return stopping(t, k)
    except Stop as e:
        KEPT["error"] = e
        return e.t


class Tally(torch.autograd.Function):
    """A function with a state of its class."""

    calls = 0

    @staticmethod
    def forward(ctx, t, k):
        Tally.calls = (Tally.calls + 1) % 7
        ctx.k = k
        ctx.save_for_backward(t)
        return t * t * k

    @staticmethod
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        return 2 * g * t * ctx.k, None


def steps(t, n):
    """A generator that may be left half way through."""
    total = t
    for i in range(n):
        got = yield total
        LOG.append(i)
        total = total * 2 if got is None else total + got
    return total


class Ready:
    def __init__(self, k):
        self.k = k

    def __await__(self):
        got = yield self.k
        return self.k if got is None else got


async def later(t, n):
    total = t
    for i in range(n % 4):
        total = total + await Ready(i)
    return total


def awaited(c, *sent):
    """What a coroutine gives in the end."""
    try:
        c.send(None)
        for s in sent:
            c.send(s)
        while True:
            c.send(None)
    except StopIteration as e:
        return e.value


def started(t, n):
    c = later(t, n)
    try:
        c.send(None)
    except StopIteration as e:
        return None
    return c


def keeper(t, k):
    """Functions over one cell."""
    kept = t

    def add(u):
        nonlocal kept, k
        kept = kept + u
        k = (k + 1) % 9
        return kept * k

    def read():
        return kept - k

    return add, read


KINDS = {torch.float32: torch.int32, torch.float64: torch.int64, torch.bfloat16: torch.int16}


def bits(t):
    """The same memory as ints."""
    return t.detach().view(KINDS[t.dtype])


def strip(t, n=1):
    """The first rows, by their place in memory."""
    return t.as_strided((min(n, t.shape[0]), t.shape[1]), t.stride(), t.storage_offset())


def again(t):
    return t.as_strided(t.size(), t.stride())


def taken(name, like):
    """What is kept under this name, if it suits."""
    t = KEPT.get(name)
    return t if isinstance(t, torch.Tensor) and t.dim() == 2 and t.shape[1] == like.shape[1] and t.dtype == like.dtype else like[:1]


class Layer(torch.nn.Module):
    def __init__(self, w, k=1):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor(w))
        self.register_buffer("shift", torch.tensor(0.25))
        self.act = torch.nn.Identity()
        self.k = k

    def forward(self, t):
        return self.act(t * self.w + self.shift) * self.k

    def __getstate__(self):
        return {**self.__dict__, "copied": True}


NET = torch.nn.Sequential(collections.OrderedDict(a=Layer(0.5), b=Layer(-0.75), c=torch.nn.Tanh()))
STEPPER = torch.optim.SGD(NET.parameters(), lr=0.25)


def closed(t):
    """A step whose loss the optimizer asks for."""
    def closure():
        STEPPER.zero_grad()
        loss = NET(t.detach()).pow(2).mean()
        if loss.requires_grad:
            loss.backward()
        return loss

    return STEPPER.step(closure).detach()


def fresh(groups=1):
    global STEPPER
    params = [p for p in NET.parameters()]
    if not params:
        return
    kinds = (
        lambda: torch.optim.SGD(params, lr=0.125, momentum=0.5),
        lambda: torch.optim.Adam([{"params": params[:1], "lr": 0.25}, {"params": params[1:]}] if params[1:] else params, lr=0.125),
        lambda: torch.optim.SGD(params[:1], lr=0.25),
        lambda: torch.optim.RMSprop(params, lr=0.125),
    )
    STEPPER = kinds[groups % 4]()


def added():
    held = {p for g in STEPPER.param_groups for p in g["params"]}
    more = [p for p in NET.parameters() if p not in held]
    if more:
        STEPPER.add_param_group({"params": more, "lr": 0.5})


def pickled(m):
    return pickle.loads(pickle.dumps(m))


def doubled(m, a, out):
    return out * 2


def tied():
    NET.b.w = NET.a.w


plainly = Layer.forward


def otherwise(self, t):
    return plainly(self, t) + self.k


def replaced(n):
    global NET
    NET = (copy.deepcopy, copy.copy)[n % 2](NET)


SURGERY = [
    lambda n: setattr(NET, "a", copy.deepcopy(NET.a)),
    lambda n: setattr(NET, "b", copy.copy(NET.a)),
    lambda n: tied(),
    lambda n: setattr(NET.b, "w", torch.nn.Parameter(NET.b.w.detach().clone())),
    lambda n: setattr(NET.a, "act", (torch.nn.Identity(), torch.nn.ReLU(), torch.nn.Hardtanh(-n, n + 1), Layer(0.5))[n % 4]),
    lambda n: NET.add_module("d", Layer(0.5, n % 3)),
    lambda n: delattr(NET, "d") if hasattr(NET, "d") else setattr(NET, "c", (torch.nn.Tanh(), torch.nn.Sigmoid())[n % 2]),
    lambda n: NET.double() if n % 3 == 0 else NET.float(),
    lambda n: NET.b.requires_grad_(n % 2 == 0),
    lambda n: NET.train(n % 2 == 0),
    lambda n: setattr(NET.a, "k", (1, 2, 0.5, True, n)[n % 5]),
    lambda n: NET.load_state_dict({"a.w": torch.tensor(n / 4)}, strict=False),
    lambda n: NET.load_state_dict({"a.w": torch.tensor(n / 4), "a.shift": torch.tensor(0.5)}, strict=False, assign=True),
    lambda n: setattr(NET.a, "shift", torch.tensor(n / 8)),
    lambda n: NET.a.register_buffer("shift", torch.full((1,) * (n % 2), 0.125), persistent=n % 3 == 0),
    lambda n: NET.a.w.data.fill_(n / 4),
    lambda n: setattr(NET.a.w, "data", torch.tensor(n / 8)),
    lambda n: setattr(NET.a.w, "grad", torch.ones_like(NET.a.w)),
    lambda n: KEPT.update(handle=NET.a.register_forward_hook(doubled)),
    lambda n: KEPT.pop("handle").remove() if "handle" in KEPT else None,
    lambda n: NET.b.register_parameter("w", torch.nn.Parameter(torch.full((1,), n / 4))),
    lambda n: NET.b.__dict__.update(extra=n),
    lambda n: setattr(NET.a, "w", NET.b.w),
    lambda n: fresh(n),
    lambda n: added(),
    lambda n: [g.update(lr=n / 16) for g in STEPPER.param_groups],
    lambda n: STEPPER.step(),
    lambda n: STEPPER.zero_grad(set_to_none=n % 2 == 0),
    lambda n: STEPPER.load_state_dict(copy.deepcopy(STEPPER.state_dict())),
    lambda n: replaced(n),
    lambda n: setattr(Layer, "forward", (plainly, otherwise)[n % 2]),
    lambda n: setattr(Cell, "unit", (2, 0.5, 3)[n % 3]),
    lambda n: setattr(Narrow, "unit", n % 4 + 1),
    lambda n: setattr(Cell, "t", Scaled()) or Cell.__dict__["t"].__set_name__(Cell, "t"),
    lambda n: setattr(Cell, "total", functools.cached_property(lambda self: self.t.mean()))
    or Cell.__dict__["total"].__set_name__(Cell, "total"),
    lambda n: setattr(Cell, "half", property(lambda self: self.t * n, lambda self, v: None)),
    lambda n: setattr(Counting, "__getattr__", lambda cls, name: n),
    lambda n: setattr(Cell, "extra", n) if n % 2 else Cell.__dict__.get("extra") and delattr(Cell, "extra"),
    lambda n: setattr(Tally, "calls", n),
]


def operate(n):
    with torch.inference_mode(False):
        safely("operated", lambda: SURGERY[n % len(SURGERY)](n))


def stale(fn, args):
    """Histories through weights that were written since are refused by node, which is a known difference: fresh ones."""
    KEPT.clear()
    return heads(safely("fresh", lambda: fn(*args)))


outside_between = between


def between(i, n):
    outside_between(i, n)
    operate(i * 11 + n * 5)
    operate(i * 3 + n)
'''

EXPRESSIONS = {
    "T": rows(r"""
NET(<T>).to(x.dtype)
NET(<T>)
NET.a(<T>) * NET.b.w
Tally.apply(<T>, <I>)
Tally.apply(NET(<T>), 2)
Cell(<T>, <I>).t
Cell(<T>).half
Narrow(<T>, <I>).t * Narrow(<T>).k
Slotted(<T>).t
caught(<T>, <I>)
next(steps(<T>, <I> + 1))
awaited(later(<T>, <I>))
awaited(later(<T>, <I>), 2)
keeper(<T>, <I>)[0](<T>)
taken('view', x) + <T>
taken('view', x)
taken('out', x) * <T>
strip(<T>, <I> + 1).sum(0) + <T>
again(<T>)
again(<T:var>).mul(2)
KEPT['pair'][0](<T>) if 'pair' in KEPT and KEPT['pair'][1]().shape == x.shape else <T>
KEPT['cell'].t.sum() * <T> if 'cell' in KEPT else <T>
KEPT['error'].t.mean() + <T> if 'error' in KEPT else <T>
(bits(<T>) > 0) * <T>
<T> * <T>
copy.deepcopy(NET)(<T>)
<T>.detach() * 2
"""),
    "C": rows(r"""
Cell(<T>).total
NET.a.w * <C>
closed(<T>)
sum(p.sum() for p in NET.parameters())
NET.a.shift.sum()
"""),
    "I": rows(r"""
Cell.made
len(Cell)
Cell.level if isinstance(Cell.level, int) else 3
Cell(<T>, <I>).ab % 9
len(NET)
len(list(NET.parameters()))
len(STEPPER.param_groups)
Tally.calls
Narrow(<T>).k
sum(p.requires_grad for p in NET.parameters())
"""),
    "B": rows(r"""
'error' in KEPT
hasattr(Cell(<T>), 'gone')
hasattr(Cell, 'extra')
NET.a.w is NET.b.w
NET.a.w.requires_grad
NET.training
NET.a.w.grad is None
'copied' in NET.a.__dict__
"""),
}

STATEMENTS = rows(r"""
<new:T> = NET(<T>)
KEPT['gen'] = steps(<T>, <I> + 2)
KEPT['pair'] = keeper(<T>, <I>)
KEPT['cell'] = Cell(<T>, <I>)
KEPT['slot'] = Slotted(<T>, <I>)
KEPT['out'] = <T>
KEPT['view'] = <T>[:1]
KEPT['view'] = strip(<T:var>)
KEPT['bits'] = bits(<T:var>)
KEPT['array'] = <T>.detach().numpy()
KEPT['net'] = copy.deepcopy(NET)
KEPT['coro'] = started(<T>, <I>)
KEPT['partial'] = functools.partial(torch.add, <T>)
KEPT['method'] = <T>.mul
LOG.append(Cell.made)
operate(<I>)
operate(<I> + 9)
operate(<I> + 18)
operate(<I> + 27)
""") + blocks(r"""
KEPT['gen'] = g = steps(<T>, 3)
<new:T> = next(g)
<block>

g = KEPT.get('gen')
if g is not None:
    for v in g:
        LOG.append(tuple(v.shape))

c = Cell(<T>, <I>)
c.half = <T>
c += 1
<new:T> = c.t
KEPT['cell'] = c

s = KEPT.get('slot')
if s is not None and s.t.shape == x.shape:
    s.t = s.t + <T>
    s.k += 1

try:
    <new:T> = stopping(<T>, <I>)
except Stop as e:
    KEPT['error'] = e
    <=1> = e.t * 2
    <block>

if 'error' in KEPT:
    try:
        raise KEPT['error']
    except Stop as e:
        LOG.append(e.args)

try:
    <block>
    raise Stop(<T>, <I>)
except Stop as e:
    BOX.kept = e.t

v = KEPT.get('view')
if v is not None and not v.requires_grad and not v.is_inference():
    v.mul_(2)

h = <T>.detach().clone()
b = bits(h)
b.bitwise_and_(-2)
<new:T> = h + 1

h = <T> * 1
w = strip(h, <I> + 1)
w.mul_(2)
<new:T> = h * <T>

h = <T>.detach().clone()
a = h.numpy()
a[:1] += 1
KEPT['array'] = a
<new:T> = h

async def <fn:T>(t):
    <func>
    t = t + await Ready(<I>)
    return t * 2
<new:T> = awaited(<=1>(<T>))

class Local(Cell):
    unit = (lambda: <I>)() % 3 + 1
    def more(self):
        return self.t + self.k
<new:T> = Local(<T>, 2).more()

with torch.no_grad():
    for p in NET.parameters():
        p.mul_(0.5)
    <block>

loss = NET(<T>.detach()).pow(2).mean()
if loss.requires_grad:
    loss.backward()
    STEPPER.step()
<new:C> = loss.detach()

STEPPER.zero_grad()
<new:C> = closed(<T>)
""")

USE_ENTRANCES = ENTRANCES + rows(r"""
KEPT['view'] = x[:1]
KEPT['view'] = strip(x.detach())
KEPT['out'] = y
KEPT['cell'] = Cell(x, n)
KEPT['gen'] = steps(leaf(y), 3)
KEPT['error'] = Stop(leaf(x) * 2, n)
KEPT['pair'] = keeper(y, n)
KEPT['slot'] = Slotted(y, n)
operate(n * 3)
operate(n + 20)
thing = Cell(x, n)
thing = steps(x, 2)
thing = Slotted(y, n)
table['b'] = again(x)
""")

USE_AFTER = AFTER + rows(r"""
safely('next', lambda: hs.extend(heads(next(KEPT['gen']))) if 'gen' in KEPT else None)
safely('sent', lambda: hs.extend(heads(KEPT['gen'].send(n))) if 'gen' in KEPT else None)
safely('coro', lambda: hs.extend(heads(awaited(KEPT['coro']))) if KEPT.get('coro') else None)
safely('error', lambda: hs.extend(heads(KEPT['error'].t)) if 'error' in KEPT else None)
safely('pair', lambda: hs.extend(heads(KEPT['pair'][0](<H>), KEPT['pair'][1]())) if 'pair' in KEPT else None)
safely('cell', lambda: hs.extend(heads(KEPT['cell'].t, KEPT['cell'].half)) if 'cell' in KEPT else None)
safely('slot', lambda: hs.extend(heads(KEPT['slot'].t)) if 'slot' in KEPT else None)
safely('out', lambda: hs.extend(heads(taken('out', x), taken('view', x))))
safely('partial', lambda: hs.extend(heads(KEPT['partial'](1))) if 'partial' in KEPT else None)
safely('method', lambda: hs.extend(heads(KEPT['method'](3))) if 'method' in KEPT else None)
safely('bits', lambda: KEPT['bits'].bitwise_and_(-4) if 'bits' in KEPT else None)
safely('view', lambda: KEPT['view'].detach().mul_(2) if 'view' in KEPT else None)
safely('net', lambda: hs.extend(heads(KEPT['net'](x.float()))) if 'net' in KEPT else None)
safely('weights', lambda: note('weights', *slope(<H>, *NET.parameters())))
safely('pickled', lambda: LOG.append([p.detach() for p in pickled(NET.a).parameters()]))
LOG.append(list(NET.state_dict()))
LOG.append([p.detach().clone() for p in NET.parameters()])
LOG.append((Cell.made, Tally.calls, len(STEPPER.param_groups)))
LOG.append([k for k, v in KEPT.items()])
LOG.append(KEPT['cell'].__dict__.get('k') if 'cell' in KEPT else None)
KEPT.clear()
""") + blocks(r"""
operate(<I> * 3 + n)
hs = stale(fn, args)

operate(<I> * 5 + n)
hs = stale(fn, args)

safely('step', lambda: STEPPER.step())
hs = stale(fn, args)

safely('closed', lambda: LOG.append(closed(x)))
hs = stale(fn, args)

KEPT['out'] = <H>
KEPT['view'] = pick(hs, n)[:1]
safely('handed', lambda: hs.extend(heads(fn(*args))))

safely('changed', lambda: KEPT['array'].__iadd__(1) if 'array' in KEPT else None)
safely('after', lambda: hs.extend(heads(fn(*args))))

NET.float()
safely('floats', lambda: hs.extend(heads(fn(*args))))

if 'gen' in KEPT:
    safely('thrown', lambda: KEPT['gen'].throw(ValueError('thrown')))
    safely('closed', lambda: KEPT['gen'].close())
""")

KEEPERS = Theme(
    PRELUDE + OWN,
    ("LOG", "MOD", "SPARE", "NET"),
    EXPRESSIONS,
    STATEMENTS,
    use=(USE_ENTRANCES, CALLS, USE_AFTER, {"H": ["hs[0]", "hs[-1]", *["pick(hs, <I>)"] * 3], "I": ["0", "1", "2", "3", "5", "7", "n"]}),
)

THEMES = {"keepers": KEEPERS}
