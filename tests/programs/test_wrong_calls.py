"""Calls and operators with wrong arguments: compiled code raises what CPython raises, word for word, with its context and its fields."""

from __future__ import annotations

import abc
import asyncio
import collections
import copy
import dataclasses
import enum
import functools
import inspect
import itertools
import math
import operator
import types
import typing
import warnings
import weakref

import numpy as np
import pytest
import torch

import pliant

NAMESPACES = (collections, copy, dataclasses, enum, functools, inspect, itertools, math, operator, types)
# one program a line (further lines of it are indented): expressions, tried one after the other
PROGRAMS = r'''
len() ; len(1) ; len([],[]) ; len(obj=[]) ; len(3.5) ; isinstance(1) ; isinstance(1,2) ; isinstance(1,int,3) ; isinstance(1,(int,3)) ;
    isinstance(1,('a',)) ; issubclass(1,int) ; issubclass(int) ; issubclass(int,3)
getattr(1) ; getattr(1,2) ; getattr(1,2,3) ; getattr(1,'x') ; getattr(1,'x',2,3) ; getattr(1,name='real') ; hasattr(1) ; hasattr(1,2) ;
    hasattr(1,'a','b') ; setattr(1,'a') ; setattr(1,2,3) ; setattr(1,'a',2) ; setattr(1,'real',2) ; delattr(1) ; delattr(1,2) ;
    delattr(1,'a') ; delattr(1,'real')
id() ; hash() ; hash([]) ; hash({}) ; hash(1,2) ; hash((1,[])) ; iter() ; iter(1) ; iter(1,2) ; iter([],2) ; iter([],1,2) ; next() ;
    next(1) ; next([]) ; next(iter([])) ; next(iter([]),1,2) ; next(iter([1]),default=3)
bool(1,2) ; bool(x=1) ; int(1,2) ; int("1",x=3) ; int("x") ; int("z",36) ; int("12",base=3) ; int(x="1") ; int("1",2,3) ; int([]) ;
    int(None) ; int("1",None) ; float("x") ; float(1,2) ; float([]) ; float(x=1) ; complex("z") ; complex(1,2,3) ; complex("1",2) ;
    complex(real=1,imag=2)
max() ; max([]) ; max(1) ; max(1,'a') ; max([1],key=3) ; max(1,2,default=3) ; min() ; min(default=1) ; min([],default=4) ;
    min(1,2,key=None) ; max([],key=len,default=None) ; abs() ; abs('a') ; abs(1,2) ; divmod(1) ; divmod(1,0) ; divmod('a',1) ; pow(1) ;
    pow(2,-1,0) ; pow('a',2) ; pow(2,3,mod=5) ; pow(base=2,exp=3) ; round('a') ; round(1.5,'a') ; round() ; round(2.5,ndigits=None)
vars(1) ; vars(1,2) ; callable() ; callable(1,2) ; all() ; all(1) ; any(1) ; any([],[]) ; any(iterable=[]) ; list(1) ; list([],[]) ;
    list(sequence=[]) ; tuple(1) ; tuple([],2) ; tuple(a=1) ; set(1) ; set([[]]) ; set([],[]) ; frozenset([{}]) ; frozenset(1,2) ;
    set(a=1) ; dict(1) ; dict([1]) ; dict([(1,)]) ; dict([(1,2,3)]) ; dict({},{}) ; dict([[[],1]]) ; dict(a=1,**{'b':2}) ; dict(None) ;
    dict(["ab","cd"]) ; dict(["abc"])
range() ; range('a') ; range(1.5) ; range(1,2,0) ; range(1,2,3,4) ; range(stop=3) ; str(1,2) ; str(b'a','ascii') ; str(b'\\xff','ascii')
    ; str(object=3) ; str(b'a',errors='strict') ; str(1,2,3,4) ; repr() ; repr(1,2) ; ascii() ; format() ; format(1,2) ; format(1,'z') ;
    format(1,'d','x') ; format('a','d') ; format([],'d')
map() ; map(len) ; list(map(len,3)) ; list(map(3,[1])) ; filter(1) ; list(filter(3,[1])) ; filter(None,3) ; zip(1) ;
    list(zip([1],[2,3],strict=True)) ; list(zip([1],strict=2)) ; zip([1],foo=2) ; enumerate() ; enumerate(1) ; enumerate([],'a') ;
    list(enumerate([1],start=3)) ; enumerate([1],foo=3) ; list(enumerate(iterable=[1])) ; reversed() ; reversed(1) ; reversed({1}) ;
    reversed([],[])

super() ; super(1) ; super(int,'a') ; super(int,int,int) ; type() ; type(1,2) ; type(1,2,3) ; type('A',(1,),{}) ; type('A',(),3) ;
    type('A',(),{},x=3) ; type(x=1)
sum() ; sum(1) ; sum(['a']) ; sum([1],'a') ; sum([],[],[]) ; sum([1],foo=3) ; sum([[1]]) ; sum([b'a'],b'') ; sorted() ; sorted(1) ;
    sorted([1,'a']) ; sorted([1],key=3) ; sorted([2,1],reverse='a') ; sorted([1],cmp=3) ; sorted([1],None)
chr() ; chr(-1) ; chr('a') ; ord('ab') ; ord(1) ; ord() ; bin('a') ; hex(1.5) ; oct(None) ; object(1) ; object(a=1) ; slice() ;
    slice(1,2,3,4) ; slice(a=1) ; property(1,2,3,4,5) ; staticmethod() ; classmethod(1,2) ; memoryview(1) ; bytes(1,2) ; bytes('a') ;
    bytes([256]) ; bytes(-1) ; bytearray('a') ; bytes([1,'a'])
operator.getitem(1) ; operator.getitem([],0) ; operator.getitem([1],'a') ; operator.setitem([],1) ; operator.setitem((),0,1) ;
    operator.contains(1,2) ; operator.contains([1]) ; operator.not_() ; operator.truth(1,2) ; operator.add(1) ; operator.add(1,'a') ;
    operator.iadd([],1) ; operator.lt(1,'a') ; operator.eq(1) ; operator.length_hint(1,'a') ; operator.length_hint([],2,3) ;
    operator.index(1.5) ; operator.concat(1,2) ; operator.indexOf([1],2) ; operator.countOf(1,2) ; operator.attrgetter() ;
    operator.attrgetter(1) ; operator.attrgetter('a')(1) ; operator.attrgetter('real')(1,2) ; operator.itemgetter() ;
    operator.itemgetter(1)([]) ; operator.itemgetter(0)([1],[2]) ; operator.methodcaller() ; operator.methodcaller(1) ;
    operator.methodcaller('a')(1) ; operator.methodcaller('real')(1) ; operator.attrgetter('real')() ; operator.itemgetter(0)(a=[1])
functools.partial() ; functools.partial(1) ; functools.partial(len)(1) ; functools.reduce(max) ; functools.reduce(max,[]) ;
    functools.reduce(1,[1,2]) ; functools.reduce(max,1) ; functools.cmp_to_key() ; functools.cmp_to_key(3) ;
    sorted([1,2],key=functools.cmp_to_key(3)) ; functools.lru_cache(maxsize='a')
object.__setattr__(1) ; object.__setattr__(1,'a',2) ; object.__getattribute__(1) ; object.__getattribute__(1,'zz') ;
    object.__delattr__(1,'a') ; object.__init__() ; object.__init__(1,2) ; object.__new__() ; object.__new__(1) ; object.__new__(int) ;
    object.__new__(object,1) ; int.__new__(str) ; list.__new__(3) ; dict.__new__(list) ; object().__init__(1) ; object.__repr__() ;
    object.__eq__(1) ; object.__hash__([]) != 0 ; type.__call__(int,'3') ; type.__call__() ; type.__call__(3)
list.append([]) ; list.append(1,2) ; [].append() ; [].append(1,2) ; [].append(x=1) ; [].pop() ; [1].pop('a') ; [1].pop(5) ; [].remove(1)
    ; [].index(1) ; [1].index(1,'a') ; [].insert(1) ; [].insert('a',1) ; [].extend(1) ; [].extend() ; [1].sort(1) ; [1,'a'].sort() ;
    [].sort(foo=1) ; [].count() ; [].copy(1) ; [].clear(1) ; [].reverse(1)
{}.pop() ; {}.pop(1) ; {}.popitem() ; {}.get() ; {}.get(1,2,3) ; {}.get([]) ; {}.setdefault() ; {}.setdefault([]) ; {}.update(1) ;
    {}.update([1]) ; {}.update({},{}) ; {}.keys(1) ; {}.items(1) ; dict.fromkeys() ; dict.fromkeys(1) ; dict.fromkeys([[]]) ;
    dict.fromkeys([1],2,3) ; {1:2}[3] ; {1:2}[[]] ; {}.__contains__([]) ; {}.__getitem__(1) ; {}.__getitem__() ; {}.__setitem__(1) ;
    {}.__delitem__(1) ; {}.__len__(1) ; {}.__class__(1)
set().add() ; set().add([]) ; set().remove(1) ; set().pop() ; set().discard([]) ; set().update(1) ; set().union(1) ; {1}-[1] ; {1}|[1] ;
    {1}<[1] ; {1}.issubset(1) ; {1}.isdisjoint() ; frozenset().add(1) ; (1,).index(2) ; (1,).count() ; (1,)+[1] ; (1,)*'a' ; [1]*1.5 ;
    [1]+(1,) ; [1][1] ; [1]['a'] ; [1][1.5] ; (1,)[2] ; 'a'[3] ; 'a'['b'] ; {}['a'] ; 1[0] ; None[0] ; len[0] ; int[0] ; list[0]
'a'.join([1]) ; 'a'.join(1) ; 'a'.join() ; 'a'.split(1) ; 'a'.split(maxsplit='a') ; 'a'.replace('a') ; 'a'.format(1,2) ; '{}'.format() ;
    '{a}'.format() ; '{0.x}'.format(1) ; '{0[a]}'.format([]) ; '{:d}'.format('a') ; '%d' % 'a' ; '%s' % () ; '%s' % (1,2) ; '%(a)s' % {}
    ; '%(a)s' % 1 ; '%z' % 1 ; 'a'.encode('zz') ; b'a'.decode('zz') ; 'a'.find() ; 'a'.index('b') ; 'a'.center() ; 'a'.zfill('a') ;
    'a'.startswith(1) ; 'a'.startswith() ; 'a' + 1 ; 'a' * 'b' ; 1 + 'a' ; 'a' - 'b' ; -'a' ; ~1.5 ; +[] ; not [] ; 1 < 'a' ; [] < 1 ;
    None < 1 ; {} < {} ; 1 in 1 ; 'a' in 1 ; 1 in 'a' ; None in {1:2} ; [] in {1:2} ; [] in {1}
1() ; None() ; 'a'() ; [](1) ; (lambda: 1)(1) ; (lambda x: 1)() ; (lambda x: 1)(1,x=2) ; (lambda x,/: 1)(x=2) ; (lambda *,x: 1)() ;
    (lambda *,x: 1)(1) ; (lambda x: 1)(y=1) ; (lambda x: 1)(*1) ; (lambda x: 1)(**1) ; (lambda x: 1)(**{1:2}) ; (lambda **k:
    k)(**{'a':1},**{'a':2}) ; (lambda x,y,z: 1)(1) ; (lambda x,y: 1)(1,2,3) ; len(*[1,2]) ; len(*1) ; (lambda *a: a)(*[1],*2)
[*1] ; {*1} ; {**1} ; {**[1]} ; (*1,) ; {*[[]]} ; {[]: 1} ; {1:2, **{3:4}} ; [x for x in 1] ; {x:1 for x in [[]]} ; {x for x in [[]]} ;
    list(x for x in 1) ; [a for a,b in [1]] ; [a for a,b in [(1,)]] ; [a for a,b in [(1,2,3)]] ; [a for a,*b in [()]] ; [a for a,*b,c in
    [(1,)]]
math.sqrt(-1) ; math.sqrt('a') ; math.sqrt() ; math.floor('a') ; math.floor(float('nan')) ; math.ceil(float('inf')) ; math.gcd(1.5) ;
    math.log(0) ; math.log(1,1) ; math.prod(1) ; math.prod([1],start=2) ; math.prod(['a',1.5]) ; math.factorial(-1) ;
    math.factorial(1.5) ; math.comb(1) ; math.isclose(1) ; math.fsum(['a']) ; math.hypot('a') ; math.pow(0,-1) ; math.exp(1e9) ;
    math.trunc('a')
itertools.chain(1) ; list(itertools.chain(1)) ; itertools.count('a') ; itertools.islice([]) ; itertools.islice([],'a') ;
    itertools.islice([],-1) ; itertools.product(1) ; itertools.product([1],repeat='a') ; itertools.repeat() ; itertools.repeat(1,'a') ;
    itertools.permutations([1],'a') ; itertools.combinations([1]) ; itertools.combinations([1],-1) ; itertools.zip_longest(1) ;
    itertools.zip_longest([1],foo=2) ; itertools.tee(1) ; itertools.tee([],-1) ; itertools.cycle(1) ; itertools.starmap(len,1) ;
    list(itertools.starmap(len,[1])) ; itertools.takewhile(1) ; itertools.pairwise(1) ; itertools.compress([1]) ;
    itertools.accumulate(1) ; list(itertools.accumulate([1,'a'])) ; itertools.groupby(1) ; itertools.batched
collections.deque(1) ; collections.deque([],-1) ; collections.deque([],'a') ; collections.deque().pop() ; collections.deque().popleft()
    ; collections.deque([1])[3] ; collections.deque().remove(1) ; collections.deque().index(1) ;
    collections.deque([1],maxlen=1).insert(0,2) ; collections.deque().rotate('a') ; collections.OrderedDict(1) ;
    collections.OrderedDict().popitem() ; collections.OrderedDict().move_to_end(1) ; collections.OrderedDict().pop(1) ;
    collections.defaultdict(1) ; collections.defaultdict(None)[1] ; collections.defaultdict(list,1) ; collections.Counter(1) ;
    collections.Counter([[]]) ; collections.namedtuple('A','a a') ; collections.namedtuple('1','a') ; collections.namedtuple('A','a')()
    ; collections.namedtuple('A','a')(1,2) ; collections.namedtuple('A','a')(b=1) ; collections.ChainMap({})[1] ;
    collections.namedtuple('A','_a') ; collections.namedtuple('A','a')(1)._replace(b=2) ; collections.namedtuple('A','a')._make([1,2])
copy.copy() ; copy.deepcopy() ; copy.copy(1,2) ; dataclasses.fields(1) ; dataclasses.asdict(1) ; dataclasses.replace(1) ;
    inspect.isclass() ; enum.Enum('A') ; types.SimpleNamespace(1) ; types.MethodType(1) ; types.MethodType(1,2) ;
    types.MethodType(len,None) ; types.MappingProxyType(1) ; types.FunctionType(1) ; types.CellType(1,2) ; eval('1+') ; eval('zz') ;
    compile('1+','a','eval') ; abs(None) ; ValueError(1).foo ; ValueError.foo ; (1).foo ; None.foo ; [].foo ; {}.foo ; 'a'.foo ;
    (lambda: 1).foo ; len.foo ; math.foo ; int.foo
'''


