"""What the themes `casts`, `arrays` and `names` have beside the grammar: dtypes, and memory that has several names.

`casts`: dtypes mixed, autocast on and off and nested. `arrays`: NumPy's arrays and tensors over the same memory, views of both, writes
through either. `names` (differentiated): views and writes in place through several names, with gradients.
"""

from __future__ import annotations

from tests.differential.grammar import blocks, rows
from tests.differential.grammar_states import Theme

CASTS = Theme(
    '''
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool, torch.int16]
HALVES = [torch.bfloat16, torch.float16]
LINEAR = {}
SCALES = {"a": torch.tensor(2.0), "b": torch.tensor(3, dtype=torch.int32)}
SCALES |= {"c": torch.tensor(0.5, dtype=torch.float64), "d": torch.tensor(True)}
POOL = [torch.zeros(2), torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.int64)]


def cast(t, k):
    return t.to(DTYPES[k % len(DTYPES)])


def half(t, k):
    return t.to(HALVES[k % 2])


def linear(width):
    if width not in LINEAR:
        torch.manual_seed(width)
        LINEAR[width] = torch.nn.Linear(width, width).requires_grad_(False)
    return LINEAR[width]


def product(t, on=True, k=0):
    with torch.autocast("cpu", dtype=HALVES[k % 2], enabled=on):
        return t @ t.t()


def mixed(t, k):
    """Out of autocast in the middle."""
    with torch.autocast("cpu", dtype=HALVES[k % 2]):
        a = linear(t.shape[1])(t)
        b = a.softmax(-1)
        with torch.autocast("cpu", enabled=False):
            c = a.float() @ t.t()
        d = t @ t.t() + c
    return a, b, c, d


@torch.autocast("cpu", dtype=torch.bfloat16)
def decorated_cast(t):
    return t @ t.t(), t.sum(), torch.nn.functional.layer_norm(t, t.shape[-1:])


def told(*ts):
    return [str(t.dtype)[6:] for t in ts]


def back(t, like):
    """A tensor like the others of the program."""
    t = t.float() if t.dtype is not torch.float32 else t
    return t if t.shape == like.shape else like + t.sum().nan_to_num(0.0, 0.0, 0.0)


def integers(t):
    return t.mul(4).to(torch.int64)


@contextlib.contextmanager
def default(dtype):
    was = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(was)


def accumulated(parts):
    total = None
    for t in parts:
        total = t.clone() if total is None else total + t
    return total
''',
    ("LINEAR", "SCALES", "POOL"),
    {
        "T": rows(r"""
back(cast(<T>, <I>), x)
back(cast(<T>, <I>) + cast(<T>, <I>), x)
back(cast(<T>, <I>) * <F>, x)
back(cast(<T>, <I>) + <I>, x)
back(half(<T>, <I>) @ half(<T>, <I>).t(), x)
back(product(<T>, <B>, <I>), x)
back(mixed(<T>, <I>)[<I> % 4], x)
back(decorated_cast(<T>)[<I> % 3], x)
back(torch.where(<M>, cast(<T>, <I>), cast(<T>, <I>)), x)
back(torch.where(<M>, half(<T>, <I>), <F>), x)
back(cast(<T>, <I>) * SCALES['abcd'[<I> % 4]], x)
back(integers(<T>) // (<I> % 3 + 1), x)
back(integers(<T>) % (<I> % 3 + 1), x)
back(integers(<T>) / (<I> % 3 + 1), x)
back(integers(<T>).sum(0, dtype=DTYPES[<I> % 9]), x)
back(integers(<T>).cumsum(0), x)
back((<M>).cumsum(1), x)
back(accumulated([cast(t, i) for i, t in enumerate(<L>)]), x)
back(torch.cat([cast(<T>, <I>), cast(<T>, <I>)]), x)
back(torch.stack([half(<T>, 0), <T>]).mean(0), x)
back(half(<T>, <I>).softmax(-1, dtype=torch.float32), x)
back(half(<T>, <I>).type_as(<T>), x)
back(<T>.view(torch.int32) >> 3, x)
back(torch.bitwise_and(integers(<T>), <I>), x)
back(torch.addcmul(<T>, <T>, <T>, value=<F>), x)
back(torch.maximum(cast(<T>, <I>), cast(<T>, <I>)), x)
back(torch.lerp(half(<T>, 1), half(<T>, 1), <F>), x)
back(half(<T>, <I>).pow(2).mean(-1, keepdim=True).rsqrt() * <T>, x)
back(cast(<T>, <I>).clamp(-1, 2), x)
back(cast(<T>, <I>).abs().max(0).values, x)
back(torch.nn.functional.gelu(half(<T>, <I>)), x)
back(torch.full((2,), <F>, dtype=DTYPES[<I> % 9]), x)
back(torch.full_like(cast(<T>, <I>), <I>), x)
back(torch.arange(<I> % 5, dtype=DTYPES[<I> % 6]), x)
back(half(<T>, 0).unsqueeze(-1).expand(-1, -1, 2).sum(-1), x)
back(torch.complex(<T>, <T>).abs(), x)
back(cast(<T>, <I>).to(x), x)
back(cast(<T>, <I>).neg(), x)
back(half(<T>, <I>).div(<F>, rounding_mode='floor'), x)
back(POOL[<I> % 3], x)
back(torch.quantize_per_tensor(<T>, 0.1, 10, torch.quint8).dequantize(), x)
"""),
        "S": rows(r"""
str(told(cast(<T>, <I>) + cast(<T>, <I>)))
str(told(*mixed(<T>, <I>)))
str(told(*decorated_cast(<T>)))
str(told(product(<T>, <B>)))
str(torch.result_type(cast(<T>, <I>), <F>))
str(torch.promote_types(DTYPES[<I> % 9], DTYPES[<I> % 9]))
str((cast(<T>, <I>) * SCALES['abcd'[<I> % 4]]).dtype)
str(torch.tensor(<F>).dtype)
str(torch.tensor([<I>, <F>]).dtype)
"""),
        "B": rows(r"""
cast(<T>, <I>).is_floating_point()
torch.is_autocast_enabled('cpu')
cast(<T>, <I>).dtype == cast(<T>, <I>).dtype
torch.can_cast(DTYPES[<I> % 9], DTYPES[<I> % 9])
cast(<T>, <I>).dtype in (torch.float32, torch.int64)
"""),
        "I": rows(r"""
cast(<T>, <I>).element_size()
cast(<T>, <I>).dtype.itemsize
DTYPES.index(cast(<T>, <I>).dtype)
integers(<T>).sum().item() % 30
"""),
        "F": rows(r"""
torch.finfo(half(<T>, <I>).dtype).eps
half(<T>, <I>).sum().item() if x.numel() else 0.5
float(integers(<T>).sum())
float(half(<C>, <I>))
"""),
    },
    rows(r"""
SCALES['a'] = cast(<C>, <I>)
SCALES['b'].add_(<I>)
SCALES['c'].mul_(<F>)
POOL[<I> % 3].add_(<I> % 3)
POOL[0].copy_(half(<C>, <I>))
POOL[2].copy_(<C>)
POOL.append(POOL.pop(0))
SEEN.append(told(cast(<T>, <I>)))
<new:T> = back(mixed(<T>, <I>)[<I> % 4], x)
""")
    + blocks(r"""
with torch.autocast('cpu', dtype=HALVES[<I> % 2], enabled=<B>):
    <new:T> = back(<T> @ <T>.t(), x)
    SEEN.append(told(<T> @ <T>.t(), <T>.sum(), torch.exp(<T>)))
    <block>

with torch.autocast('cpu', dtype=torch.bfloat16):
    p = <T> @ <T>.t()
    with torch.autocast('cpu', enabled=<B>):
        q = <T> @ <T>.t()
        <block>
    <new:T> = back(p.to(q.dtype) + q, x)

with default(DTYPES[<I> % 2]):
    made = torch.zeros(2) + <F>
    SEEN.append(told(made, torch.ones(1) * <I>, torch.tensor(0.5), torch.arange(2) / 2))
    <new:T> = back(made, x)
    <block>

t = half(<T>, <I>).clone()
t += <T>
t.mul_(<F>)
<new:T> = back(t, x)

t = integers(<T>)
try:
    t += <F>
except RuntimeError as err:
    SEEN.append(str(err)[:40])
<new:T> = back(t, x)

t = <T>.clone()
t[<M>] = half(<C>, <I>).to(DTYPES[<I> % 2])
t[0:1] = integers(<T>)[0:1]
<new:T> = t

acc = torch.zeros(x.shape, dtype=torch.float64)
for t in <L>[:5]:
    acc += cast(t, <I>)
    <loop>
<new:T> = back(acc, x)

for dtype in DTYPES[: <I> % 5]:
    v = <T>.to(dtype)
    SEEN.append((str(v.dtype), v.element_size()))
    <block>

out = torch.empty(x.shape, dtype=DTYPES[<I> % 3])
torch.add(<T>, <T>, out=out)
<new:T> = back(out, x)
"""),
)

