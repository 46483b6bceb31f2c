"""The grammar of random programs: tables of templates.

A hole `<K>` becomes an expression of kind K; `<K:var>` an existing variable of that kind, `<K:own>` one that this function may rebind.
`<new:K>` declares a variable (visible from the next line on), `<loc:K>` one that ends with the template, `<=1>`, `<=2>`… name those again.
A line that is only `<block>` is nested statements; `<loop>` too, with break and continue; `<func>` a nested function's body; `<ret>`
its result.

Kinds: T a float tensor shaped like x; R a row (as long as x's last dim); C a 0-d tensor; A a 1-d tensor of any length; M a mask like x;
I int; F float; B bool; S string; Z a loop counter, private to its template; L list of T; N list of ints; D dict from strings to T; Q
deque of T; O Box; P a pair (T, I) tuple; V a 1-d NumPy array; W a NumPy scalar; J what can be an index; X an object with protocols.

Every program ends: what runs a block or calls a nested function goes through a bounded part of a list (`<L>[:4]`), which is a copy, as
the block may extend the list; or it counts (`Z`).
"""

from __future__ import annotations


def rows(text: str) -> list[str]:
    """One template a line."""
    return [line for line in text.strip().splitlines() if line]


def blocks(text: str) -> list[str]:
    """Templates of several lines, separated by blank lines."""
    return [block.strip("\n") for block in text.split("\n\n") if block.strip()]