def programs():
    for line in PROGRAMS.strip().replace("\n    ", " ").splitlines():
        yield [e.strip() for e in line.split(" ; ")]


def made(expressions):
    """A function that tries each expression and says what came of it."""
    text = ["def program():", "    out = []"]
    for e in expressions:
        text += ["    try:", f"        out.append({e})", "    except Exception as e:", "        out.append(seen(e))"]
    space = {m.__name__: m for m in NAMESPACES} | {"seen": seen}
    exec(compile("\n".join([*text, "    return out"]), f"<{expressions[0]}>", "exec"), space)
    return space["program"]


def seen(e):
    fields = [getattr(e, name, None) for name in ("name", "obj", "value", "key")]
    return type(e).__name__, str(e), e.args, fields, described(e.__context__), described(e.__cause__), e.__suppress_context__


def described(e):
    return None if e is None else (type(e).__name__, str(e))


@pytest.mark.parametrize("expressions", programs(), ids=lambda es: es[0])
def test_wrong_calls(expressions):
    program = made(expressions)
    want = list(map(text, program()))
    compiled = pliant.compile(program, backend="aten", strict=True)
    for _ in range(2):
        for e, w, g in zip(expressions, want, map(text, compiled()), strict=True):
            assert g == w, e


def text(value):
    return repr(value) if " at 0x" not in repr(value) else repr(value)[: repr(value).index(" at 0x")]


