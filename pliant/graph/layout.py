"""Questions about strides, answered soundly over expressions.

The answers follow PyTorch's own definitions (c10/core/Contiguity.h, MemoryFormat.h). Each comparison on the way is first proved;
what cannot be proved is decided by the hint under a guard, and where there is no hint the general case is assumed: "not contiguous"
is always a safe answer, because PyTorch then takes the path that works for any strides.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from pliant.symbolic import ops
from pliant.symbolic.dims import OPEN
from pliant.symbolic.expr import Expr
from pliant.symbolic.relation import constant_of, normal, shift
from pliant.symbolic.scope import Scope

CHANNELS_LAST_ORDER = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}


class Framework:
    """Whether PyTorch's own code is running on proxies (`depth` > 0): then a question is not the program's own branch.

    `metadata` > 0 while it only works out sizes: kernels look at the real ones again. `swept`: the running function is known to need no
    short cut for any size (`emptiness.py`).
    """

    depth = 0
    swept = False
    metadata = 0
    guesses = 0  # answers given so far for the general case, unproved
    last_try = False  # C++ code that wants integers has been found, and gets them if PyTorch's Python code cannot do without either
    whole_gradients = False  # whether gradients have the sizes of what they are for
    proofs = False  # whether `ask` may only prove
    whole = False  # whether it counts that a slice of everything is the tensor itself


class framework:  # noqa: N801 - used as the functions below, and made for every torch call, so no generator
    """While inside, decisions that only the run could take are taken for the general case (`general`)."""

    __slots__ = ("before", "last_try", "swept")

    def __init__(self, swept: bool = False, last_try: bool = False) -> None:
        self.swept = swept
        self.last_try = last_try

    def __enter__(self) -> None:
        self.before = Framework.swept, Framework.last_try
        Framework.depth += 1
        Framework.swept, Framework.last_try = self.swept, self.last_try

    def __exit__(self, *error: object) -> None:
        Framework.depth -= 1
        Framework.swept, Framework.last_try = self.before


@contextmanager
def metadata() -> Iterator[None]:
    """While inside, PyTorch's shape functions run."""
    Framework.metadata += 1
    try:
        yield
    finally:
        Framework.metadata -= 1


@contextmanager
def program() -> Iterator[None]:
    """While inside, the user's program runs again, called from PyTorch's code: its branches are its own."""
    before = Framework.depth, Framework.metadata
    Framework.depth = Framework.metadata = 0
    try:
        yield
    finally:
        Framework.depth, Framework.metadata = before


#: The symbols in the sizes of tensors that are not simply row-major, by scope.
LOOSE: weakref.WeakKeyDictionary[Scope, set[str]] = weakref.WeakKeyDictionary()


def note_loose(scope: Scope, sizes: tuple) -> None:
    """A tensor of these sizes has strides of its own."""
    found = LOOSE.get(scope)
    if found is None:
        found = LOOSE[scope] = set()
    for s in sizes:
        if type(s) is not int:
            found.update(v.name for v in s.node.expr.symbols())


def settled(scope: Scope, cond: Expr, file: str) -> bool:
    """Whether PyTorch's C++ code asks if a size is 0 or 1 only on the way to "contiguous", which every tensor of that size is anyway.

    Then it does not matter, and the answer no needs no guard. The engine asks it of what it has a gradient for, which has the same sizes
    but where a function gives it a larger one.
    """
    if Framework.whole_gradients and cond.op == "eq" and file.endswith("autograd/input_metadata.cpp"):
        return not scope.known_true(cond)
    if cond.op != "eq" or not file.endswith("c10/core/Contiguity.h"):
        return False
    loose = LOOSE.get(scope)
    return not loose or not any(v.name in loose for v in cond.symbols())


@contextmanager
def switched(name: str) -> Iterator[None]:
    """While inside, a flag of `Framework` is on."""
    before = getattr(Framework, name)
    setattr(Framework, name, True)
    try:
        yield
    finally:
        setattr(Framework, name, before)