# Simplest first: hypothesis shrinks towards the front. `#` marks rows that break the graph (left out of
# the themes without breaks), `@` those of the theme `foreign`.
EXPRESSIONS: dict[str, list[str]] = {
    "T": rows(r"""
<T:var>
<T> + <T>
<T> - <T>
<T> * <F>
<T> + <I>
<T> + <R>
torch.relu(<T>)
<T>.abs()
torch.where(<M>, <T>, <T>)
<T> / (<T>.abs() + 1)
<T>.clone()
torch.sigmoid(<T>)
torch.cat([<T>, <T>])[: x.shape[0]]
<T> + <C>
torch.zeros(<T>.shape)
torch.full(x.shape, <F>)
torch.arange(x.shape[0])[:, None] + <T>
<T>.flip(0)
<T>.t().t()
<T>.reshape(-1).reshape(<T:var>.shape)
<T>.cumsum(0)
torch.stack([<T>, <T>]).sum(0)
<T>.softmax(-1)
<T>[:, :]
-<T>
<T>.detach()
torch.ones_like(<T>) * <I>
<T> @ torch.eye(x.shape[1])
<T>.view(*<T:var>.shape)
<T>.masked_fill(<M>, <F>)
torch.maximum(<T>, <T>)
<T>.clamp(-2, 2)
<T>.to(torch.float64).float()
torch.nn.functional.layer_norm(<T>, (x.shape[1],))
<T>.roll(1, 0)
x.new_zeros(x.size(0), x.size(-1)) + <T>
torch.einsum('ij,ij->ij', <T>, <T>)
<T>.transpose(0, 1).contiguous().T
<T>.unsqueeze(0).squeeze(0)
<T>.pow(2)
torch.rand_like(<T>)
(<T> if <B> else <T>)
helper(<T>, <I>)
helper(<T>, 2, <T>, <T>, bias=<I>, z=<I>)
branchy(<T>, <I> % 5)
recur(<T>, <I> % 4)
decorated(<T>)
decorated(<T>, k=<I>)
(lambda t, k=<I>: t + k)(<T>)
[<T>, <T>][<I> % 2]
<L>[-1]
<D>["a"]
<D>.get("zz", <T>)
sum(<L>, <T>)
functools.reduce(operator.add, <L>, <T>)
functools.reduce(lambda a, b: a * 0.5 + b, <L>, <T>)
max(<L>, key=lambda t: t.shape[0])
<O>.t
<O>.twice
<O>.scale(<I>)
<O>(<T>)
<O>(<T>, 1, 2, mul=<I>)
Box.half(<T>)
Box.build(<T>).t
Child(<T>, <I>).scale(2)
(<O> + <O>).t
Magic(<T>).plus3
Described(<T>).t
Slotted(<T>, 1).t
Data(<T>, <I>).total()
Data(<T>).total()
<P>[0]
Pair(<T>, <I>).a
list(Rows(<T>, <I> % 4 + 1))[-1]
list(gen(<T>, <I> % 3 + 1))[0]
[*chain(<T>, <I> % 3)][-1]
sum(t for t in gen(<T>, 3))
next(iter(<L>), <T>)
next((t for t in <L> if t.shape[0] > <I>), <T>)
operator.itemgetter(0)(<P>)
operator.attrgetter('t')(<O>)
functools.partial(helper, bias=<I>)(<T>)
(w := <T>) + w
getattr(<O>, 't')
<Q>[0]
dict(<D>, b=<T>)['b']
list(map(Box.half, <L>))[0]
torch.stack(<L>).mean(0)
<T>.expand(x.shape[0], x.shape[1]) + 0
deep(<T>, <I> % 4, torch.relu)
@<T> + <W>
@<T> * float(<X>)
@<T>[: <J> % 4 + 1][0] + <T>
@<T> + torch.tensor(<V>).sum()
@<T> + torch.from_numpy(np.array(<V>, dtype=np.float32)).mean()
@<T> * torch.as_tensor(<W>)
@(<T> if <W> > <I> else -<T>)
@(<T> if <X> else <T> + 1)
@<T> + len(<X>)
@<X>(<T>)
@<T> + sum(<X>)
@<T>[np.array([0, -1])].sum(0) + <T>
@<T> + float(Number(<I>))
@<T> + UNIT
@<T> + Thing.unit
@<T>.reshape(<T:var>.shape[0], operator.index(<T:var>.shape[1]))
@<L>[operator.index(<J>) % len(<L>)]
@torch.full(x.shape, float(<W>))
@<T> + torch.zeros(operator.index(<J>) + 1).sum()
@<T> * float(fractions.Fraction(<I>, 3))
@<T> + float(decimal.Decimal(<I>) / 4)
@<T> + array.array('i', [<I>, 2])[0]
@<T> + memoryview(BYTES)[<I> % 6]
@<T> + torch.tensor(list(<V>[:2])).sum()
@<T> + int(np.argmax(<V>))
@<T> + Level(<I> % 3 + 1)
@torch.stack(<L>)[operator.index(<J>) % len(<L>)]
#opaque(<T>)
#broken(<T>)
#shouting(<T>)
#deep(<T>, <I> % 4, broken)
#deep(<T>, <I> % 3, opaque)
#helper(opaque(<T>), <I>, bias=<I>)
#[opaque(t) for t in <L>][0]
#list(map(broken, <L>))[0]
#(opaque(<T>) if <B> else broken(<T>))
#sum(opaque(t) for t in <L>)
"""),
    "R": rows(r"""
<T>.sum(0)
<T>.mean(0)
<T>[0]
<R> * 2
<R> + <R>
<T>.amax(0)
<T>.t()[:, -1]
torch.zeros(x.shape[1])
#opaque(<R>)
"""),
    "C": rows(r"""
<T>.sum()
<T>.mean()
<R>.sum()
<A>.sum()
<C> * 2
<C> + <C>
torch.tensor(<F>)
<T>[0, 0]
<T>.norm()
torch.stack(<L>).sum()
"""),
    "A": rows(r"""
<T>.reshape(-1)
<R>
torch.arange(<I> % 11).float()
<A> * 2
torch.cat([<A>, <A>])
<A>[1:]
<A>[::2]
torch.ones(<I> % 5)
<A>.sort()[0]
torch.linspace(0, 1, <I> % 4 + 1)
@torch.as_tensor(<V>).float()
@torch.ones(<J> % 4 + 1)
#<T>[<M>]
#<A>[<A> > 0]
#<T>.nonzero()[:, 0].float()
#<A>.unique()
"""),
    "M": rows(r"""
<T> > 0
<T> <= <T>
~(<M>)
(<M>) & (<M>)
torch.ones_like(<T>, dtype=torch.bool)
"""),
    "I": rows(r"""
1
0
3
<I:var>
x.shape[0]
x.shape[1]
<I> + <I>
<I> - 1
<I> * 2 % 97
<I> % 5
<I> // 2
len(<L>)
<T>.numel() % 89
max(<I>, <I>)
min(<I>, 7)
x.dim()
int(<B>)
sum(range(<I> % 6))
abs(<I> - 3)
len(<S>)
<P>[1]
<O>.k
len(<O>)
<A>.shape[0] % 7
(<I> if <B> else <I>)
bump(<I>)
sum(<N>) % 83
len(<N>)
divmod(<I>, 3)[0]
(<I>) & 3
(<I>) ^ 1
(<I> % 5) << 1
-<I> % 11
len(<D>)
int(<F>) % 13
len({<I>, <I>})
[1, 2, 3][<I> % 3]
{0: 4, 1: 5}.get(<I> % 3, 6)
TABLE['one']
sorted([<I>, <I>])[0]
x.size(-1)
math.prod(x.shape) % 31
functools.reduce(lambda a, b: (a * 3 + b) % 41, <N>, 1)
(k := <I>) + k
x.shape.index(x.shape[1])
round(<F>) % 9
len(<Q>)
sum(1 for v in <N> if v > <I>)
@int(<W>)
@operator.index(<J>)
@int(<X>)
@len(<X>)
@<V>.shape[0]
@len(<V>)
@int(<V>.sum()) % 31
@<X>[<I>]
@sum(<X>)
@UNIT
@Thing.unit
@int(Number(<F>)) % 17
@[1, 2, 3, 4][<J>]
@BYTES[<I> % 6]
@len(BYTES[: <J> % 4 + 1])
@Level(<I> % 3 + 1).value
@hash(<X>)
@int(np.int64(<I>) + np.int64(<I>)) % 50
@round(float(<W>)) % 7
@(<J> % 3)
@int(fractions.Fraction(<I>, 2))
@len(array.array('d', [0.5] * (<I> % 4)))
#clock()
#crc(<I>)
#opaque(<I>)
#int(<C> > 0)
#<M>.sum().item() % 5
#len(<T>[<M>]) % 5
"""),
    "F": rows(r"""
0.5
<I> / 2
float(<I>)
<F> + 1.5
<F> * 0.5
math.sqrt(abs(<I>))
1e-3
-2.0
<I> ** 0.5 if <I> > 0 else 0.0
float(x.shape[0])
@float(<W>)
@float(<X>)
@<W>.item() * 0.5
@float(<V>.mean())
@float(fractions.Fraction(1, <I> % 5 + 1))
#<C>.item()
#float(<C>)
"""),
    "B": rows(r"""
True
flag
<I> > <I>
<I> == <I>
0 < <I> <= 4
not <B>
<B> and <B>
<B> or <B>
x.shape[0] == x.shape[1]
<I> in <N>
<T>.shape == <T>.shape
isinstance(<T>, torch.Tensor)
<I> % 2 == 0
bool(<L>)
<T:var> is <T:var>
'a' in <D>
hasattr(<O>, 'zz')
<S> == 'ab'
any(v > 2 for v in <N>)
all(t.dim() == 2 for t in <L>)
<T>.requires_grad
<F> < <F>
<I> is None
<O> == <O>
<I> in <O>
callable(<O>)
issubclass(Child, Box)
@bool(<X>)
@<W> > <I>
@bool(<W>)
@<X> == <X>
@<I> in <X>
@<X> < <I>
@bool((<V> > <I>).any())
@not Number(<I>)
@isinstance(<W>, np.floating)
@<V>.dtype == np.float32
@UNIT == 1
@<X> in [<X>, <X>]
@isinstance(<J>, int)
#<C> > 0
#bool((<M>).any())
!<C> > <F>
!(<M>).any()
!<C> <= <C>
!<C>.item() > <F>
!not (<R>.max() > <F>)
!<T>.sum() > <I> or <B>
!<B> and <C> < <F>
#torch.equal(<T>, <T>)
#<C> > <C>
"""),
    "S": rows(r"""
'ab'
f'{<I:var>}'
f'{<I:var>:>4}|{x.dim()}'
str(<I>)
'-'.join(str(v) for v in <N>)
<S> + '!'
<S> * 2
'%d' % <I>
'{}'.format(<I>)
repr(<N>)
f'{flag!r:>6}'
@str(<W>)
@f'{float(<W>):.2f}'
@str(<V>.tolist())
@repr(Level(<I> % 3 + 1))
@str(fractions.Fraction(<I>, 3))
"""),
    "L": rows(r"""
[<T>, <T>]
[<T>]
<L:var>
<L> + [<T>]
<L>[:2] or [<T>]
[t * 2 for t in <L>]
[t + i for i, t in enumerate(<L>)]
[a + b for a, b in zip(<L>, <L>)]
list(<L>)
[*<L>, <T>]
list(reversed(<L>))
[t for t in <L> if t.shape[0] > 1] or [<T>]
list(map(lambda t: t - 1, <L>))
sorted(<L>, key=lambda t: t.shape[0])
[<T>] * 2
list(itertools.chain(<L>, [<T>]))
list(gen(<T>, <I> % 3 + 1))
[<T> + j for j in range(<I> % 4 + 1)]
list(<D>.values())
list(<Q>)
list(itertools.islice(<L>, 1)) or [<T>]
[(t if i else -t) for i, t in enumerate(<L>)]
[t for l in [<L>, <L>] for t in l]
list(<T>.unbind(0)[0] + x for _ in '12')
#[opaque(t) for t in <L>]
#[broken(t) if i else t for i, t in enumerate(<L>)]
"""),
    "N": rows(r"""
[<I>, <I>]
[v for v in range(<I> % 6)]
list(x.shape)
<N:var>
<N> + [<I>]
sorted(<N>)
sorted({v % 3 for v in <N>})
[v * 2 % 97 for v in <N> if v > 1]
sorted(<N>, key=lambda v: -v)
<N>[::-1]
list(itertools.accumulate(<N>))[:4]
[v.shape[0] for v in <L>]
list(dict.fromkeys(<N>))
[i for i, v in enumerate(<N>) if v]
list(filter(None, <N>))
[a % 7 for a, *_ in zip(<N>, <N>)]
list(collections.Counter(<N>).values())
@<V>.astype(int).tolist()
@list(<X>)
@[int(v) for v in <V>]
@[i for i in np.argsort(<V>)]
@list(range(<J> % 5))
"""),
    "D": rows(r"""
{'a': <T>, 'b': <T>}
<D:var>
{**<D>, 'c': <T>}
{k: v + 1 for k, v in <D>.items()}
dict(<D>)
<D> | {'d': <T>}
dict(zip('ab', [<T>, <T>]))
dict(sorted(<D>.items(), reverse=True))
"""),
    "Q": rows(r"""
collections.deque([<T>, <T>])
<Q:var>
collections.deque(<L>, maxlen=3)
"""),
    "O": rows(r"""
Box(<T>, <I>)
<O:var>
Child(<T>, <I>)
<O> + <T>
1 + Box(<T>, 2)
Box.build(<T>)
"""),
    "V": rows(r"""
vec
<V:var>
np.arange(<I> % 5 + 1)
np.array([<I>, <I>, 2])
np.array([<F>, 1.5], dtype=np.float32)
<V> + <W>
<V> * 2
<V>[::-1]
<V>[: <J> % 3 + 1]
np.concatenate([<V>, <V>])[:6]
np.sort(<V>)
<V>.astype(np.float32)
np.where(<V> > 1, <V>, 0)
np.abs(<V> - 2.0)
np.cumsum(<V>)
np.clip(<V>, 0, 3)
np.asarray(<N> or [1])
<V>.copy()
"""),
    "W": rows(r"""
vec[0]
np.int64(<I>)
np.float32(<F>)
np.float64(<I>)
np.uint8(<I> % 200)
np.bool_(<B>)
<V>[-1]
<V>.sum()
<V>.max()
np.float16(0.5)
np.int32(<I>) * 2
<V>.mean()
np.maximum(<W>, 1)
"""),
    "J": rows(r"""
k
<J:var>
Index(<I> % 3)
np.int64(<I> % 3)
<I> % 3
np.uint8(<I> % 3)
Level(<I> % 2 + 1)
True
"""),
    "X": rows(r"""
thing
<X:var>
Thing(<I>)
Thing(UNIT)
"""),
    "P": rows(r"""
(<T>, <I>)
Pair(<T>, <I>)
tuple([<T>, <I>])
(lambda *a: a)(<T>, <I>)
(lambda: (<T>, <I>))()
"""),
}