def attributes_that_are_no_names(x, n, fn):
    out = []
    for o in (x, n, fn, "s", [1]):
        for name in (n, None, fn, x, 2.5):
            for op in (getattr, delattr, hasattr, object.__getattribute__, object.__delattr__):
                try:
                    out.append(op(o, name))
                except TypeError as e:
                    out.append(str(e))
            for op in (setattr, object.__setattr__):
                try:
                    out.append(op(o, name, 3))
                except TypeError as e:
                    out.append(str(e))
    return out


def what_cannot_be_referred_to(x, n, fn):
    out = []
    for o in (n, "s", None, (1, 2), x.shape[0]):
        for make in (weakref.ref, weakref.proxy):
            try:
                out.append(type(make(o)).__name__)
            except TypeError as e:
                out.append(str(e))
    return out


def calls_of_what_takes_none(x, n, fn):
    out = []
    for call in (globals, locals, warnings._filters_mutated, warnings.warn):
        try:
            out.append(call(x, x, x, x, x, x))
        except TypeError as e:
            out.append(str(e))
    try:
        out.append(copy.deepcopy(n, x))
    except AttributeError as e:
        out.append(str(e))
    for method in (x.numel, x.nelement, x.tolist, x.is_inference):
        for named in ({}, {"dim": 1}):
            try:
                out.append(method(3, **named))
            except TypeError as e:
                out.append(str(e))
    for given in ((x, "tanh"), (x, x), ()):
        try:
            out.append(torch.nn.functional.gelu(*given))
        except TypeError as e:
            out.append(str(e))
    return out


