"""The second grammar of random programs, theme `python`: the rest of the language and its library, over the kinds of `grammar.py`.

Every template ends (see `grammar.py`), and what depends on addresses, time or the hash of texts does not reach what is compared. A number
in the body of a class is that of a lambda: it may assign in a comprehension.
"""

from __future__ import annotations

from tests.differential.grammar import blocks, rows

EXPRESSIONS: dict[str, list[str]] = {
    "T": rows(r"""
Lazy(<T>, <I>).double
Lazy(<T>, <I>).size_3
Ops(<T>).__matmul__(2).t
(Ops(<T>) - 1).t
(2 - Ops(<T>)).t
(-Ops(<T>)).t
(Ops(<T>) @ <I>).t
(Ops(<T>) ** 2).t
Ops(<T>)[<I>, ..., <I>:].t
Ops(<T>)[<I>:<I>:2].t
(Half(<T>) | Ops(<T>)).t
Point(<T>, <I>).moved().t
Point(<T>)._replace(k=<I>).moved().t
Frozen(<T>, k=<I>).total
dataclasses.replace(Frozen(<T>), k=<I>).total
Registry.kinds['plain'](<T>, <I>).run()
Registry.make(<S>, <T>, <I>).run()
Fancy(<T>, <I>).run()
Missing(a=<T>)['a']
Missing(a=<T>, t=<T>)['zz']
Stack([<T>, <T>]).top()
Stack(<L>)[<I> % 2 : ][-1:].top()
show(<T>)
show(<I>) * <T>
show(<L>)
kinds_of(<T>, <I>)
Half(<T>).third(<I>)
(lambda *a, k=<I>, **kw: a[-1] * k + len(kw))(<T>, <T>, z=1)
(lambda t, *, k: t + k)(<T>, k=<I>)
next(filter(lambda t: t.shape[0] >= <I>, <L>), <T>)
functools.reduce(lambda a, b: b - a, map(lambda t: t * <I>, <L>))
collections.ChainMap({'a': <T>}, <D>)['b']
[*itertools.accumulate(<L>, lambda a, b: a * 0.5 + b)][-1]
list(itertools.starmap(torch.add, zip(<L>, <L>)))[0]
(<T>, <T>)[<B>]
{True: <T>, False: <T>}[<B>]
<T>.view(*x.shape[::-1]).t()
<T>.reshape((*x.shape, 1)).squeeze(-1)
<T>.new_full(x.size(), <I>)
getattr(torch, ('relu', 'abs', 'neg')[<I> % 3])(<T>)
getattr(<T>, 'clone')()
operator.methodcaller('mul', <I>)(<T>)
operator.truediv(<T>, max(<I>, 1))
torch.stack([*<L>, <T>])[-1]
sum((t for t in <L>), start=<T>)
max([(t.shape[0], i, t) for i, t in enumerate(<L>)], key=lambda p: p[:2])[2]
copy.copy(<O>).t
copy.deepcopy(<O>).t
<T> + (yes if (yes := <I>) else -1)
<T> * (1 if not <I> else <I> % 3)
torch.full_like(<T>, hash((<I>, 1)) % 5)
vars(<O>)['t']
type(<O>)(<T>, <I>).t
Box.scale(<O>, <I>)
super(Child, Child(<T>, <I>)).scale(2)
functools.partial(Box.scale, by=<I>)(<O>)
types.SimpleNamespace(t=<T>, k=<I>).t
Once(<T>).value
threshold(<T>, <I>)
threshold(<T>, <I>, low=<F>)
"""),
    "I": rows(r"""
pow(<I>, 3, 11)
math.gcd(<I>, 12)
math.isqrt(abs(<I>))
math.comb(abs(<I>) % 7, 2)
math.floor(<F>) % 23
math.ceil(<F> * 2) % 23
math.trunc(<F>) % 23
int(<S>, 36) % 91 if <S>.isalnum() else 5
ord(<S>[0]) % 7
(<I>).bit_length()
(~<I>) % 13
-<I> >> 1
(<I> << 3) % 67
(<I> | 8) - 8
int.from_bytes((<I> % 200).to_bytes(2, 'big'), 'little') % 53
len(range(<I> % 7, 0, -2))
range(<I> % 9 + 1)[-1]
range(1, 20, 3)[<I> % 6]
(<I> in range(0, 20, 3)) + 1
len(<S>.split('-'))
<S>.find('b') + 1
<S>.count('a')
<N>.count(<I>)
(<N> or [3]).index((<N> or [3])[0])
min(<N>, default=<I>)
max(<N>, key=lambda v: -v, default=2)
max(<I>, <I>, key=lambda v: v % 4)
sum([v * w for v, w in zip(<N>, <N>)]) % 71
len(set(<N>) ^ {<I>})
len(frozenset(<N>) & {1, <I>})
sum(<N>, <I>) % 59
bisect.bisect(sorted(<N>), <I>)
len([*itertools.takewhile(lambda v: v < <I>, <N>)])
len([*itertools.product(<N>[:3], <L>[:2])])
sum(1 for _ in itertools.combinations(<N>[:4], 2))
sum(a * b for a, b in itertools.pairwise(<N>)) % 61
heapq.nsmallest(1, [*<N>, 4])[0]
operator.mul(<I>, 3) % 77
operator.index(<I>)
hash(<I>) % 41
(lambda: <I>)()
[<I>, <I>, 5].pop(<I> % 3)
(<I>, <I>)[-1]
x.stride(0) % 31
x.shape.numel() % 29
len(x)
len(x.shape + (<I>,))
{x.shape: 1, (<I>, <I>): 2}.get((<I>, <I>), 3)
{x.shape: <I>}[tuple(<T>.shape)]
Color(<I> % 3 + 1).value
Color['RED'].value
len(Perm(<I> % 8))
(Perm(<I> % 8) | Perm.R).value
total_of(1, *<N>[:4])
total_of(*range(<I> % 4), k=<I>)
cached(<I> % 6)
fib(<I> % 6)
Counted.of(<I>).n
len(Missing(a=1))
Tally(<N>).most()
(<I> > 2) + (<I> > 3)
<I> if <I> > 2 else -<I> if <I> else 7
int(complex(<I>, 2).real) % 37
round(<I> / 7, 1).as_integer_ratio()[0] % 43
2 ** (<I> % 9) % 101
(1 << 62) % (abs(<I>) + 1)
(<I> * 2 ** 40) // 2 ** 39
abs(-<I> // 4)
-<I> % 7 + <I> // -3
divmod(-<I>, 4)[1]
round(<I>, -1) % 30
round(-<I> / 2) % 19
int(f'{<I:var>}') % 97
len(f'{<I:var>:b}')
len(str(<I> * 100))
sum(map(int, str(abs(<I>)))) % 17
int(not <I>)
int('%d' % <I>) % 97
len(list(zip(<N>, <N>, <N>)))
(d := dict(enumerate(<N>))).get(<I>, len(d))
len({**dict.fromkeys(<N>, 1), 'n': 2})
sum(v for v in <N> if v not in (1, <I>)) % 79
len(memo.setdefault(<I> % 4, []))
total_order(<I>, <I>)
"""),
    "F": rows(r"""
math.hypot(<I>, <F>) % 50
math.fmod(<F>, 3)
math.copysign(<F>, -1)
math.log2(abs(<I>) + 1)
math.ldexp(0.5, <I> % 5)
math.frexp(<F>)[0]
math.modf(<F>)[0]
round(<F>, <I> % 3)
abs(complex(<I>, <F>))
float(f'{<F:var>:.2f}')
float.fromhex(float(<I>).hex())
(<F> // 2) % 9
<F> % 3
divmod(<F>, 2)[1]
math.fsum([<F>, <I>, 0.25])
math.dist((<I>, 1), (<F>, 2)) % 50
statistics.mean([<I>, <I>, 2])
min(<F>, <I>)
max(<I>, <F>, 0.5)
sum([<F>, <I>]) / 2
<I> / (abs(<I>) + 1)
float('inf') if <I> > 90 else <F>
"""),
    "B": rows(r"""
<I> < <I> <= <I> + 3
<I> not in (<I>, 3)
<F>.is_integer()
math.isclose(<F>, <I>)
<S>.startswith('a')
<S> in ('ab', 'abab', <S>)
<S> < 'b'
<S>.isdigit()
set(<N>) <= {<I>, 1, 2, 3}
{<I>, 1}.isdisjoint(<N>)
(<I>, <I>) < (<I>, 2)
[<I>, <I>] == <N>
tuple(x.shape) == (<I>, <I>)
x.shape == torch.Size([<I>, <I>])
x.shape == y.shape
<T>.is_contiguous()
<T>.dtype is torch.float32
isinstance(<O>, (Child, int))
isinstance(<O>, Like)
issubclass(type(<O>), Like)
hasattr(Lazy(<T>, 1), 'nope')
hasattr(Half(<T>), 'bad')
type(<O>) is Box
'k' in vars(<O>)
<D>.keys() == {'a', 'b'}
<D>.keys() >= {'a'}
bool(<D>.keys() & {'c'})
all(a <= b for a, b in itertools.pairwise(<N>))
any(t is u for t in <L> for u in <L>[1:])
not all([<B>, <B>, <I>])
any([])
Color(<I> % 3 + 1) is Color.RED
Perm.R in Perm(<I> % 8)
Version(<I>, 1) > Version(2, <I>)
Version(<I>, 1) == Version(<I>, 1)
Counted.of(<I>) is Counted.of(<I>)
<P> == <P>[:0]
(<I> and <S>) == <S>
bool(<N> and <N>[0])
bool(<I> or None)
callable(getattr(<O>, 'late', None))
operator.contains(<N>, <I>)
operator.xor(<B>, <B>)
<B> is <B>
<B> ^ <B>
<B> == <I>
<I> == <F>
<I> != 1.0
"""),
    "S": rows(r"""
f'{<I:var>:>{<I:var> % 5 + 1}}'
f'{<I:var>:0{len(<N:var>) + 1}d}'
f'{<F:var>:.{<I:var> % 4}f}'
f'{<I:var>!r}|{<I:var>!s:>5}'
f'{<I:var>:x}{<I:var>:+d}'
f'{x.shape}'
f'{tuple(x.shape)}'
str(x.dtype)
str(list(x.shape))
repr((<I>, <F>))
str({<I>: <I>})
str({'a': <N>, 'b': (<I>,)})
'{0}-{1[0]}'.format(<I>, [<I>])
'{:>5}|{:<3}'.format(<I>, <I>)
'%s-%3d' % (<I>, <I>)
'%(a)d' % {'a': <I>}
'%.2f' % <F>
str(<I>).zfill(4)
<S>.center(<I> % 9)
<S>.upper()[: <I>]
<S>[<I> % 2 :]
<S>[::-1]
<S>.replace('a', str(<I>))
'ab' * (<I> % 3)
chr(97 + <I> % 5)
','.join(map(str, <N>))
','.join(f'{k}' for k in <D>)
hex(<I>)
bin(<I> % 9)
str(divmod(<I>, 4))
str(<B>)
repr(range(<I>))
str(slice(<I>, None))
repr(Point(0, <I>))
repr(Version(<I>, 2))
str(Color(<I> % 3 + 1))
format(Version(<I>, 2), 'v')
f'{Version(<I:var>, 2):>}'
repr(complex(<I>, <F>))
str(fractions.Fraction(<I>, 3))
str(types.SimpleNamespace(k=<I>))
repr(collections.OrderedDict(a=<I>))
repr(collections.deque(<N>, maxlen=2))
repr(Stack(<N>))
ascii(<N>)
(<S> + '-').partition('-')[0]
<S>.encode().decode()
textwrap.shorten('ab ' * (<I> % 5 + 1), 9)
type(<I>).__name__
type(<F>).__name__
str(float(<I>))
str(<I> / 4)
str(<I> == <I>)
str(-<I> // 2)
str(1 << (<I> % 70))
"""),
    "N": rows(r"""
[*range(<I> % 5), <I>]
[b - a for a, b in itertools.pairwise(<N>)]
list(itertools.chain.from_iterable([<N>, [<I>]]))[:6]
[k for k, _ in itertools.groupby(<N>)]
[len(list(g)) for _, g in itertools.groupby(<N>, lambda v: v % 2)]
[a if b is None else b for a, b in itertools.zip_longest(<N>, <N>[1:])]
list(itertools.islice(itertools.cycle([1, <I>]), <I> % 5))
list(itertools.compress(<N>, [1, <I> % 2, 1]))
list(itertools.dropwhile(lambda v: v > <I>, <N>))
[i * j for i in range(<I> % 3) for j in <N>[:3] if i != j]
[[v, w][v > w] for v, w in zip(<N>, reversed(<N>))]
sorted(<N>, key=functools.cmp_to_key(lambda a, b: (a % 3) - (b % 3)))
sorted(<N>, key=lambda v: (v % 2, -v), reverse=<B>)
heapq.nlargest(2, <N>)
[y := <I>, y ** 2 % 50]
[last := v % 7 for v in <N>] + [len(<N>)]
list({v: i for i, v in enumerate(<N>)}.values())
[*{<I>: 1, <I>: 2}]
list(map(operator.add, <N>, <N>))
list(map(max, <N>, <N>[::-1]))
[v for v in <N> if v % 2 if v > 1]
[sum(c) % 50 for c in itertools.combinations(<N>[:4], 2)]
[*map(int, ','.join(map(str, [1, *<N>])).split(','))]
list(Tally(<N>).elements())[:5]
list(collections.OrderedDict.fromkeys([<I>, 1, 2]))
[*Countdown(<I> % 5)]
list(reversed(Countdown(<I> % 5)))
list(x.shape[::-1])
[*x.shape, *x.stride()]
list(range(<I> % 10))[<I> % 3::2]
list(range(9))[slice(<I> % 4, None, <I> % 3 + 1)]
(lambda *a: [*a[1:]])(<I>, *<N>)
[len(s) for s in <S>.split('-')]
[ord(c) % 9 for c in <S>][:4]
list(bytes([<I> % 200, 2]))
list(divmod(<I>, 3))
[f(<I>) % 40 for f in (lambda v: v + 1, abs, lambda v, w=<I>: v * w)]
list(itertools.accumulate(<N>, lambda a, b: (a * 2 + b) % 31, initial=<I>))[:6]
list(walk([<I>, [<I>, <N>]]))[:7]
[*feed(<N>)]
[n for n, in zip(<N>)]
"""),
    "L": rows(r"""
[t for t in <L> if t is not x] or [x]
[t * k for t, k in zip(<L>, itertools.count(<I>))]
[t + i for t, i in zip(<L>, Countdown(9))]
[*map(torch.add, <L>, reversed(<L>))]
[(<T>, t)[i % 2] for i, t in enumerate(<L>, start=<I>)]
list(filter(lambda t: t.numel() > <I>, <L>)) or [<T>]
[f(<T>) for f in (torch.relu, Box.half, lambda t: t - <I>)]
list(itertools.chain(*[<L>, (<T>,)]))
sorted(<L>, key=lambda t: (t.shape[0], t is x), reverse=True)
[<T>, *<L>][:: -1]
<L>[-2:]
<L>[:: 2]
[t for _, t in sorted(enumerate(<L>), key=lambda p: -p[0])]
[t for pair in zip(<L>, <L>) for t in pair]
list(Stack(<L>))
[*walk([<T>, <L>])]
[*twice(<L>)]
list(<T>.split(1))[:1] * 2 and [<T>]
[t.clone() for t in (<T>, *<L>)]
"""),
    "D": rows(r"""
{k: t * i for i, (k, t) in enumerate(<D>.items())} | {'b': <T>}
{**{'a': <T>}, **<D>}
dict(a=<T>, b=<T>)
{k: v for k, v in <D>.items() if k != 'c'}
dict(collections.ChainMap({'a': <T>}, <D>))
dict(reversed(<D>.items()))
dict([('a', <T>), ('b', <T>)], c=<T>)
Missing(a=<T>, b=<T>)
collections.OrderedDict(a=<T>, b=<T>)
{k: <D>[k] for k in sorted(<D>)}
{s: <T> for s in 'ab'}
"""),
    "O": rows(r"""
Child.build(<T>) if <B> else Box(<T>, 2)
copy.copy(<O>)
max([Box(<T>, 1), <O>], key=lambda o: o.k)
copy.deepcopy(<O>)
"""),
    "P": rows(r"""
Point(<T>, <I>)
(<T>, *(<I>,))
next(zip([<T>], [<I>]))
next(iter({<I>: <T>}.items()))[::-1]
max((<T>, <I>), (<T>, <I>), key=operator.itemgetter(1))
"""),
}