# By theme: `*` is every theme, `loop` only inside loop bodies.
STATEMENTS: dict[str, list[str]] = {
    "*": rows(r"""
<new:T> = <T>
<T:own> = <T>
<new:I> = <I>
<I:own> = <I> % 501
<new:L> = <L>
<new:D> = <D>
<new:O> = <O>
<new:N> = <N>
<new:B> = <B>
<new:S> = <S>
<new:F> = <F>
<new:C> = <C>
<new:A> = <A>
<new:Q> = <Q>
<new:P> = <P>
<new:M> = <M>
<new:R> = <R>
<I:own> += <I> % 5
<new:T>, <new:I> = <P>
<new:T> = <new:T> = <T>
assert <I> >= -1000, 'small'
<L:var>.append(<T>)
<L:var>.extend(<L>[:1])
<L:var>[0] = <T>
<L:var>.insert(0, <T>)
<L:var>[1:2] = [<T>, <T>]
<L:var>.reverse()
<L:own> += [<T>]
<D:var>['c'] = <T>
<D:var>.update(e=<T>)
<D:var>.pop('c', None)
<new:T> = <D:var>.setdefault(<S>, <T>)
<N:var>.append(<I>)
<N:var>.sort()
<Q:var>.append(<T>)
<Q:var>.appendleft(<T>)
<Q:var>.rotate(1)
<O:var>.t = <T>
<O:var>.k += 1
<O:var>.twice = <T>
<O:var>.late = <I>
Box.made += 1
bump(<I>)
SEEN.append(<I>)
TABLE[<S>] = <I>
<new:I>, *more, _ = [<I>, 1, <I>, 2]
log.info('step %s', <I>)
""")
    + blocks(r"""
if <B>:
    <block>

if <B>:
    <block>
else:
    <block>

if <B>:
    <block>
elif <B>:
    <block>
else:
    <block>

for <loc:I> in range(<I> % 5):
    <loop>

for <loc:T> in <L>[:4]:
    <loop>

for <loc:I>, <loc:T> in enumerate(<L>):
    if <=1> > 4:
        break
    <loop>

for <loc:I> in x.shape:
    <loop>

for <loc:T>, <loc:T> in zip(<L>[:4], <L>):
    <loop>

for <loc:I> in <N>[:5]:
    <loop>
else:
    <block>

for <loc:S>, <loc:T> in <D>.items():
    <loop>

<new:Z> = 0
while <=1> < <I:var> % 5:
    <=1> += 1
    <loop>

for <loc:T> in gen(<T>, <I> % 4):
    <loop>

for <loc:T> in Rows(<T>, <I> % 4):
    <loop>

for <loc:R> in <T>:
    <loop>

for <loc:I> in range(<I> % 4, 0, -1):
    <loop>
else:
    <block>

<new:Z> = <I> % 4
while (<=1> := <=1> - 1) > 0:
    <loop>

<new:Z> = 0
while True:
    <=1> += 1
    if <=1> > 3:
        break
    <loop>

if <B>:
    return <ret>

match <I> % 4:
    case 0:
        <block>
    case 1 | 2:
        <block>
    case _:
        <block>

match <P>:
    case (<loc:T>, int(<loc:I>)) if <B>:
        <block>
    case [*_]:
        pass

match <D>:
    case {'a': <loc:T>, **_rest}:
        <block>
    case {}:
        pass

match <O>:
    case Box(k=0):
        <block>
    case Child(t=<loc:T>):
        <block>
    case object():
        pass

try:
    <block>
    risky(<T>, <I>)
    <block>
except ValueError as err:
    SEEN.append(err.args)
    <block>
except KeyError:
    <block>

try:
    <block>
finally:
    <block>

try:
    <block>
    if <B>:
        raise ValueError(<I>)
except (ValueError, TypeError) as err:
    SEEN.append(str(err))
else:
    <block>
finally:
    <block>

try:
    <new:I> = <N>[<I>]
except IndexError:
    <=1> = -1

try:
    <new:I> = TABLE[<S>]
except KeyError as err:
    <=1> = len(err.args)

with Scope(SEEN, <I>):
    <block>

with Scope(SEEN, <I>):
    <block>
    if <B>:
        raise ValueError('inside')
    <block>

with scaled(SEEN, <I>) as <loc:I>:
    <block>

with torch.no_grad():
    <block>

with Scope(SEEN, 1) as one, Scope(SEEN, 2):
    <block>

with contextlib.suppress(KeyError, ValueError):
    <block>
    risky(<T>, <I>)

try:
    try:
        risky(<T>, <I>)
    finally:
        <block>
except Exception as err:
    SEEN.append(type(err).__name__)

if <I> == 17:
    raise RuntimeError('seventeen', <I>)

try:
    raise ValueError('a') from KeyError(<I>)
except ValueError as err:
    SEEN.append(repr(err.__cause__))
    <block>

def <fn:T>(t, k=<I>, *rest, m=2, **kw):
    <func>
    return <ret>
<new:T> = <=1>(<T>)
<new:T> = <=1>(<T>, 3, <T>, m=<I>, q=1)

<new:I> = <I>
def <fn:T>(t):
    nonlocal <=1>
    <=1> += 1
    <func>
    return <ret>
<new:T> = <=2>(<=2>(<T>))

@times(<I>)
def <fn:T>(t):
    <func>
    return <ret>
<new:T> = <=1>(<T>)

<new:I> = <I>
<new:T> = (lambda t: t + <=1>)(<T>)

step = make_counter(<I>)
<new:I> = step() + step(<I>)

def <fn:T>(t):
    <func>
    yield <T>
    yield from [t, t + 1]
<new:L> = list(<=1>(<T>))

g = gen(<T>, 3)
<new:T> = next(g)
<new:T> = g.send(<I>)
g.close()

fs = [lambda t, k=k: t + k for k in range(3)]
<new:T> = fs[<I> % 3](<T>)

class Local(Box):
    extra = (lambda: <I>)()
    def shift(self):
        return super().shift() * 2 + self.extra
<new:T> = Local(<T>, <I>).scale(2)

if len(<L:var>) > 1:
    <L:var>.pop()

if 'e' in <D:var>:
    <block>

first, *others = <L>
<new:T> = first + len(others)

scratch = <I>
del scratch

group = collections.defaultdict(list)
for t in <L>:
    group[t.shape[0] % 2].append(t)
<new:I> = len(group)

both = {<I>, <I>} | {1}
both.discard(1)
<new:I> = len(both)

def <fn:T>(t):
    for i in range(<I> % 4 + 1):
        try:
            <func>
            if i == <I> % 3:
                return <ret>
        finally:
            SEEN.append(i)
    return t
<new:T> = <=1>(<T>)

def <fn:T>(t):
    def inner(n):
        got = yield t * n
        while got:
            got = yield t + got
        return n
    <func>
    total = yield from inner(<I> % 5)
    yield <ret> + total
g = <=1>(<T>)
<new:T> = next(g)
<new:T> = g.send(<I> % 3 + 1)
<new:L> = list(g) or [<T>]

<new:I> = <I>
def <fn:T>(t):
    nonlocal <=1>
    for v in gen(t, 3):
        <=1> += 1
        yield v + <=1>
<new:L> = [a + b for a, b in zip(<=2>(<T>), <=2>(<T>))]

cells = []
for i in range(<I> % 3 + 1):
    def keep(t, i=i):
        return t * i + len(cells)
    cells.append(keep)
<new:T> = functools.reduce(lambda t, f: f(t), cells, <T>)

def <fn:T>(*args, **kw):
    return helper(*args, **{**kw, 'bias': <I>})
<new:T> = <=1>(*[<T>, <I>][:2], <T>, z=1)

data = Data(<T>, k=<I>)
data.parts.append(<I>)
<new:T> = dataclasses.replace(data, k=<I> % 7).total() + len(dataclasses.fields(data))

try:
    risky(<T>, <I>)
except ValueError as err:
    SEEN.append(err.__traceback__ is not None)
    kept = err
except KeyError:
    <block>
else:
    kept = None

try:
    try:
        risky(<T>, <I>)
    except KeyError as err:
        raise TypeError('again') from err
    finally:
        SEEN.append('left')
except (TypeError, ValueError) as err:
    SEEN.append((type(err).__name__, repr(err.__context__)))

square = {k * k % 7 for k in <N:var>}
<new:N> = sorted(square | {<I> % 3}) + [k for k in <N:var> if (h := k % 3) and h != 2]

whole, rest = divmod(-x.shape[0] - <I>, 3)
<new:I> = whole * 2 + rest + (-<I>) // max(x.shape[0], 1) - (-<I>) % x.shape[1]

<new:T> = <T:var>
<new:T> = <=1>[:]
<new:T> = <=1>.view(-1).view(x.shape) if <=1>.is_contiguous() else <=1>

<new:L> = <L:var>
<=1>.append(<T>)

<new:D> = {}
for <loc:I> in range(<I> % 4):
    <=1>[f'k{<=2>}'] = <T>
<=1>.setdefault('a', <T>)
<=1>.setdefault('b', <T>)
"""),
    "inplace": rows(r"""
<T:var>.add_(<I>)
<T:var>.mul_(<T>)
<T:own> += <T>
<T:var>[0] = <F>
<T:var>[:, 0] += <I>
<T:var>.zero_()
<T:var>.copy_(<T>)
torch.relu_(<T:var>)
<T:var>[<M>] = 0.5
<T:var>.t().add_(1)
torch.add(<T>, <T>, out=<T:var>)
<T:var>.reshape(-1)[:2] *= 2
<L>[0].sub_(1)
<O>.t.add_(1)
<T:var>[1:].add_(<T:var>[:-1].clone())
<T:var>.data.mul_(2)
<T:var>.view(-1)[::2].sub_(<I>)
<T:var>.transpose(0, 1)[0] = <I>
<L:var>[-1][0].fill_(<F>)
"""),
    "loop": rows(r"""
<T:own> = <T:own> + <T>
""")
    + blocks(r"""
if <B>:
    break

if <B>:
    continue

if <B>:
    <block>
    break
else:
    <block>

try:
    <block>
    if <B>:
        continue
    <block>
finally:
    <block>

with Scope(SEEN, <I>):
    <block>
    if <B>:
        break
"""),
    "foreign": rows(r"""
<new:V> = <V>
<new:W> = <W>
<new:J> = <J>
<new:X> = <X>
<V:var>[0] = 1
<V:var>.sort()
<X:var>.n = <I> % 9
<new:V> = <V:var>
SEEN.append(<W>)
SEEN.append(<X>)
<new:D> = {'a': <T>, 'b': <T>}
""")
    + blocks(r"""
for <loc:I> in range(operator.index(<J>) % 4):
    <loop>

for <loc:I> in <X>:
    <loop>

for <loc:W> in <V>[:4]:
    <loop>

if <X>:
    <block>
else:
    <block>

if <W> > <I>:
    <block>

counts = {<X>: <I>, <X>: <I>}
<new:I> = sum(counts.values()) % 50

match <I>:
    case Level.LOW:
        <block>
    case _:
        <block>

set_unit(<I> % 4)

order = np.argsort(<V>)
<new:L> = [(<L:var> or [x])[int(i) % max(len(<L:var>), 1)] for i in order] or [<T>]

try:
    <new:I> = [1, 2, 3][<W>]
except (TypeError, IndexError) as err:
    <=1> = len(err.args)
"""),
    "exits": blocks(r"""
if <C> > <F>:
    <block>

if <C> > <F>:
    <block>
else:
    <block>

if (<M>).any():
    <block>
elif <C> < <C>:
    <block>
else:
    <block>

if <C>.item() > <F>:
    <block>
else:
    <block>

for <loc:T> in <L>[:3]:
    if <=1>.sum() > <C>:
        <block>

for <loc:I> in range(3):
    if <C> > <=1>:
        break
    <block>

if <T>.sum() < <F>:
    return <ret>

if <C> > <F>:
    raise ValueError('data')

try:
    if <C> > <F>:
        raise ValueError(<I>)
    <block>
except ValueError as err:
    SEEN.append(str(err))
    <block>
finally:
    <block>

with Scope(SEEN, <I>):
    <block>
    if <C> > <F>:
        <block>
    <block>

with torch.no_grad():
    if <T>.mean() > 0:
        <block>

def <fn:T>(t):
    <func>
    if t.sum() > <F>:
        return <ret>
    SEEN.append(len(SEEN))
    return <ret>
<new:T> = <=1>(<T>) + <=1>(-<T>)

print('seen', <I>)

<T:own>.add_(1)

<T:own>[0].mul_(2)

<T:var>.t().add_(<R>.sum())

<new:T> = torch.rand_like(<T>)
"""),
    "break": rows(r"""
print('n', <I>)
pliant.graph_break()
<new:T> = opaque(<T>)
<new:T> = broken(<T>)
print(<S>, <T>.shape)
clock()
<new:T> = deep(<T>, <I> % 5, broken)
<new:I> = crc(<I>)
<new:T> = <T> if <C> > 0 else <T>
<new:A> = <T>[<M>]
""")
    + blocks(r"""
if <C> > <F>:
    <block>
else:
    <block>

g = chain(<T>, <I> % 4)
<new:T> = opaque(next(g))
<new:L> = list(g) or [<T>]

g = chain(<T>, 3)
for <loc:T> in g:
    pliant.graph_break()
    <block>
    if <B>:
        break
g.close()

def <fn:T>(t):
    try:
        yield opaque(t)
        <func>
        yield <ret>
    finally:
        SEEN.append(crc(<I>))
for <loc:T> in <=1>(<T>):
    <loop>

def <fn:T>(t):
    for i in range(<I> % 4 + 1):
        try:
            pliant.graph_break()
            if i == 1:
                return opaque(t)
        finally:
            t = t + i
            pliant.graph_break()
    return t
<new:T> = <=1>(<T>)

for <loc:T> in <L>[:4]:
    <loop>
    pliant.graph_break()
    <loop>

with Scope(SEEN, 3):
    <block>
    pliant.graph_break()
    <block>

try:
    pliant.graph_break()
    <block>
    risky(<T>, <I>)
except (ValueError, KeyError) as err:
    pliant.graph_break()
    SEEN.append(err.args)
finally:
    pliant.graph_break()
    <block>

with torch.no_grad():
    <block>
    pliant.graph_break()
    <block>

def <fn:T>(t):
    <func>
    pliant.graph_break()
    return <ret>
<new:T> = <=1>(<T>)
<new:L> = [<=1>(t) for t in <L>[:9]]
"""),
    "leaves": rows(r"""
<T:var>.view(-1)[1::2].mul_(<F>)
<T:var>.t()[-1].copy_(<R>.sum().expand(<T:var>.shape[0]))
<T:var>.diagonal().add_(<C>)
<T:var>.unsqueeze(0).squeeze(0).sub_(<C>)
<T:var>.index_fill_(0, torch.tensor([0]), <F>)
<T:var>.masked_fill_(<M>, <F>)
<T:var>.data.add_(<I>)
<new:T> = torch.rand_like(<T>) * 2
<new:T> = torch.nn.functional.dropout(<T>, 0.5)
<new:T> = <T> + random.random()
print('n', <I>, <S>, end=';')
<L:var>.pop() if len(<L:var>) > 1 else None
<L:var>.insert(<I> % 3, <T>)
<D:var>['z'] = <D:var>.pop('a', x)
<D:var>.setdefault('a', <T>)
SEEN.append(tuple(<T>.shape))
BOX.t = <T>
BOX.t.add_(1)
""")
    + blocks(r"""
if <C> > <F>:
    print('hot', <I>)
    <block>
else:
    SEEN.append(<I>)
    <block>

with scaled(SEEN, <I>) as <loc:I>:
    if <C> > <F>:
        raise KeyError(<=1>)
    <block>

try:
    with Scope(SEEN, <I>), torch.no_grad():
        <block>
        if <C> > <C>:
            raise ValueError(<I>)
        print('inside')
except ValueError as err:
    print(err.args)
    <block>

def <fn:T>(t):
    try:
        if t.sum() > <F>:
            yield <T>
        <func>
        yield <ret>
    finally:
        SEEN.append('end')
for <loc:T> in <=1>(<T>):
    <loop>

for <loc:T> in list(<D>.values())[:3]:
    if <=1>.sum() > <C>:
        continue
    <loop>

for key, <loc:T> in <D:var>.items():
    <D:var>['late'] = <T>
    if <=1>.mean() > <F>:
        SEEN.append(key)
    del <D:var>['late']
    break

g = gen(<T>, 3)
<new:T> = next(g)
if <=1>.sum() > <F>:
    <=1> = g.send(<I>)
g.close()

try:
    if <C> > <F>:
        risky(<T>, <I>)
    <block>
finally:
    print('finally', len(SEEN))
    if <C> < <F>:
        <block>

for <loc:I> in range(3):
    try:
        if <C> > <=1>:
            continue
        if <C> < -<=1>:
            break
        <block>
    finally:
        SEEN.append(<=1>)
"""),
    "history": rows(r"""
<new:T> = <T>.clone().mul_(<F>)
<new:T> = (<T> * 2).add_(<T>)
<new:T> = <T>.requires_grad_(True) if <T:var>.is_leaf else <T>
<new:T> = torch.autograd.grad((<T> * x).sum(), x, allow_unused=True)[0]
<new:T> = torch.autograd.grad((<T> * x * x).sum(), x, create_graph=True)[0] + <T>
<new:T> = torch.nn.functional.dropout(<T>, 0.5)
""")
    + blocks(r"""
<new:T> = <T> * 1
if <=1>.requires_grad:
    <=1>.register_hook(lambda g: None if g is None else g * 2)

<new:T> = <T> * 1
if <=1>.requires_grad:
    <=1>.register_hook(lambda g: SEEN.append('hook') if g is not None else None)

<new:T> = <T>.clone()
<=1>.view(-1)[::2].mul_(<F>)
<=1>.t()[0].add_(<C>)

<new:T> = <T>.clone()
<=1>[<M>] = <F>

<new:T> = <T> * 1
if <=1>.requires_grad:
    <=1>.retain_grad()

with torch.no_grad():
    <new:T> = <T> + 1
    <=1>.mul_(2)

with torch.enable_grad():
    <new:T> = (<T>.detach().requires_grad_(True) * <F>).sum() + <T>
"""),
}