def classes_made_by_calls(x, n, fn):
    made = [
        typing.NamedTuple("A", [("a", int)]), typing.NewType("N", int), typing.TypedDict("T", {"a": int}),
        collections.namedtuple("B", "a b"), enum.Enum("E", "A B"), type("G", (), {}), abc.ABCMeta("Y", (), {}), Meta("M", (), {}),
    ]  # fmt: skip
    for m in made:
        KEPT.append(m)
    variables = [make("V").__module__ for make in (typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple)]
    return [m.__module__ for m in made], variables, len({*map(id, KEPT)}) == len(KEPT)


def of_numpy(x, n, fn):
    a = np.arange(6.0).reshape(2, 3)
    out = [np.array(n).round(), np.array(n).round(-1), np.around(n), np.clip(a, 1, None), np.clip(a, min=2)]
    for call, *given in (
        (np.float32, None), (np.int8, None), (np.complex64, None), (np.float64,), (np.clip, a, 1), (np.clip, a), (np.clip, a, 1, 2, 0, 3),
        (np.array, a, a), (np.asarray, a, n), (np.finfo, a), (np.finfo, np.float32(1)),
    ):  # fmt: skip
        try:
            out.append(call(*given))
        except (TypeError, ValueError) as e:
            out.append(str(e))
    return out