def whole_gradients() -> AbstractContextManager[None]:
    """While inside, the engine takes it that gradients have the sizes of what they are for, and raises where one has not; and what is
    asked of sizes that may be 0 or 1 is answered for all. Values are right for all; a dim of 1 may have another stride than eager's."""
    return switched("whole_gradients")


def proofs() -> AbstractContextManager[None]:
    """While inside, `ask` proves or says no: for answers that nobody uses."""
    return switched("proofs")


def known(scope: Scope, cond: Expr, site: Any, file: str) -> bool:
    """Whether `cond` is known to hold. Who asks with every slice (`x[a:b]`) is told that a tensor has no 2**63 rows."""
    if scope.known_true(cond):
        return True
    if not file.endswith("ATen/TensorIndexing.h"):
        return False
    if cond.op == "le" and (cond.args[1].const or 0) >= WITHOUT_END:
        return True
    return Framework.whole and ask(scope, cond, site)


WITHOUT_END = 2**63 - 1


def whole() -> AbstractContextManager[None]:
    """While inside, whether a slice is of everything is decided: `x[:]` is `x` to who writes there, and PyTorch refuses some tensors."""
    return switched("whole")


def ask(scope: Scope, cond: Any, site: Any) -> bool:
    """Whether `cond` holds: proved, else decided under a guard, else (no hint, no proof, or a declared dim) False."""
    if cond is True or cond is False:
        return cond
    c = cond.const
    if c is not None:
        return bool(c)
    if Framework.proofs or not cond.backed or is_declared(cond) or Framework.whole_gradients and is_of_kind(scope, cond):
        return scope.known_true(cond)
    return scope.decide(cond, site)


def is_of_kind(scope: Scope, cond: Expr) -> bool:
    """Whether this asks of a size that may be 0 or 1 if it is: n == 0, n == 1 or n < 2."""
    other = normal(ops.not_(cond))
    if is_about_one(scope, other):
        return True
    if other.op not in ("ne", "ge") or other.args[0].kind is not int:
        return False
    p, k = other.args[0], -constant_of(other.args[0])
    bounds = scope.range(shift(p, k)) if k == (2 if other.op == "ge" else 0) else None
    return bounds is not None and bounds[0] >= 0


def agree(scope: Scope, cond: Expr, site: Any) -> bool:
    """Whether two sizes are equal since they are cut alike from dims that are equal in this call, guarded: C++ code demands it of
    `h[:n]` and `repeats[:n]`, where only the run knows n."""
    if cond.op != "eq" or cond.backed or scope.known_true(cond):
        return False
    dims = [s for s in cond.symbols() if s.backed]
    for p, q in itertools.combinations(dims, 2) if len(dims) <= MOST_DIMS else ():
        same = ops.eq(p, q)
        if p.hint == q.hint and not is_declared(same) and scope.implied(cond, [same]):
            return scope.decide(same, site)
    return False


MOST_DIMS = 4


def general(scope: Scope, cond: Expr, site: Any) -> bool:
    """The answer to a question of PyTorch's own code on sizes that only the run knows, or declared ones: proved, or the general case.

    C++ code asks whether a size is 0 or 1, or two sizes are the same, to take a short cut; the general path is right for all sizes, the
    kernels that it reaches look again (`tests/graph/test_general.py` sweeps over them; `emptiness.py` has those that do not). Other
    questions are decided (`DataDependent`, where there is no hint), and so is one on a declared size for which the short cut is right
    in this call: it may be a check.
    """
    if scope.known_true(cond):
        return True
    if scope.known_false(cond):
        return False
    if cond.op == "not":
        return not general(scope, cond.args[0], site)
    if cond.op in ("and", "or"):
        return (all if cond.op == "and" else any)([general(scope, a, site) for a in cond.args])
    relation = normal(cond)
    if relation.op in ("eq", "ne") and relation.args[0].kind is int and relation.hint in (None, relation.op == "ne"):
        Framework.guesses += relation.hint is None
        return relation.op == "ne"
    if relation.hint is None and is_of_few(scope, cond):
        Framework.guesses += 1
        return False
    return scope.decide(cond, site)