ARRAYS = Theme(
    '''
BUFFER = np.arange(24, dtype=np.float32).reshape(6, 4) / 4
SHARED = torch.from_numpy(BUFFER)
COUNTS = np.zeros(4, dtype=np.int64)
RECORDS = np.zeros(3, dtype=[("a", np.float32), ("b", np.int32)])
HELD = {"row": BUFFER[1], "column": SHARED[:, 1], "turned": BUFFER.T, "flat": SHARED.view(-1)}


def arr(t):
    return t.detach().numpy()


def lent(t):
    """A tensor over the memory of an array over the memory of a tensor."""
    return torch.from_numpy(arr(t))


def fit(a, like):
    """A tensor like the others of the program, of any array or tensor."""
    t = torch.as_tensor(np.ascontiguousarray(a)).float()
    return t if t.shape == like.shape else like + t.sum()


def standard(a):
    return (a - a.mean()) / (a.std() + 1)


def padded_to(a, n):
    out = np.zeros((n, *a.shape[1:]), dtype=a.dtype)
    out[: min(n, len(a))] = a[:n]
    return out


def between(i, n):
    BUFFER[i % 6] = n / 4
    SHARED[:, n % 4] += 1
    COUNTS[i % 4] += n
''',
    ("BUFFER", "SHARED", "COUNTS", "RECORDS", "HELD"),
    {
        "T": rows(r"""
lent(<T>) + 1
fit(arr(<T>), x)
fit(arr(<T>) * <F>, x)
fit(arr(<T>) + arr(<T>), x)
fit(arr(<T>).T, x)
fit(np.maximum(arr(<T>), <F>), x)
fit(np.where(arr(<T>) > <F>, arr(<T>), 0), x)
fit(np.concatenate([arr(<T>), arr(<T>)])[: x.shape[0]], x)
fit(np.stack([arr(<T>), arr(<T>)]).sum(0), x)
fit(arr(<T>)[::-1], x)
fit(padded_to(arr(<T>), x.shape[0]), x)
fit(standard(arr(<T>)) if x.numel() else arr(x), x)
fit(np.cumsum(arr(<T>), axis=0), x)
fit(arr(<T>).reshape(-1)[: <I> % 5], x)
fit(BUFFER[<I> % 6], x)
fit(BUFFER[:, <I> % 4] @ BUFFER[:, 1], x)
fit(vec, x)
fit(vec * <F>, x)
fit(np.sort(vec), x)
<T> + SHARED[<I> % 6].sum()
<T> + HELD['column'].sum()
<T> * float(HELD['row'].sum())
<T> + HELD['flat'][<I> % 24]
<T> * COUNTS[<I> % 4]
<T> + np.float32(<F>)
<T> * np.int64(<I>)
torch.tensor(arr(<T>)) - 1
torch.as_tensor(arr(<T>)[:]) * 2
torch.from_numpy(arr(<T>).copy()) + <T>
torch.from_numpy(np.asarray(<T>.detach())) + 0
<T>[torch.from_numpy(np.arange(x.shape[0])[::-1].copy())]
<T> + torch.from_numpy(RECORDS['a']).sum()
fit(np.einsum('ij,ij->i', arr(<T>), arr(<T>)), x)
fit(np.clip(arr(<T>), -1, 1).astype(np.float64), x)
fit(np.outer(vec, vec), x)
"""),
        "R": rows(r"""
torch.from_numpy(arr(<T>).sum(0))
lent(<T>)[: <I> % 3].sum(0)
"""),
        "A": rows(r"""
SHARED[<I> % 6]
SHARED[:, <I> % 4]
HELD['flat'][:: <I> % 3 + 1]
torch.from_numpy(BUFFER[<I> % 6, ::2])
torch.from_numpy(BUFFER.T)[<I> % 4]
"""),
        "I": rows(r"""
int(COUNTS.sum()) % 50
int(arr(<T>).argmax()) if x.numel() else 0
arr(<T>).size
arr(<T>).ndim
int(np.count_nonzero(arr(<T>) > 0))
COUNTS[<I> % 4] % 30
len(vec)
arr(<T>).strides[0] // 4
"""),
        "F": rows(r"""
float(arr(<T>).sum())
float(BUFFER[<I> % 6, <I> % 4])
HELD['row'][<I> % 4].item()
float(np.mean(vec)) if len(vec) else 0.5
RECORDS['a'][<I> % 3].item()
arr(<T>).max(initial=0.0).item()
"""),
        "B": rows(r"""
np.shares_memory(arr(<T>), arr(<T>))
bool((arr(<T>) > <F>).any())
np.array_equal(arr(<T>), arr(<T>))
bool(COUNTS[0] > <I>)
vec.dtype == np.float64
"""),
        "V": rows(r"""
vec[: <I> % 4]
vec + <I>
np.array([<I>, 2, 3])
COUNTS[1:]
BUFFER[<I> % 6]
"""),
    },
    rows(r"""
BUFFER[<I> % 6] += <F>
BUFFER[:, <I> % 4] = <F>
BUFFER[1:3] *= 0.5
SHARED[<I> % 6].mul_(<F>)
SHARED.t()[<I> % 4].add_(1)
SHARED.fill_(<F>)
HELD['row'][:] = <F>
HELD['row'][<I> % 4] += 1
HELD['column'].add_(<F>)
HELD['turned'][<I> % 4, :2] = 0
HELD['flat'][<I> % 24 :].zero_()
COUNTS[<I> % 4] += 1
np.add(COUNTS, <I> % 3, out=COUNTS)
COUNTS[:] = 0
RECORDS['a'][<I> % 3] = <F>
RECORDS[<I> % 3] = (<F>, <I>)
HELD['row'] = BUFFER[<I> % 6]
HELD['column'] = SHARED[:, <I> % 4]
np.add(BUFFER, 1, out=BUFFER)
np.multiply(BUFFER[0], <F>, out=BUFFER[1])
np.copyto(BUFFER[2], BUFFER[3])
np.add.at(COUNTS, [0, <I> % 4, 0], 1)
np.put(BUFFER, [<I> % 24], <F>)
np.fill_diagonal(BUFFER, <F>)
COUNTS.sort()
<new:T> = lent(<T>) * 1
<new:A> = torch.from_numpy(BUFFER[<I> % 6])
<new:V> = vec.copy()
""")
    + blocks(r"""
t = <T>.detach().clone()
a = t.numpy()
a[:1] += 1
t[:, :1].mul_(2)
b = a.T
b[:1] = <F>
<new:T> = t

a = arr(x)
a += 1
<new:T> = x * 2
a -= 1

t = <T>.detach().clone()
lent(t).add_(1)
arr(t)[:, ::2] *= <F>
<new:T> = t + lent(t)

a = np.zeros((x.shape[0], x.shape[1]), dtype=np.float32)
t = torch.from_numpy(a)
for <loc:I> in range(x.shape[0]):
    a[<=1>] = <F>
    t[<=1>] += <=1>
    <block>
<new:T> = t

rows_ = []
for r in arr(<T>):
    rows_.append(r * 2)
    <loop>
<new:T> = fit(np.array(rows_), x)

m = arr(<T>) > <F>
a = arr(<T>).copy()
a[m] = 0
a[~m] += 1
<new:T> = fit(a, x)

for i, v in enumerate(COUNTS):
    if v > <I>:
        COUNTS[i] = 0
        <block>

a = BUFFER[<I> % 6 :]
s = SHARED[<I> % 6 :]
a[:1] = 7
s[-1:] = <F>
<new:A> = s.sum(0) + float(a.sum())

np.testing.assert_array_equal(BUFFER, SHARED.numpy())
<block>

out = np.empty(x.shape, dtype=np.float32)
np.subtract(arr(<T>), <F>, out=out)
np.negative(out, out=out)
<new:T> = torch.from_numpy(out)

with np.errstate(divide='ignore', invalid='ignore'):
    <new:T> = fit(np.nan_to_num(1 / arr(<T>), posinf=1, neginf=-1), x)
    <block>
"""),
)