STATEMENTS: list[str] = rows(r"""
<I:own> -= <I>
<I:own> //= 2
<I:own> <<= 1
<N:own> = <N>
<N:own> += [<I>]
<N:own> *= 2
<S:own> += 'z'
<N:var>[:1] = [<I>, <I>]
<N:var>[::2] = [7] * len(<N:var>[::2])
<new:T> = (<T>, <T>)[0]
(<new:I>, [<new:T>, *_]), *_ = (<I>, [<T>, 2]), 3
<new:I>, <new:I> = <I>, <I>
<new:I> = <new:I> = <I>
<new:I>, *<new:N> = [<I>, *<N>]
*<new:N>, <new:I> = *<N>, <I>
<N:var>[0:0] = <new:N> = [<I>]
memo[<I>] = <T>
memo.setdefault(<S>, []).append(<I>)
SEEN.append((<S>, <I>))
SEEN.append({<S>: <I>})
SEEN.append(f'{<I:var>} {<B:var>}')
SEEN[:] = SEEN[-3:]
SEEN.extend([<I>, 2])
del SEEN[:-4]
TABLE.update({<S>: <I>})
TABLE.pop(<S>, None)
<O:var>.__dict__.update(k=<I>)
setattr(<O:var>, 'late', <T>)
<O:var>.k, <O:var>.t = <I>, <T>
<O:var>.t, <new:I> = <T>, <I>
Registry.count += <I> % 3
print(<S>, <I>, sep='|', end=';')
print(f'{<I:var>:>4}', *<N>)
random.seed(<I>); <new:I> = random.randrange(1, 50)
<new:T> = <T> if random.random() < 0.5 else <T>
""") + blocks(r"""
def <fn:T>(t, seen=[]):
    seen.append(<I>)
    <func>
    return <ret>
<new:T> = <=1>(<=1>(<T>))
<new:I> = len(<=1>.__defaults__[0])

fs = []
for i in range(<I> % 4 + 1):
    fs.append(lambda t: t + i)
<new:T> = fs[0](<T>) + fs[-1](<T>)

fs = {}
for name, k in (('a', <I>), ('b', <I>)):
    def act(t, k=k):
        nonlocal_like = k * 2
        return t * nonlocal_like + len(name)
    fs[name] = act
<new:T> = fs['a'](fs['b'](<T>))

<new:I> = <I>
def <fn:T>(t):
    def inner():
        nonlocal <=1>
        <=1> = (<=1> * 3 + 1) % 50
        return <=1>
    <func>
    return <ret> + inner() + inner()
<new:T> = <=2>(<T>) + <=1>

def <fn:T>(t):
    try:
        <func>
        return <ret>
    finally:
        SEEN.append('fin')
        if <I> > 3:
            return t * 2
<new:T> = <=1>(<T>)

def <fn:T>(t):
    for i in range(4):
        try:
            <func>
            if i == <I> % 5:
                break
            risky(t, <I> + i)
        except KeyError:
            continue
        except ValueError as err:
            t = t + len(err.args)
        else:
            t = t * 2
        finally:
            t = t - 1
    else:
        t = t + 100
    return t
<new:T> = <=1>(<T>)

def <fn:T>(t):
    try:
        got = yield t
        while True:
            try:
                got = yield t * (got or 1)
            except ValueError as err:
                SEEN.append(('thrown', err.args))
                got = 3
    finally:
        SEEN.append('closed')
g = <=1>(<T>)
<new:T> = next(g)
<new:T> = g.send(<I>)
<new:T> = g.throw(ValueError(<I>))
g.close()
SEEN.append(next(g, 'over') == 'over')

def <fn:T>(t):
    total = 0
    for u in <L>[:3]:
        total += 1
        yield u + t
    return total
def outer(t):
    n = yield from <=1>(t)
    SEEN.append(n)
    yield t * n
*<new:L>, <new:T> = outer(<T>)

g = (t * <I> for t in <L:var>[:4] if <B>)
<new:L> = [*g, <T>]
SEEN.append(next(g, None) is None)

n_seen = 0
g = (n_seen + v for v in <N>)
n_seen = <I>
<new:N> = list(g)

match <N>:
    case []:
        <block>
    case [<loc:I>]:
        <block>
    case [<loc:I>, *rest] if len(rest) < 3:
        <block>
    case [_, _, *_] | (_, *_):
        <block>

match (<I>, <S>, <B>):
    case (0, _, _):
        <block>
    case (int(<loc:I>), 'ab' | 'abab', True):
        <block>
    case (<loc:I>, str() as <loc:S>, False):
        <block>
    case _:
        <block>

match {'kind': <S>, 'n': <I>, 'p': <P>}:
    case {'kind': 'ab', 'n': <loc:I>}:
        <block>
    case {'p': (<loc:T>, <loc:I>), **rest}:
        SEEN.append(sorted(rest))
        <block>

match Point(<T>, <I>):
    case Point(k=0):
        <block>
    case Point(<loc:T>, <loc:I>) if <B>:
        <block>
    case (t, k):
        <block>

match Color(<I> % 3 + 1):
    case Color.RED:
        <block>
    case Color.GREEN | Color.BLUE:
        <block>

class Sub(Box):
    __slots__ = ()
    limit: int = (lambda: <I>)()
    table = {i: i * (lambda: <I>)() for i in range(3)}
    def shift(self):
        return self.limit + self.table.get(self.k, 1)
    def __getattr__(self, name):
        if name == 'ghost':
            return self.t + self.k
        raise AttributeError(name)
<new:O> = Sub(<T>, <I>)
<new:T> = <=1>.ghost + <=1>.scale(1)
SEEN.append(hasattr(<=1>, 'nothing'))

Made = type('Made', (Box,), {'shift': lambda self: self.k * 2, 'tag': <I>})
<new:T> = Made(<T>, <I>).scale(Made.tag)

class Kind(metaclass=Meta):
    a = (lambda: <I>)()
    b = (lambda: <I>)()
<new:I> = Kind['a'] + len(Kind)
SEEN.append(sorted(Kind))

class Plug(Registry, name=f'p{<I:var>}'):
    def run(self):
        return self.t - self.k
<new:T> = Registry.make(f'p{<I:var>}', <T>, <I>).run()
Registry.kinds.pop(Plug.name, None)

class Prop:
    def __init__(self, t):
        self._t = t
    @property
    def t(self):
        SEEN.append('get')
        return self._t
    @t.setter
    def t(self, value):
        SEEN.append('set')
        self._t = value
    @t.deleter
    def t(self):
        del self._t
    k = property(lambda self: <I>)
p = Prop(<T>)
p.t += <I>
<new:T> = p.t * p.k
del p.t
SEEN.append(hasattr(p, 't'))

@dataclasses.dataclass(order=True, slots=True)
class Rec:
    k: int
    w: float = (lambda: <F>)()
    t: object = dataclasses.field(default=None, compare=False, repr=False)
recs = sorted([Rec(<I>, <F>, <T>), Rec(<I>, t=<T>), Rec(2, 0.5, <T>)])
<new:T> = recs[0].t
SEEN.append(repr(recs[1]))
<new:I> = recs[-1].k

@functools.total_ordering
class Rank:
    def __init__(self, k):
        self.k = k
    def __eq__(self, other):
        return self.k == other.k
    def __lt__(self, other):
        return self.k % 3 < other.k % 3
ranks = sorted(map(Rank, [<I>, <I>, 4]))
<new:N> = [r.k for r in ranks]
<new:B> = ranks[0] >= ranks[-1]

@contextlib.contextmanager
def room(k):
    SEEN.append(k)
    try:
        yield k * 2
    except KeyError:
        SEEN.append('caught')
    finally:
        SEEN.append(-k)
with room(<I>) as <loc:I>:
    <block>
    if <B>:
        raise KeyError('k')
    <block>

with contextlib.ExitStack() as stack:
    for k in range(<I> % 3):
        stack.enter_context(Scope(SEEN, k))
    stack.callback(SEEN.append, <S>)
    <block>

with Scope(SEEN, 'a') as one, scaled(SEEN, <I>) as <loc:I>:
    <block>
    risky(<T>, <I>)

with contextlib.nullcontext(<T>) as <loc:T>, torch.set_grad_enabled(<B>):
    <block>

try:
    with Scope(SEEN, <I>), contextlib.closing(Closer()) as closer:
        <block>
        risky(<T>, <I> * 2)
except (KeyError, ValueError) as err:
    SEEN.append(err.args)

try:
    <new:T> = {'a': <T>, 'b': <T>}[<S>]
except KeyError as err:
    <=1> = x + len(str(err))

try:
    <new:N> = [a + b for a, b in zip(<N>, <N>, strict=True)]
except ValueError as err:
    <=1> = [len(str(err))]

try:
    first, second = <N>
    <new:I> = first - second
except ValueError as err:
    SEEN.append(str(err))
    <=1> = n

try:
    <new:I> = <I> // (<I> % 3)
except ZeroDivisionError as err:
    SEEN.append(str(err))
    <=1> = 1

try:
    for k in <D:var>:
        if <I> > 2:
            <D:var>[k + 'x'] = <T>
except RuntimeError as err:
    SEEN.append(str(err))

try:
    <new:T> = helper(<T>, <I>, nope=1, **{<S>: 2})
except TypeError as err:
    <=1> = x

try:
    <new:T> = threshold(<T>, <I>, **{<S>: <F>})
except TypeError as err:
    SEEN.append(str(err))
    <=1> = y

try:
    raise ExceptionGroup('two', [ValueError(<I>), KeyError(<S>)])
except* ValueError as group:
    SEEN.append([e.args for e in group.exceptions])
except* KeyError:
    SEEN.append(<I>)

try:
    <block>
    assert <I> < 5, f'big {<I:var>}'
except AssertionError as err:
    SEEN.append(str(err))

try:
    try:
        risky(<T>, <I>)
    except ValueError as err:
        raise RuntimeError('outer', <I>) from None
except RuntimeError as err:
    SEEN.append((err.args, err.__suppress_context__))
except KeyError as err:
    err.add_note('noted')
    SEEN.append(err.__notes__)

class Trouble(Exception):
    def __init__(self, k, t):
        super().__init__(k)
        self.k, self.t = k, t
try:
    raise Trouble(<I>, <T>)
except Trouble as err:
    <new:T> = err.t * err.k

for <loc:I> in Countdown(<I> % 5):
    <loop>
else:
    <block>

for <loc:I>, (<loc:T>, <loc:S>) in enumerate(zip(<L>[:3], 'abc'), <I>):
    <loop>

for <loc:I>, <loc:I> in itertools.product(range(<I> % 3), <N>[:2]):
    <loop>

for <loc:S> in sorted(<D>):
    <loop>

for <loc:S>, <loc:T> in reversed(<D>.items()):
    <loop>

for <loc:I> in {<I>, <I>, 3}:
    <loop>

for <loc:T> in map(torch.neg, <L>[:3]):
    <loop>

for <loc:T> in <T>.unbind(0):
    SEEN.append(len(<=1>))

for <loc:T>, <loc:I> in sorted(zip(<L>[:4], <N>), key=lambda p: p[1]):
    <loop>

for <loc:I> in range(<I> % 6, -2, -2):
    <loop>

for <loc:I> in iter(Popper(<N>).take, None):
    <loop>

todo = [<I> % 6]
while todo:
    k = todo.pop()
    if k > 1:
        todo += [k // 2, k - 2]
    SEEN.append(k)
    if len(SEEN) > 60:
        break

q = collections.deque(<L>[:3])
while q and <B>:
    <new:T> = q.popleft()

heap = []
for k in <N>[:5]:
    heapq.heappush(heap, (k % 4, k))
<new:N> = [heapq.heappop(heap)[1] for _ in range(len(heap))]

view = <D:var>.keys()
before = len(view)
<D:var>[f'v{<I:var>}'] = <T>
<new:I> = len(view) - before

groups = {}
for t in <L>[:4]:
    groups.setdefault((t.dim(), <I> % 2), []).append(t)
<new:L> = [sum(g) for g in groups.values()]

cache = collections.OrderedDict()
for k in <N>[:5]:
    cache[k] = <T>
    cache.move_to_end(k, last=<B>)
    if len(cache) > 2:
        cache.popitem(last=False)
<new:N> = list(cache)

tally = collections.Counter(<N>)
tally.update({<I>: 2})
tally.subtract([1])
<new:N> = [v for _, v in sorted(tally.items())]

nested = collections.defaultdict(lambda: collections.defaultdict(int))
for k in <N>[:5]:
    nested[k % 2][<I>] += k
<new:N> = [sum(v.values()) % 99 for _, v in sorted(nested.items())]

counts = Missing(a=<I>)
counts['zz'] += 1
counts['a'] -= <I>
SEEN.append(dict(counts))

lst = [<I>, [<I>, 2], {'k': <I>}]
lst[1][0] += <I>
lst[2]['k'] *= 2
lst[bump(1) % 2 * 0] += bump(1)
SEEN.append(lst)

stack = Stack(<L:var>)
stack.push(<T>).push(<T>)
<new:T> = stack.top()
<new:I> = len(stack)

row = [0] * (<I> % 4 + 1)
grid = [row[:] for _ in range(2)]
grid[0][-1] = <I>
grid[1][:1] = [<I>, 1]
<new:N> = [v for r in grid for v in r]

a = b = [<I>]
a += [<I>]
b = b + [<I>]
<new:N> = a + b

def <fn:T>(t, /, k=<I>, *args, scale: int = 2, **kw) -> torch.Tensor:
    <func>
    return <ret> * scale + k + len(args) + sum(kw.values())
<new:T> = <=1>(<T>, *[1, 2][: <I> % 3], **{'scale': 3, 'u': <I>})
<new:T> = functools.partial(<=1>, k=1)(<T>)

def <fn:T>(t):
    <func>
    return <ret>
<=1>.calls = <I>
<=1>.calls += 1
<new:T> = <=1>(<T>) * <=1>.calls

@functools.wraps(helper)
def <fn:T>(t, *a, **kw):
    return helper(t, *a, **kw) + <I>
<new:T> = <=1>(<T>, 2, bias=1)
SEEN.append(<=1>.__name__)

@functools.lru_cache(maxsize=2)
def <fn:T>(k):
    SEEN.append(k)
    return k * 2
<new:I> = <=1>(<I>) + <=1>(<I>) + <=1>(1)
SEEN.append(<=1>.cache_info().misses)

late = lambda t: later(t)
def later(t):
    return t + <I>
<new:T> = late(<T>)

tok = CONTEXT.set(<I>)
<new:I> = CONTEXT.get() + 1
CONTEXT.reset(tok)

if (m := <I>) > 2 and (k := m * 2) < 20:
    <block>
    <new:I> = k

<new:I> = <I>
del <=1>
try:
    SEEN.append(<=1>)
except NameError as err:
    SEEN.append(type(err).__name__)
<=1> = <I>

async def work(t, k):
    return t * k
async def both(t):
    return await work(t, <I>) + await work(t, 2)
try:
    both(<T>).send(None)
except StopIteration as err:
    <new:T> = err.value

import importlib
mod = importlib.import_module('math')
<new:I> = mod.floor(mod.sqrt(abs(<I>)))

box = <O:var>
box.k, old = (old_k := <I>), box.k if old_k else 0
box.__class__ = Child if type(box) is Box else type(box)
box.extra = [<I>]
<new:T> = box.scale(1)

rec = Recorded(<T>)
rec.a = <I>
rec.a += 1
del rec.a
<new:T> = rec.t
SEEN.append(rec.log)

o = Ops(<T>)
o += <I>
p = o
o *= 2
<new:T> = p.t
<new:B> = p is o

t = <T:var>
t += <I>
<new:T> = t

u = v = <T>
u = u + 1
<new:T> = v - u

pairs = [(<T>, <I>), (<T>, <I>)]
pairs.sort(key=lambda p: p[1])
(<new:T>, <new:I>), _ = pairs

shapes = {}
for t in <L>[:3]:
    shapes[t.shape] = shapes.get(t.shape, 0) + 1
<new:N> = list(shapes.values())

n0, n1 = x.shape
<new:I> = n0 * n1 - n0
<new:T> = <T>.reshape(n1, -1).reshape(n0, n1)

chunks = <T>.chunk(<I> % 3 + 1)
<new:T> = torch.cat(chunks[::-1])
<new:I> = len(chunks)

acc = torch.zeros(x.shape[1])
for i in range(x.shape[0]):
    acc = acc + <T:var>[i] * i
<new:R> = acc

out = []
for row in <T>.split(2):
    out.append(row.sum(0) + len(row))
<new:R> = sum(out)

buf = <T>.clone()
for i in range(0, x.shape[0] - 1, 2):
    buf[i], buf[i + 1] = buf[i + 1].clone(), buf[i].clone()
<new:T> = buf

try:
    a, b, *c = <T>
    <new:R> = a + b + len(c)
except ValueError as err:
    SEEN.append(str(err))
    <=1> = x.sum(0)

order = sorted(range(len(<L:var>)), key=[t.shape[0] + i % 2 for i, t in enumerate(<L:var>)].__getitem__)
<new:N> = order
""")

