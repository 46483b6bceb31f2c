"""What the theme `ragged` has beside the grammar: sizes that data choose.

Rows are labelled, counted, grouped, sorted by length, split, padded, packed and put back; masks and indices pick as many as there are, none
among them; NumPy and plain Python take part in between (`tolist`, `zip`, `sorted`, `np.unique`, `np.split`); searches grow and prune what
they hold, and walk over edges. `use` (`grammar_outside.py`) calls and differentiates it.

Kinds: E rows as wide as x, as many as data say; U a 1-d tensor of small numbers, none below zero; Y a list of tensors like E.
"""

from __future__ import annotations

from tests.differential.grammar import blocks, rows
from tests.differential.grammar_outside import AFTER, CALLS, ENTRANCES, PRELUDE
from tests.differential.grammar_states import Theme

OWN = '''
import heapq
from torch.nn.utils import rnn

POOL = torch.zeros(8)
SEEN_ROWS = {}
GRU = torch.nn.GRU(4, 2, batch_first=True)
for _p in GRU.parameters():
    torch.nn.init.constant_(_p, 0.125)
EMBED = torch.nn.Embedding.from_pretrained(torch.arange(32.0).reshape(8, 4) / 8, freeze=False)


def marks(t, k=4):
    """A label for each row."""
    return (t.detach().float().nan_to_num().flatten(1).sum(1).clamp(-90, 90) * 4 + 0.3).floor().long() % k


def sizes_of(t, k=3):
    return [int(m) + 1 for m in marks(t, k)]


def wide(e, like):
    """Rows of any number, as one of each row of `like`."""
    return like + e.sum(0) if e.shape[0] % 2 else like * 0.5 + (e.max(0).values if e.shape[0] else 0.25)


def at(u, n):
    """Indices into `n` rows."""
    return u % n if n else u[:0]


def put(t, u, rows):
    """Rows written over others."""
    u = torch.unique(at(u, t.shape[0]))[: rows.shape[0]]
    return t.index_copy(0, u, rows[: u.shape[0]].to(t.dtype))


def counted(u):
    POOL.index_add_(0, u.clamp(max=7), torch.ones(u.shape[0]))
    return int(POOL.sum()) % 5


def cut(t, sizes):
    """Chunks of these sizes, and the rest."""
    sizes = [n for n, (_, end) in zip(sizes, spans(sizes)) if end <= t.shape[0]]
    return list(t.split([*sizes, t.shape[0] - sum(sizes)]))


def padded(ys, value=0.0):
    return rnn.pad_sequence(ys, batch_first=True, padding_value=value) if ys else torch.zeros(0, 0, 1)


def by_length(ys):
    order = sorted(range(len(ys)), key=lambda i: (-ys[i].shape[0], i))
    return [ys[i] for i in order], order


def grouped(t, ids):
    """The rows of each label."""
    found = collections.defaultdict(list)
    for row, i in zip(t, ids.tolist()):
        found[i].append(row)
    return {k: torch.stack(v) for k, v in sorted(found.items())}


def segments(t, ids, k):
    """Sums by label, in one of many ways."""
    out = t.new_zeros(k, t.shape[1])
    return (out.index_add(0, ids % k, t), out.scatter_add(0, (ids % k)[:, None].expand_as(t), t),
        torch.nn.functional.one_hot(ids % k, k).to(t.dtype).t() @ t)[t.shape[0] % 3]


def unpadded(p, sizes):
    return [p[i, :n] for i, n in enumerate(sizes[: p.shape[0]])]


def packed(ys):
    """There and back, by PyTorch's packing."""
    ys = [y for y in ys if y.shape[0]]
    if not ys:
        return ys
    p = rnn.pack_sequence(ys, enforce_sorted=False)
    back, sizes = rnn.pad_packed_sequence(p, batch_first=True)
    return unpadded(back, sizes.tolist())


def recurred(ys):
    ys = [torch.cat([y, y, y, y], 1)[:, :4] for y in ys if y.shape[0]]
    if not ys:
        return torch.zeros(0, 2)
    return GRU(rnn.pack_sequence([y.float() for y in ys], enforce_sorted=False))[1][0]


def edges_of(t):
    """Pairs of rows that are alike."""
    m = marks(t)
    return (m[:, None] == m[None, :]).nonzero().t()


def passed(t, edges):
    """One round of messages along edges."""
    src, dst = edges
    counts = torch.bincount(dst, minlength=t.shape[0]).clamp(min=1)
    return torch.zeros_like(t).index_add_(0, dst, t[src]) / counts[:, None]


def beam(t, width, steps):
    """A search that holds so many rows at most, and ends where none is above zero."""
    held, scores = t, t.sum(1)
    for k in range(steps):
        best = scores.topk(min(width, scores.shape[0]))
        held, scores = held[best.indices], best.values
        alive = scores > -k
        held, scores = held[alive], scores[alive]
        if held.shape[0] == 0:
            break
        held, scores = torch.cat([held, held * 0.5]), torch.cat([scores, scores - 1.5])
    return held


def kept_of(e, k):
    return e[marks(e) != k % 4]


def ordered(e):
    return e[torch.argsort(marks(e), stable=True)]


def strongest(e, k):
    return e[e.sum(1).argsort(descending=True, stable=True)[:k]]


def clustered(e, k):
    return segments(e, marks(e), k)


def taken_at(e, u):
    return e[at(u, e.shape[0])]


def windows(t, size, step=1):
    return t.unfold(0, min(size, t.shape[0]), step).flatten(1)[:, : t.shape[1]] if t.shape[0] else t


def runs(u):
    """Lengths of runs of the same number."""
    return torch.unique_consecutive(u, return_counts=True)[1]


def spans(sizes):
    ends = list(itertools.accumulate(sizes))
    return list(zip([0, *ends], ends))


def stream_of(t, sizes):
    """Chunks, until the rows are used up."""
    start = 0
    for n in sizes:
        if start >= t.shape[0]:
            return start
        yield t[start : start + n]
        start += n
    return start


class Store:
    """Rows by label, kept over calls, at most so many."""

    def __init__(self, most):
        self.rows, self.ids, self.most = [], torch.zeros(0, dtype=torch.long), most
        self.filled = 0

    def add(self, t, ids):
        self.rows = [*self.rows, *t.detach().unbind(0)][-self.most :]
        self.ids = torch.cat([self.ids, ids])[-self.most :]
        self.filled += t.shape[0]
        return len(self.rows)

    def of(self, k, like):
        own = [r for r, i in zip(self.rows, self.ids.tolist()) if i == k and r.shape == like[0].shape]
        return torch.stack(own) if own else like[:0]


STORE = Store(5)


def between(i, n):
    STORE.rows, STORE.ids = STORE.rows[n % 3 :], STORE.ids[n % 3 :]
'''