def is_of_few(scope: Scope, cond: Expr) -> bool:
    """Whether this asks if there are none or one of what there may be none of: n < 1, n <= 1, whatever expression n is."""
    if cond.op not in ("le", "lt", "ge", "gt"):
        return False
    n, limit = cond.args if cond.op in ("le", "lt") else cond.args[::-1]
    if n.kind is not int or limit.const is None or limit.const - (cond.op in ("lt", "gt")) not in (0, 1):
        return False
    bounds = scope.range(n)
    return bounds is not None and bounds[0] >= 0


def on_open(scope: Scope, cond: Expr, site: Any) -> bool:
    """The answer to a question of PyTorch's own code on sizes that an export keeps open: decided, but for whether one is 1.

    Where the example's is not, the path that is taken is the one for all sizes (see `general`), so that needs no guard. Whether there are
    elements at all, and whether two sizes agree, may be checks.
    """
    if not scope.known_true(cond) and not scope.known_false(cond):
        answer = bool(cond.hint)
        if is_about_one(scope, normal(cond if answer else ops.not_(cond))):
            return answer
    return scope.decide(cond, site)


def is_about_one(scope: Scope, relation: Expr) -> bool:
    """Whether this (in normal form) says of a size that it is not 1, in one of the ways to say so."""
    if relation.op not in ("ne", "ge") or relation.args[0].kind is not int:
        return False
    p = relation.args[0]
    if relation.op == "ne":
        p = reduced(p)
    one, least = (1, 0) if relation.op == "ne" else (2, 1)  # n - 1 != 0, or n - 2 >= 0 of what is not 0
    if constant_of(p) != -one:
        return False
    bounds = scope.range(shift(p, one))
    return bounds is not None and bounds[0] >= least


def reduced(p: Expr) -> Expr:
    """`p` without the atoms that all its terms have: `a*b - b` is `a - 1`, times `b`."""
    rest = [list(mono) for mono, _ in p.terms]
    for a in list(rest[-1]) if rest else []:
        if all([any([x is a for x in mono]) for mono in rest]):
            for mono in rest:
                del mono[next(i for i, x in enumerate(mono) if x is a)]
    return p.ctx.poly({tuple(mono): c for mono, (_, c) in zip(rest, p.terms, strict=True)})


def is_open(cond: Expr) -> bool:
    """Whether a question is about sizes that an export keeps open, and nothing else."""
    symbols = cond.symbols()
    return bool(symbols) and all([s.info.dim is OPEN for s in symbols])


def is_declared(cond: Expr) -> bool:
    """Whether a question is about sizes that the user declared."""
    return any([s.info.dim is not None for s in cond.symbols()])


def is_packed(scope: Scope, sizes: list[Expr], strides: list[Expr], order: list[int] | tuple[int, ...], site: Any) -> bool:
    """Whether the elements lie without gaps when dims are walked in `order`, fastest first."""
    expected: Any = 1
    unproved = []
    for d in order:
        if strides[d] is not expected and not scope.known_true(ops.eq(strides[d], expected)):
            unproved.append((d, expected))
        expected = ops.mul(sizes[d], expected)
    if not unproved:
        return True
    for d, stride in unproved:
        # a dim of size 1 may have any stride, and so may every dim of a tensor without elements
        if not (ask(scope, ops.eq(sizes[d], 1), site) or ask(scope, ops.eq(strides[d], stride), site)):
            return any(ask(scope, ops.eq(s, 0), site) for s in sizes)
    return True


def is_contiguous(scope: Scope, sizes: list[Expr], strides: list[Expr], site: Any) -> bool:
    return is_packed(scope, sizes, strides, tuple(range(len(sizes) - 1, -1, -1)), site)


def is_channels_last(scope: Scope, sizes: list[Expr], strides: list[Expr], ndim: int, site: Any) -> bool:
    """Contiguous in the channels-last order of `ndim` dims (4: images, 5: volumes)."""
    return len(sizes) == ndim and is_packed(scope, sizes, strides, CHANNELS_LAST_ORDER[ndim], site)