NAMES_ = Theme(
    '''
HELD = {}


class Pool:
    """Names for parts of one tensor."""

    def __init__(self, t):
        self.whole = t
        self.head, self.tail = t[:1], t[1:]
        self.turned = t.t()

    def scale(self, k):
        self.head.mul_(k)
        return self.whole

    def push(self, row):
        self.tail[-1:].copy_(row)
        return self.turned


def write(t, k):
    t.mul_(k)
    return t


def through(t, *views):
    for v in views:
        t = v(t)
    return t


def halves(t):
    n = t.shape[0] // 2
    return t[:n], t[n:]


def own(t):
    return t * 1
''',
    (),
    {
        "T": rows(r"""
own(<T>)
write(own(<T>), <F>)
Pool(own(<T>)).scale(<F>)
Pool(own(<T>)).push(<R>).t()
own(<T>).view(-1).view(x.shape)
through(own(<T>), torch.t, torch.t)
torch.cat(halves(<T>))
own(<T>).unsqueeze(0)[0]
<T>.detach()
<T>.narrow(0, 0, x.shape[0])
own(<T>).index_add_(0, torch.tensor([0]), <T>[:1])
own(<T>).masked_fill_(<M>, <F>)
own(<T>).transpose_(0, 1).t()
torch.where(<M>, <T>, own(<T>).zero_())
own(<T>).copy_(<T>)
own(<T>).addcmul_(<T>, <T>, value=<F>)
torch.stack(own(<T>).unbind(0))
own(<T>).expand(2, -1, -1)[1]
own(<T>).clamp_(min=<F>)
own(<T>).relu_()
own(<T>).sigmoid_()
own(<T>).div_(2).sub_(<T>)
<T>.as_strided(x.shape, x.stride())
own(<T>).index_put_((torch.tensor([0]),), <R>)
own(<T>).scatter_(0, torch.zeros(1, x.shape[1], dtype=torch.long), <T>[:1])
"""),
        "R": rows(r"""
own(<T>)[0]
<T>.diagonal().sum() + <T>[0]
own(<T>).t()[:, 0]
"""),
        "C": rows(r"""
own(<T>)[0, 0]
own(<T>).diagonal().sum()
(<T>.detach() * <T>).sum()
"""),
    },
    rows(r"""
HELD.clear()
<new:T> = own(<T>)
<new:T> = own(<T>)
""")
    + blocks(r"""
<new:T> = own(<T>)
v = <=1>.view(-1)
v[: <I> % 4].mul_(<F>)
<new:A> = v

<new:T> = own(<T>)
a, b = <=1>[:1], <=1>[1:]
a.add_(<T>[:1])
b.mul_(<F>)
<new:R> = a.sum(0) + b.sum(0)

<new:T> = own(<T>)
turned = <=1>.t()
turned[0].mul_(2)
<=1>[0] += <R>
turned.add_(1)
<new:C> = turned.sum()

<new:T> = own(<T>)
with torch.no_grad():
    <=1>.mul_(0.5)
    <=1>[:1].zero_()
<new:T> = <=1> * 2

<new:T> = own(<T>)
d = <=1>.detach()
d.add_(1)
<new:T> = <=1> + d

<new:T> = own(<T>)
for i in range(x.shape[0]):
    row = <=1>[i]
    row.mul_(<F>)
    <block>

<new:T> = own(<T>)
parts = list(<=1>.split(1))
try:
    parts[0].mul_(2)
except RuntimeError as err:
    SEEN.append(str(err)[:30])
<new:T> = torch.cat([p * 3 for p in parts])

<new:T> = own(<T>)
pool = Pool(<=1>)
pool.scale(<F>)
<block>
pool.push(<R>)
<new:T> = pool.turned.t() + pool.whole

names = {'a': own(<T>)}
names['b'] = names['a'][:1]
names['c'] = names['b'].view(-1)
names['c'].add_(<F>)
names['b'].mul_(2)
<new:T> = names['a']

<new:T> = own(<T>)
other = <=1>
other *= <F>
other = other * 2
other += <T>
<new:T> = <=1> + other

<new:T> = own(<T>)
<new:T> = <=1>.view(x.shape)
if <B>:
    <=1>.mul_(2)
else:
    <=2>.add_(<T>)

<new:T> = torch.zeros(x.shape)
for <loc:I> in range(x.shape[0]):
    <=1>[<I> % max(x.shape[0], 1)] = <R> * <F>
    <loop>

<new:T> = own(<T>)
saved = <=1>.exp()
<new:T> = saved * <=1>
<=1>.add_(1)

<new:T> = own(<T>)
i = <=1>.view(-1)
j = <=1>.t()
i[::2].zero_()
j[0] = i[: x.shape[0]] * 2 if <B> else <F>
<new:T> = <=1> * i.sum()

items[0] = own(items[0])
items[0][:1].mul_(<F>)
<block>
items.append(items[0].view(-1).view(x.shape))

buffer = torch.empty(x.shape)
buffer.copy_(<T>)
buffer[:, :1].sub_(<T>[:, :1])
torch.mul(buffer.detach(), 2, out=SPARE.resize_(x.shape)) if 'SPARE' in globals() else None
<new:T> = buffer

(g,) = torch.autograd.grad((own(<T>) * own(x)).sum(), x, allow_unused=True) if x.requires_grad else (x,)
<new:T> = own(g)
<=1>.t()[:1].mul_(<F>)
"""),
)

THEMES = {"casts": CASTS, "arrays": ARRAYS, "names": NAMES_}