EXPRESSIONS = {
    "E": rows(r"""
x[marks(<T>) > <I> % 3]
<T>[<M>.any(1)]
<T>[<M>.all(1)]
kept_of(<E>, <I>)
<T>[at(<U>, x.shape[0])]
taken_at(<E>, <U>)
<T>.index_select(0, at(<U>, x.shape[0]))
torch.cat([<E>, <E>])
torch.cat(<Y>) if sum(t.shape[0] for t in <Y>) else x[:0]
<T>.repeat_interleave(marks(<T>), 0)
<T>.repeat_interleave(torch.tensor(sizes_of(x)), dim=0)
torch.repeat_interleave(<E>, 2, 0)
<T>[: int(marks(<T>).sum()) % (x.shape[0] + 1)]
<E>[int(<U>.sum()) % 3 :]
<E>[:: 2]
<E>.flip(0)
<E> * <F>
<E> + <R>
<E> - <E>.mean(0, keepdim=True)
torch.relu(<E>)
<E>.cumsum(0)
<E>.softmax(0)
segments(<T>, marks(<T>), 3)
clustered(<E>, <I> % 4 + 1)
torch.stack([v.sum(0) for v in grouped(<T>, marks(<T>)).values()])
torch.unique(<T>.detach(), dim=0)
beam(<T>, <I> % 3 + 1, 3)
windows(<T>, <I> % 3 + 1)
padded(<Y>).sum(1) if <Y> else x[:0]
ordered(<E>)
strongest(<E>, <I> % 3 + 1)
<T>.masked_select(<M>)[:, None] + <R>
<T>[tuple(<M>.nonzero(as_tuple=True))][:, None] * torch.ones(x.shape[1])
STORE.of(<I> % 4, x)
x.new_zeros(int(<U>.numel()) % 5, x.shape[1])
torch.from_numpy(np.repeat(<T>.detach().numpy(), np.array(sizes_of(x)), axis=0))
<T>[np.argsort(marks(<T>).numpy(), kind='stable')]
<T>[[i for i, k in enumerate(sizes_of(<T>)) if k > 1]]
<T>[<T>.sum(1).detach().numpy() > 0]
EMBED(<U>).sum(1, keepdim=True) + x[:1]
"""),
    "U": rows(r"""
marks(<T>)
marks(<E>)
marks(<T>, 3)[marks(<T>) > 0]
torch.bincount(marks(<T>), minlength=3)
torch.bincount(<U>)[:6]
torch.unique(marks(<T>))
torch.unique(<U>, return_inverse=True)[1]
torch.unique(marks(<E>), return_counts=True)[1]
runs(<U>)
runs(marks(<T>).sort().values)
<M>.any(1).nonzero().flatten()
<M>.sum(1)
(<U> > <I> % 3).nonzero()[:, 0]
torch.searchsorted(torch.arange(4), <U>)
torch.arange(len(<Y>))
torch.tensor([t.shape[0] for t in <Y>], dtype=torch.long)
torch.tensor(sizes_of(<T>))
torch.as_tensor(np.unique(marks(<T>).numpy()))
torch.from_numpy(np.bincount(marks(<T>).numpy(), minlength=2))
torch.cat([<U>, <U>])
<U>[:: 2]
<U>.sort(descending=True).values
<U>.cumsum(0) % 7
torch.nonzero(<E>.sum(1) > 0).squeeze(1)
edges_of(<T>)[1]
torch.argsort(<U>, stable=True) % 8
torch.tensor(list(itertools.accumulate(sizes_of(x)))) % 8
"""),
    "Y": rows(r"""
cut(<T>, sizes_of(x))
cut(<E>, <N>)
[<E>, <E>]
[<E>, <T>, <E>]
list(<E>.unbind(0))[:0] or [<E>]
[x[a % x.shape[0] : b] for a, b in spans(sizes_of(<T>))]
list(stream_of(<T>, sizes_of(x)))
[<T>[:n] for n in sizes_of(<T>)]
[<E>[:n] for n in <U>.tolist()[:3]] or [x]
[t * (k + 1) for k, t in enumerate(<Y>)]
[t for t in <Y> if t.shape[0]] or [<T>]
list(grouped(<T>, marks(<T>)).values())
by_length(<Y>)[0]
packed(<Y>) or [x]
unpadded(padded(<Y>), [t.shape[0] for t in <Y>])
list(torch.tensor_split(<E>, 2))
list(torch.split(<T>, [k for k in np.diff([0, x.shape[0] // 2, x.shape[0]]).tolist()]))
[torch.from_numpy(a) for a in np.split(<T>.detach().numpy(), [x.shape[0] // 2])]
[a + b for a, b in zip(<Y>, <Y>) if a.shape == b.shape] or [x]
sorted(<Y>, key=len)
[*map(torch.relu, <Y>)]
list(reversed(<Y>))[:3]
[<T>[marks(<T>) == k] for k in range(3)]
"""),
    "T": rows(r"""
wide(<E>, <T>)
wide(<E>, x)
x.index_add(0, at(marks(<T>), x.shape[0]), <T>)
put(<T>, <U>, <E>)
put(x, <U>, <T>)
x + padded(<Y>).sum() if <Y> else x
passed(<T>, edges_of(<T>))
torch.where((marks(<T>) > 1)[:, None], <T>, <T>)
<T>.masked_fill(<M>, <F>)
<T>.masked_scatter(<M>, <T>.reshape(-1))
segments(<T>, marks(<T>), x.shape[0])
<T>[torch.argsort(marks(<T>), stable=True)]
<T>[torch.argsort(marks(<T>), stable=True)][torch.argsort(torch.argsort(marks(<T>), stable=True))]
torch.cat(list(grouped(<T>, marks(<T>)).values()))
torch.cat([t for t in torch.split(<T>, 2)])
x + sum(t.sum() for t in <Y>)
x * len(<Y>) + <U>.numel()
x + recurred(<Y>).sum()
<T>.sin()
<T> / max(<E>.shape[0], 1)
x + EMBED(<U>).sum()
<T> * (<E>.shape[0] > <I>)
"""),
    "A": rows(r"""
<E>.sum(1)
<T>[<M>]
torch.cat([t.flatten() for t in <Y>])
<E>.reshape(-1)
POOL[: <U>.numel() % 8].clone()
(<U> * 0.5)
"""),
    "I": rows(r"""
<E>.shape[0] % 7
<U>.numel() % 7
len(<Y>) % 7
int(<U>.sum()) % 5
int(<M>.sum()) % 5
max(sizes_of(<T>))
max((t.shape[0] for t in <Y>), default=0)
sum(t.numel() > 2 for t in <Y>)
len(set(marks(<T>).tolist()))
STORE.filled % 5
"""),
    "B": rows(r"""
<E>.shape[0] == 0
<E>.shape[0] > <I>
<U>.numel() > 1
bool((<U> > 1).any())
bool(<M>.all())
len(<Y>) == 1
all(t.shape[0] for t in <Y>)
torch.equal(<U>, <U>)
"""),
    "N": rows(r"""
sizes_of(<T>)
[t.shape[0] for t in <Y>]
<U>.tolist()[:4]
sorted(set(<U>.tolist()))
"""),
}

