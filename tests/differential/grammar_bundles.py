"""What the theme `bundles` has beside the grammar: arguments and results that come in dataclasses, named tuples and objects of the program.

`thing` is such a bundle, made of the others by `use` (`grammar_outside.py`), which changes it, dtypes, strides and the default dtype from
call to call. The program itself matches on it and has closures that count (`nonlocal`), generators that are sent and thrown into, context
managers that are left early, and functions that raise behind half of their writes.
"""

from __future__ import annotations

from tests.differential.grammar import blocks, rows
from tests.differential.grammar_outside import AFTER, CALLS, ENTRANCES, PRELUDE
from tests.differential.grammar_states import Theme

OWN = '''
@dataclasses.dataclass
class Batch:
    """What a loader gives: tensors, a number, and more of its kind."""

    data: torch.Tensor
    mask: torch.Tensor | None = None
    step: int = 0
    parts: list = dataclasses.field(default_factory=list)
    scale: float = 0.5

    def __post_init__(self):
        self.rows = self.data.shape[0]

    def to(self, dtype):
        return dataclasses.replace(self, data=self.data.to(dtype))

    def advance(self, k=1):
        self.step = (self.step + k) % 50
        return self

    def __len__(self):
        return self.rows


@dataclasses.dataclass(frozen=True)
class Frozen:
    t: torch.Tensor
    k: int = 1


@dataclasses.dataclass(slots=True)
class Slim:
    t: torch.Tensor
    k: int = 1


class Triple(collections.namedtuple("Triple", "t k rest", defaults=(None,))):
    def twice(self):
        return self._replace(t=self.t * 2, k=self.k + 1)


class Out(collections.OrderedDict):
    """A dict whose keys are attributes, as libraries of models give it."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self[name] = value


BUNDLE_KINDS = (Batch, Frozen, Slim, Triple)


def bundle(t, k):
    match k % 5:
        case 0:
            return Batch(t, step=k)
        case 1:
            return Frozen(t, k)
        case 2:
            return Slim(t, k)
        case 3:
            return Triple(t, k)
        case _:
            return Batch(t, mask=t > 0, parts=[Frozen(t, k), Triple(t, 1, Slim(t, 2))])


def unpacked(o, like):
    """The tensor of any of them."""
    match o:
        case Batch(data=t, mask=None):
            return t
        case Batch(data=t, mask=m, step=k) if k > 3:
            return t * m + k
        case Batch(data=t, parts=[first, *_]):
            return t + unpacked(first, like)
        case Frozen(t=t, k=0 | 1):
            return t
        case Frozen(t, k) if False:
            return t
        case Triple(t, int(k), None):
            return t * k
        case Triple(t, k, rest):
            return t + unpacked(rest, like)
        case Frozen() | Slim():
            return o.t - o.k
        case {"t": t, **rest}:
            return t + len(rest)
        case [t, *_]:
            return unpacked(t, like) if not isinstance(t, torch.Tensor) else t
        case torch.Tensor():
            return o
        case _:
            return like


def fill(dest, parts, most):
    """Raises behind half of its writes."""
    for i, p in enumerate(parts):
        if i >= most:
            raise ValueError("full", i)
        dest.append(p * (i + 1))
        LOG.append(i)
    return len(dest)


def meter(limit):
    count = 0
    kept = []

    def tick(t=None):
        nonlocal count, kept
        count += 1
        if t is not None:
            kept = [*kept, t][-limit:]
        return count

    def total(like):
        return sum(kept, like) if kept else like

    return tick, total


TICK, TOTAL = meter(2)


def stream(t, n):
    """A generator that is sent numbers, and tells how it ends."""
    k = 0
    try:
        while k < n:
            got = yield t + k
            k += 1 if got is None else got
    except ValueError as e:
        LOG.append(str(e))
        yield t
    finally:
        LOG.append(("closed", k))
    return t * 2


@contextlib.contextmanager
def frozen(m):
    """Parameters without gradients, for a while."""
    before = [p.requires_grad for p in m.parameters()]
    m.requires_grad_(False)
    try:
        yield m
    except KeyError as e:
        LOG.append(repr(e))
    finally:
        for p, on in zip(m.parameters(), before):
            p.requires_grad_(on)


def parts_of(o):
    """What a bundle has become."""
    if isinstance(o, Out | dict):
        return {k: parts_of(v) for k, v in o.items()}
    if isinstance(o, tuple):
        return tuple(parts_of(v) for v in o)
    if dataclasses.is_dataclass(o):
        return [type(o).__name__, *(parts_of(getattr(o, f.name)) for f in dataclasses.fields(o))]
    return tuple(o.shape) if isinstance(o, torch.Tensor) else o
'''