PRELUDE = '''
import bisect, contextvars, copy, enum, heapq, random, statistics, textwrap, types, typing

memo = {}
CONTEXT = contextvars.ContextVar("context", default=3)


class Lazy:
    def __init__(self, t, k):
        self.t, self.k = t, k

    @functools.cached_property
    def double(self):
        SEEN.append("double")
        return self.t * 2 + self.k

    def __getattr__(self, name):
        if not name.startswith("size_"):
            raise AttributeError(name)
        value = self.t + int(name[5:]) * self.t.shape[0]
        setattr(self, name, value)
        return value


class Ops:
    """Operators that tell in which order they were asked."""

    def __init__(self, t, note=""):
        self.t = t

    def __sub__(self, other):
        SEEN.append("sub")
        return Ops(self.t - other) if not isinstance(other, Ops) else NotImplemented

    def __rsub__(self, other):
        return Ops(other - self.t)

    def __matmul__(self, k):
        return Ops(self.t * k)

    def __neg__(self):
        return Ops(-self.t)

    def __pow__(self, k, mod=None):
        return Ops(self.t ** k)

    def __getitem__(self, key):
        if isinstance(key, tuple):
            return Ops(self.t + len(key) + (key[0] if isinstance(key[0], int) else 0))
        return Ops(self.t * (key.start or 1) + (key.step or 0))

    def __or__(self, other):
        return NotImplemented

    def __ror__(self, other):
        return Ops(self.t + other.t)

    def __iadd__(self, k):
        self.t = self.t + k
        return self

    def __imul__(self, k):
        return Ops(self.t * k)


class Point(typing.NamedTuple):
    t: object
    k: int = 1

    def moved(self):
        return self._replace(t=self.t + self.k)


@dataclasses.dataclass(frozen=True, kw_only=False)
class Frozen:
    t: object
    k: int = 3
    total: object = dataclasses.field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "total", self.t * self.k)


class Registry:
    kinds: dict = {}
    count = 0

    def __init_subclass__(cls, name=None, **kw):
        super().__init_subclass__(**kw)
        cls.name = name or cls.__name__.lower()
        Registry.kinds[cls.name] = cls

    def __init__(self, t, k):
        self.t, self.k = t, k
        type(self).count += 1

    @classmethod
    def make(cls, name, t, k):
        return cls.kinds.get(name, cls.kinds["plain"])(t, k)

    def run(self):
        return self.t


class Plain(Registry):
    def run(self):
        return super().run() + self.k


class Fancy(Plain):
    def run(self):
        return super().run() * 2 - self.count


class Meta(type):
    def __iter__(cls):
        return iter([n for n in vars(cls) if not n.startswith("_")])

    def __len__(cls):
        return sum(1 for _ in cls)

    def __getitem__(cls, name):
        return getattr(cls, name)


class LikeMeta(type):
    def __instancecheck__(cls, obj):
        return hasattr(obj, "k") and obj.k > 2

    def __subclasscheck__(cls, kind):
        return hasattr(kind, "extra_kind") or kind is Box


class Like(metaclass=LikeMeta):
    pass


class Missing(dict):
    def __missing__(self, key):
        SEEN.append(("missing", key))
        return self.get("a", 0)


class Stack(list):
    def push(self, t):
        self.append(t)
        return self

    def top(self):
        return self[-1]

    def __getitem__(self, i):
        got = super().__getitem__(i)
        return Stack(got) if isinstance(i, slice) else got


class Tally(collections.Counter):
    def most(self):
        return max(self.values(), default=0)


@functools.singledispatch
def show(value):
    return 5


@show.register
def _(value: torch.Tensor):
    return value.relu()


@show.register(int)
def _(value):
    return value % 4


@show.register(list)
def _(value):
    return show(value[0]) + len(value)


def kinds_of(t, k):
    match t, k:
        case torch.Tensor(), 0:
            return t
        case torch.Tensor(shape=(_, n)), int() if n > k:
            return t * n
        case _:
            return t - k


class Half:
    def __init__(self, t):
        self.t = t

    def part(self, k, by):
        return self.t / by + k

    third = functools.partialmethod(part, by=4)

    @property
    def bad(self):
        return self.t.no_such_name


class Once:
    """A descriptor that is no data descriptor: what it finds is kept in the instance."""

    class Find:
        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, obj, owner):
            if obj is None:
                return self
            obj.__dict__[self.name] = found = obj.t + 1
            return found

    value = Find()

    def __init__(self, t):
        self.t = t


class Recorded:
    def __init__(self, t):
        object.__setattr__(self, "log", [])
        self.t = t

    def __setattr__(self, name, value):
        self.log.append(name)
        super().__setattr__(name, value)

    def __delattr__(self, name):
        self.log.append("-" + name)
        super().__delattr__(name)

    def __getattribute__(self, name):
        if name == "a":
            super().__getattribute__("log").append("?a")
        return super().__getattribute__(name)


class Color(enum.Enum):
    RED = 1
    GREEN = 2
    BLUE = 3


class Perm(enum.Flag):
    R = 1
    W = 2
    X = 4


class Version:
    __slots__ = ("major", "minor")

    def __init__(self, major, minor):
        self.major, self.minor = major, minor

    def __eq__(self, other):
        return isinstance(other, Version) and (self.major, self.minor) == (other.major, other.minor)

    def __gt__(self, other):
        return (self.major, self.minor) > (other.major, other.minor)

    def __hash__(self):
        return hash((self.major, self.minor))

    def __repr__(self):
        return f"Version({self.major}.{self.minor})"

    def __format__(self, spec):
        return f"{spec}{self.major}"


class Counted:
    """Instances by their number."""
    made = {}

    def __new__(cls, n):
        found = cls.made.get(n)
        if found is None:
            found = cls.made[n] = super().__new__(cls)
        return found

    def __init__(self, n):
        self.n = n

    @classmethod
    def of(cls, n):
        return cls(n % 4)


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        k = self.n
        while k > 0:
            yield k
            k -= 1

    def __reversed__(self):
        return iter(range(1, self.n + 1))


class Closer:
    def close(self):
        SEEN.append("close")


class Popper:
    def __init__(self, values):
        self.values = list(values)[:4]

    def take(self):
        return self.values.pop() if self.values else None


def total_of(*args, k=1):
    return (sum(args) * k + len(args)) % 47


@functools.lru_cache(maxsize=3)
def cached(k):
    SEEN.append(("cached", k))
    return k * 3


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def walk(tree):
    for node in tree:
        if isinstance(node, list):
            yield from walk(node)
        else:
            yield node


def feed(values):
    it = iter(values)
    for v in it:
        yield v
        if v % 2:
            next(it, None)


def twice(values):
    for v in values[:3]:
        yield v
        yield v


def threshold(t, k, *, low=0.25, high=None):
    return t.clamp(low, high if high is not None else low + abs(k))


@functools.total_ordering
class Ranked:
    def __init__(self, k):
        self.k = k

    def __eq__(self, other):
        return self.k == other.k

    def __lt__(self, other):
        return self.k < other.k


def total_order(a, b):
    a, b = Ranked(a), Ranked(b)
    return (a <= b) * 4 + (a > b) * 2 + (a >= b) + (a != b)
'''