def has_channels_last_strides(scope: Scope, sizes: list[Expr], strides: list[Expr], ndim: int, site: Any) -> bool:
    """Whether the strides are ordered as channels-last ones, dense or not; ambiguous cases count as not."""
    if len(sizes) != ndim or ask(scope, ops.eq(strides[1], 0), site):
        return False
    least: Any = 0
    for d in CHANNELS_LAST_ORDER[ndim]:
        if ask(scope, ops.eq(sizes[d], 0), site) or not ask(scope, ops.ge(strides[d], least), site):
            return False
        if d == 0 and ask(scope, ops.eq(least, strides[1]), site):
            return False  # N111 and the like: contiguous and channels-last at once
        least = ops.mul(strides[d], ops.max_(sizes[d], 1))
    return True


def is_non_overlapping_and_dense(scope: Scope, sizes: list[Expr], strides: list[Expr], site: Any) -> bool:
    """Whether the elements fill a block of memory exactly once, in some order of the dims."""
    n = len(sizes)
    if any((size if isinstance(size, int) else size.const) == 0 for size in sizes):
        return True  # PyTorch says so of every tensor without elements
    if n == 1:
        return ask(scope, ops.lt(sizes[0], 2), site) or ask(scope, ops.eq(strides[0], 1), site)
    # A witness is enough for yes: try the order that the hints suggest, with proofs only.
    order = sorted(range(n), key=lambda d: (is_small(sizes[d]), hint_of(strides[d]), d))
    expected: Any = 1
    for d in order:
        if scope.known_true(ops.lt(sizes[d], 2)) or not scope.known_true(ops.eq(strides[d], expected)):
            break
        expected = ops.mul(sizes[d], expected)
    else:
        return True
    # In general: dims of size 0 and 1 do not count; sort the others by stride; each must begin where the one before ends.
    order = [d for d in range(n) if not ask(scope, ops.lt(sizes[d], 2), site)]
    for i in range(1, len(order)):
        j = i
        while j and ask(scope, ops.lt(strides[order[j]], strides[order[j - 1]]), site):
            order[j - 1], order[j] = order[j], order[j - 1]
            j -= 1
    expected = 1
    for d in order:
        if not ask(scope, ops.eq(strides[d], expected), site):
            return False
        expected = ops.mul(sizes[d], expected)
    return True


def apart(sizes: Sequence[Any], strides: Sequence[Any], holds: Callable[[Any], bool]) -> bool:
    """Whether all elements have places of their own: each dim steps over all that those with smaller strides reach. `holds` is asked so."""
    reach: Any = 0
    dims = [(n, s) for n, s in zip(sizes, strides, strict=True) if not isinstance(n, int) or n > 1]
    for n, stride in sorted(dims, key=lambda d: hint_of(d[1])):
        if not holds(ops.ge(stride, ops.add(reach, 1))):
            return False
        reach = ops.add(reach, ops.mul(ops.sub(n, 1), stride))
    return True


def memory_order(scope: Scope, sizes: list[Any], strides: list[Any]) -> list[int] | None:
    """The dims, outermost in memory first, of a tensor whose elements provably fill a block of memory in that order."""
    left, found = list(range(len(sizes))), []
    expected: Any = 1
    while left:
        d = next((d for d in reversed(left) if strides[d] is expected or scope.known_true(ops.eq(strides[d], expected))), None)
        if d is None:
            return None
        left.remove(d)
        found.append(d)
        expected = ops.mul(sizes[d], expected)
    return found[::-1]


def hint_of(e: Any) -> int:
    """For ordering candidates only, never for an answer: unknown sizes sort as large."""
    h = e if isinstance(e, int) else e.hint
    return 1 << 40 if h is None else int(h)


def is_small(size: Any) -> bool:
    return hint_of(size) < 2


def contiguous_strides(sizes: tuple) -> tuple:
    """Row-major strides as PyTorch gives a new tensor (a size of 0 counts as 1). Works on ints, `SymInt` and expressions.

    A symbolic size is multiplied as it is: a tensor that turns out to be empty then has strides of 0 where eager has larger
    ones, which nothing can observe through its (absent) elements.
    """
    out: list[Any] = []
    step: Any = 1
    for s in reversed(sizes):
        out.append(step)
        if type(s) is not int:
            step = s * step
        elif s > 1:
            step = step * s
    return tuple(reversed(out))