EXPRESSIONS = {
    "T": rows(r"""
unpacked(thing, x)
unpacked(thing, <T>)
unpacked(bundle(<T>, <I>), x)
unpacked(bundle(<T>, <I>), <T>)
unpacked([<T>, <I>], x)
unpacked({'t': <T>, 'k': <I>}, x)
unpacked(Triple(<T>, <I>).twice(), x)
Batch(<T>, scale=<F>).to(torch.float32).data
dataclasses.replace(Batch(<T>), data=<T>).data
Batch(<T>).advance(<I>).data * <F>
Frozen(<T>, <I>).t
Out(t=<T>, k=<I>).t
TOTAL(<T>)
next(stream(<T>, <I> + 1))
MOD(<T>)
<T> + len(Batch(<T>))
<T>.sin()
"""),
    "I": rows(r"""
TICK() % 20
len(Batch(<T>))
Batch(<T>, step=<I>).advance(<I>).step
Triple(<T>, <I>).k
BUNDLE_KINDS.index(type(bundle(<T>, <I>)))
getattr(thing, 'k', 3) % 7 if isinstance(getattr(thing, 'k', 3), int) else 2
"""),
    "B": rows(r"""
isinstance(thing, BUNDLE_KINDS)
isinstance(thing, Batch) and thing.mask is None
dataclasses.is_dataclass(thing)
type(thing) is Triple
hasattr(thing, 'parts')
"""),
}

STATEMENTS = rows(r"""
TICK(<T>.detach())
<new:T> = unpacked(thing, x)
<new:I> = TICK() % 20
LOG.append(parts_of(bundle(<T>, <I>)))
LOG.append(type(thing).__name__)
BOX.kept = bundle(<T>, <I>)
BOX.out = Out(t=<T>, k=<I>)
table['kept'] = <T>
""") + blocks(r"""
match thing:
    case Batch(data=d, step=s):
        thing.step = (s + 1) % 50
        thing.parts.append(<T>)
        <block>
    case Slim(t, k1):
        thing.t = <T>
        thing.k += 1
        <block>
    case Triple(t, _):
        <block>
    case _:
        <block>

<new:L> = []
try:
    fill(<=1>, <L>[:4], <I> % 4)
except ValueError as err:
    LOG.append(err.args)
    <=1>.append(<T>)
<=1>.append(<T>)

made = []
try:
    n += fill(made, <L>[:3], <I> % 4)
    table['a'] = <T>
    risky(x, n)
except (ValueError, KeyError) as err:
    LOG.append((type(err).__name__, len(made)))
finally:
    table['z'] = <T>

fill(items, <L>[:2], <I> % 4 + 1)

g = stream(<T>, <I> % 4 + 1)
<new:T> = next(g)
try:
    g.send(<I> % 2)
    <=1> = g.throw(ValueError('thrown'))
except StopIteration as end:
    LOG.append(end.value is None)
g.close()

def <fn:T>(t):
    count = 0
    def inner(k):
        nonlocal count
        count += k
        return t * count
    <func>
    inner(<I>)
    return inner(1) + <ret>
<new:T> = <=1>(<T>)

with frozen(MOD) as m:
    <new:T> = m(<T>)
    <block>

with frozen(MOD):
    risky(x, <I>)
    <new:T> = MOD(<T>)

with contextlib.ExitStack() as stack:
    stack.callback(LOG.append, 'left')
    stack.enter_context(frozen(MOD))
    if <B>:
        stack.enter_context(torch.no_grad())
    <new:T> = MOD(<T>)

out = Out(t=<T>, k=<I>)
out.loss = <C>
out['t'] = out.t * 2
LOG.append(list(out))
<new:T> = out.t

b = Batch(<T>, parts=[<T>])
b.data = b.data + 1
b.parts += [<T>]
b.advance()
<new:T> = sum(b.parts, b.data)
""")

USE_ENTRANCES = ENTRANCES + rows(r"""
thing = bundle(x, n)
thing = bundle(x, n + 1)
thing = bundle(x, n + 2)
thing = bundle(leaf(y) * 1, n)
thing = Batch(x, parts=[x, y], step=n)
thing = Batch(y, mask=x > 0, parts=[Triple(x, 2)])
thing = Slim(x, n)
thing = Out(t=x, k=n)
thing = [x, y]
thing = dataclasses.replace(Batch(x), data=y)
table = collections.OrderedDict(table)
items = collections.deque(items)
""")

USE_AFTER = AFTER + rows(r"""
LOG.append(parts_of(thing))
LOG.append(thing is BOX.__dict__.get('kept'))
LOG.append(parts_of(BOX.__dict__.get('kept')))
LOG.append(TICK())
hs.extend(heads(unpacked(thing, x)))
hs.extend(heads(unpacked(BOX.__dict__.get('kept'), x)))
hs.extend(heads(TOTAL(x)))
""") + blocks(r"""
thing = bundle(<H>, <I>)
safely('bundled', lambda: hs.extend(heads(fn(*args[:-1], thing))))

if isinstance(thing, Batch):
    thing.data = thing.data * 2
    safely('changed', lambda: hs.extend(heads(fn(*args[:-1], thing))))

with default(torch.float64):
    safely('default', lambda: hs.extend(heads(fn(*args))))

safely('turned', lambda: hs.extend(heads(fn(x.detach().t().contiguous().t(), *args[1:]))))

safely('double', lambda: hs.extend(heads(fn(x.detach().double(), y.detach().double(), *args[2:]))))

with frozen(MOD):
    safely('frozen', lambda: hs.extend(heads(fn(*args))))
""")

BUNDLES = Theme(
    PRELUDE + OWN,
    ("LOG", "MOD", "SPARE"),
    EXPRESSIONS,
    STATEMENTS,
    use=(USE_ENTRANCES, CALLS, USE_AFTER, {"H": ["hs[0]", "hs[-1]", *["pick(hs, <I>)"] * 3], "I": ["0", "1", "2", "3", "5", "7", "n"]}),
)

THEMES = {"bundles": BUNDLES}