class Meta(type):
    def __new__(cls, name, bases, space):
        return super().__new__(cls, name, bases, space)


KEPT: list = []


@pytest.mark.parametrize(
    "program", [attributes_that_are_no_names, what_cannot_be_referred_to, calls_of_what_takes_none, classes_made_by_calls, of_numpy],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_what_is_given_to_the_program(program):
    compiled = pliant.compile(program, backend="aten", strict=True)
    for size in (2, 3):
        KEPT.clear()
        want = program(torch.ones(size), 3, len)
        KEPT.clear()
        for _ in range(2):
            assert repr(compiled(torch.ones(size), 3, len)) == repr(want)


def test_what_a_function_of_another_module_makes_is_of_that_module():
    other = types.ModuleType("another_module")
    text = """
import collections, enum, typing
def fn(x):
    print(end="")
    made = typing.NamedTuple("A", [("a", int)]), typing.TypedDict("T", {"a": int}), typing.NewType("N", int), typing.TypeVar("V"), \\
        collections.namedtuple("B", "a b"), enum.Enum("E", "A B")
    return [m.__module__ for m in made], x + 1
"""
    exec(text, other.__dict__)
    inlined = pliant.compile(lambda x: other.fn(x), strict=True)
    for compiled in (inlined, pliant.compile(other.fn, strict=True)):
        for size in (2, 3):
            assert compiled(torch.ones(size))[0] == ["another_module"] * 6


SETTABLE: dict = {  # how to make one, and its attribute in each call
    "a future, which shows no dict": (lambda: asyncio.Future(loop=asyncio.new_event_loop()), (1, 1, 2)),
    "a type variable, which shows none since 3.12": (lambda: typing.TypeVar("T"), (1, 1)),
    "a type of calls": (lambda: typing.Callable[[int], str], (1, 1, 2)),
    "a new type": (lambda: typing.NewType("N", int), (1, 1, 2)),
}


@pytest.mark.parametrize("kind", SETTABLE)
def test_attributes_of_values_that_have_none_as_a_rule(kind):
    make, values = SETTABLE[kind]
    made = make()
    made.n = 1
    loops = [made.get_loop()] if hasattr(made, "get_loop") else []

    def fn(x):
        before = made.n if hasattr(made, "n") else None, getattr(made, "no", 3)
        made.q = x + before[0]
        return before, made.q * 2

    compiled = pliant.compile(fn, strict=True)
    for n in values:
        made.n = n
        before, out = compiled(torch.ones(2))
        assert before == (n, 3) and out.tolist() == [2 * n + 2] * 2 and made.q.tolist() == [n + 1] * 2
    for loop in loops:
        loop.close()