STATEMENTS = rows(r"""
<new:E> = <E>
<new:E> = <E>
<new:E> = <E>
<new:U> = <U>
<new:U> = <U>
<new:Y> = <Y>
<new:Y> = <Y>
<new:T> = <T>
<E:own> = <E>
<Y:own> = <Y>
LOG.append([tuple(t.shape) for t in <Y>])
LOG.append(<U>.tolist()[:5])
LOG.append(<E>.shape[0])
STORE.add(<T>, marks(<T>))
STORE.add(<E>, marks(<E>))
POOL[: <E>.shape[0] % 8] += 0.5
counted(<U>)
n += counted(<U>)
POOL[at(<U>, 8)] = <F>
table['rows'] = <E>
BOX.ids = <U>
SEEN_ROWS[<E>.shape[0]] = <I>
""") + blocks(r"""
<new:T> = <T>.clone()
<=1>[<M>] = <F>

<new:T> = <T>.clone()
<=1>[marks(x) > 1] *= 2

<new:T> = <T>.clone()
<=1>[marks(<T>) == <I> % 4] += <R>

<new:E> = <E>.clone()
<=1>[: <I> % 3] = <F>

<new:E> = <E>.clone()
if <=1>.shape[0]:
    <=1>[-1] = <R>
    <block>

if <E>.shape[0] > <I> % 4:
    <block>
else:
    <block>

if bool((<U> > 1).any()):
    <block>

for <loc:E> in <Y>[:3]:
    LOG.append(<=1>.shape[0])
    <loop>

for <loc:E> in <Y>[:3]:
    if not <=1>.shape[0]:
        continue
    <block>
    if <B>:
        break

for <loc:I>, <loc:E> in grouped(<T>, marks(<T>)).items():
    table['a'] = table['a'] + <=2>.sum()
    <block>

<new:Y> = []
for <loc:I>, <loc:E> in zip(sizes_of(<T>)[:4], <Y>):
    <=1>.append(<=3>[: <=2>])
    if <B>:
        <=1>.append(<E>)
<=1> = <=1> or [x]

<new:E> = <E>
k0 = 0
while <=1>.shape[0] > 1 and k0 < 3:
    <=1> = <=1>[<=1>.shape[0] // 2 :]
    k0 += 1
    <block>

<new:E> = <E>
for k1 in range(3):
    <loc:M> = <=1> > k1 * 0.5
    if not bool(<=2>.any()):
        break
    <=1> = <=1>[<=2>.any(1)]
    LOG.append(k1)

g = stream_of(<T>, sizes_of(x))
<new:T> = <T>
try:
    while True:
        <=1> = <=1> + next(g).sum(0)
except StopIteration as end:
    LOG.append(end.value)

ys, order = by_length(<Y>)
<new:E> = torch.cat(ys)
LOG.append(order)

try:
    <new:T> = x + <E>[<I>]
except IndexError:
    LOG.append('none there')
    <=1> = x

try:
    <new:T> = <T> + <E>
except RuntimeError:
    LOG.append('other sizes')
    <=1> = <T>

try:
    n += len(<Y>)
    table['z'] = torch.stack(<Y>).sum(0).sum(0) + x
except RuntimeError:
    table['z'] = <T>
finally:
    LOG.append(n)

with torch.no_grad():
    <new:E> = <E>
    POOL.mul_(0.5)
    <block>

def <fn:T>(t):
    picked = t[marks(t) > 0]
    <func>
    return wide(picked, <ret>)
<new:T> = <=1>(<T>)

values, inverse, counts = torch.unique(<U>, return_inverse=True, return_counts=True)
<new:U> = counts[inverse]
<new:I> = values.numel() % 7

order = np.lexsort((np.arange(x.shape[0]), marks(<T>).numpy()))
<new:T> = <T>[torch.from_numpy(order)]
LOG.append(order.tolist())

starts = np.cumsum([0] + sizes_of(<T>))
<new:E> = <T>[torch.as_tensor(starts[starts < x.shape[0]])]
LOG.append(int(starts[-1]))

best = max(<Y>, key=lambda t: (t.shape[0], float(t.detach().sum())))
<new:E> = best * 2

fits = [i for i, (a, b) in enumerate(zip(<Y>, <Y>)) if a.shape == b.shape]
LOG.append(fits)
<new:T> = x + len(fits)

summed = {}
for r, m in zip(<E>, <U>.tolist()):
    summed[m] = summed[m] + r if m in summed else r
<new:T> = x + sum(summed.values())

lengths = torch.tensor(sizes_of(<T>))
inside = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
<new:A> = inside.double() @ torch.linspace(0, 1, inside.shape[1], dtype=torch.double)
<new:U> = inside.sum(0)

ids = marks(x)
<new:E> = torch.zeros(int(ids.max()) + 1, x.shape[1]).index_reduce_(0, ids, <T>.float(), 'amax')
<new:U> = ids

heap = []
for i, m in enumerate(marks(<T>).tolist()):
    heapq.heappush(heap, (m, i))
<new:E> = x[[heapq.heappop(heap)[1] for _ in range(min(2, len(heap)))]]

<new:U> = <U>
assert not <=1>.numel() or <=1>.min() >= 0
torch._check(<=1>.shape[0] < 1000)
<block>
""")

USE_AFTER = AFTER + rows(r"""
LOG.append(POOL.tolist())
LOG.append(len(STORE.rows))
LOG.append(sorted(SEEN_ROWS))
note('embedding', *slope(hs[-1], EMBED.weight))
note('embedding', *slope(<H>, EMBED.weight))
""") + blocks(r"""
safely('one', lambda: hs.extend(heads(fn(x[:1], y[:1], *args[2:]))))

safely('more', lambda: hs.extend(heads(fn(torch.cat([x, y]), torch.cat([y, x]), *args[2:]))))

safely('none', lambda: hs.extend(heads(fn(x * 0, y * 0, *args[2:]))))

safely('minus', lambda: hs.extend(heads(fn(-x, -y, *args[2:]))))

for part in torch.cat([x, y]).split([1, 2 * x.shape[0] - 1] if x.shape == y.shape else [x.shape[0], y.shape[0]]):
    if part.shape[0]:
        safely('part', lambda: hs.extend(heads(fn(part, part, *args[2:]))))
""")

RAGGED = Theme(
    PRELUDE + OWN,
    ("LOG", "MOD", "SPARE", "POOL", "STORE", "SEEN_ROWS", "EMBED"),
    EXPRESSIONS,
    STATEMENTS,
    use=(ENTRANCES, CALLS, USE_AFTER, {"H": ["hs[0]", "hs[-1]", *["pick(hs, <I>)"] * 3], "I": ["0", "1", "2", "3", "5", "7", "n"]}),
)

THEMES = {"ragged": RAGGED}
