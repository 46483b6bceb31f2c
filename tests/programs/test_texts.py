"""Text of what changes from call to call: made when the program has run, read where it is asked for.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import array
import functools
import itertools
import logging

import pytest
import torch

from tests.helpers import IDENTITY, check, check_world, pliant
from tests.programs.registry import cases, each, program, t

SHAPES = each(3, 5, 2, 7, 4)
SOME = (1, 99)
LOG = logging.getLogger("tests.texts")


class Meter:
    def __init__(self) -> None:
        self.n = 0
        self.label: object = "a"
        self.seen: dict = {}
        self.lines: list = []


class Loud:
    def __format__(self, spec: str) -> str:
        return f"<{spec}>!"

    def __str__(self) -> str:
        return "LOUD"


def counted(body):
    """A factory of `fn(x)` that counts its calls on an object, which `body(meter, x)` may read."""

    def factory():
        m = Meter()

        def fn(x):
            m.n += 1
            return body(m, x)

        return fn, m

    return factory


@program(*SHAPES, world=True, breaks=0, captures=(1, 3))
def a_step_counter_is_printed():
    def body(m, x):
        print(f"step {m.n}: {x.shape[0]} rows, 100% of {m.n + x.shape[0]!r}")
        return x * 2

    return counted(body)()


@program(*SHAPES, breaks=0, captures=(1, 2))
def returned(x):
    return f"{x.shape[0]} rows", x * 2, {"text": f"{x.shape[0] // 2:>4}|{x.shape[0] / 2:.2f}|{x.shape[0] > 3!s:6}"}


@program(*SHAPES, breaks=0, captures=(1, 2))
def of_numbers_in_tensors(x):
    total = x.sum().item()
    print(f"sum {total:.3f}, {total!r}, {int(x.abs().max().item())} at most")
    return x - total, f"{total:e}"


@program(*SHAPES, world=True, breaks=(0, 1))
def stored():
    def body(m, x):
        m.label = f"{m.n} of {x.shape[0]}"
        m.lines.append(f"line {m.n}")
        m.seen["last"] = f"last {m.n}"
        return x + 1

    return counted(body)()


@program(*SHAPES, world=True)
def as_keys():
    def body(m, x):
        own = {f"own {m.n}": x, f"size {x.shape[0]}": x + 1}
        m.seen[f"part{m.n}"] = x * 2
        m.seen[f"part{m.n % 2}"] = x * 3
        return own, f"part{m.n}" in m.seen, len(m.seen)

    return counted(body)()


@program(*SHAPES, world=True)
def read():
    def body(m, x):
        s = f"n={m.n}, x={x.shape[0]}"
        if s == "n=2, x=5" or s.startswith("n=4"):
            x = x + 1
        return x * len(s), s.upper(), s + "!", "-" + s, s * 2, s[1:], s in ["n=3, x=2"], sorted([s, "a"]), hash(s) == hash(str(s)), list(s)

    return counted(body)()


@program(*SHAPES, world=True)
def looked_at_from_outside():
    def body(m, x):
        s = f"{m.n}"
        pair = [s, s]
        return isinstance(s, str), type(s), s is None, pair, pair[0] is pair[1], s is s, bool(f"{s}{s}"), callable(s), x

    return counted(body)()


@program(*SHAPES, world=True, breaks=0)
def types_of_texts():
    def body(m, x):
        s = f"{m.n} {x.shape[0]}"
        return callable(s), isinstance(s, (int, str)), issubclass(type(s), str), x + 1

    return counted(body)()


@program(*SHAPES, world=True)
def types_of_what_changes():
    def body(m, x):
        m.label = [m.n, str(m.n), len, None, 2.5][m.n % 5]
        pliant.graph_break()
        return callable(m.label), x + 1

    return counted(body)()


@program(*SHAPES, world=True, breaks=SOME)
def over_a_break():
    def body(m, x):
        s = f"before {m.n} {x.shape[0]}"
        pliant.graph_break()
        print(s, f"[{s}]", f"{s:>20}|", f"{s!r}")
        for i in range(m.n):
            print(f"{s} and {i} of {m.n}")
            x = x + i
            pliant.graph_break()
        return x, s

    return counted(body)()


@program(*SHAPES, world=True)
def raised_and_caught():
    def body(m, x):
        try:
            if x.shape[0] > 1:
                raise ValueError(f"{m.n} and {x.shape[0]}")
        except ValueError as e:
            return x, str(e), e.args
        return x

    return counted(body)()


@program(*SHAPES, world=True)
def formats_that_do_not_fit():
    def body(m, x):
        out = []
        for make in (lambda: f"{m.n:zz}", lambda: f"{x.shape[0]:.2q}", lambda: f"{str(m.n):d}", lambda: f"{m.n:c}", lambda: f"{m.n:{m.n}}"):
            try:
                out.append(make())
            except ValueError as e:
                out.append(str(e))
        return out, x + 1

    return counted(body)()


@program(*SHAPES)
def a_tensor_that_is_written_to(x):
    s = f"{x}"
    x.add_(1)
    return s, f"{x.shape}", x * 2


@program(*SHAPES, world=True)
def joined_and_nested():
    def body(m, x):
        a = f"{m.n}"
        b = f"{a}{{}}%s {a!r:>5} {m.n:03d}"
        c = f"{b} {b}"
        print(a, b, sep=f"-{m.n}-", end=f" {m.n}\n")
        return x, c, (c, [a])

    return counted(body)()


@program(*SHAPES, world=True)
def logged():
    def body(m, x):
        LOG.warning("step %d of %s: %s", m.n, x.shape[0], f"{m.n}")
        return x + 1

    return counted(body)()


def test_every_program_is_told() -> None:
    """`print` defers nothing that the order of two prints, or an exception between them, would show."""

    def fn(x, n):
        print(f"first {n}")
        y = x + 1
        print(f"second {n} {y.shape[0]}")
        if n == 4:
            raise ValueError(f"at {n}")
        return y

    check(fn, *[(t(n, 2), n) for n in (2, 3, 5, 4, 6)], breaks=0)


LABELS = ["a", "b", "c", 1, 2, 3, 2.5, None, True, "%s", 10**30, Loud(), (1, 2), "d", 7]


def test_values_of_any_type() -> None:
    """What is kept out of the graph for changing may be another type next time, one with code of its own among them."""

    def factory():
        m = Meter()

        def fn(x):
            print(f"label {m.label} {m.label!r:.5}")
            pliant.graph_break()
            print(f"{m.label}", m.label)
            return x + 1

        return fn, m

    def before(i, m):
        m.label = LABELS[i % len(LABELS)]

    check_world(factory, *[(t(3, 2),) for _ in range(2 * len(LABELS))], before=before)


def test_no_version_for_each_text() -> None:
    """One that prints and stores by names that it makes comes to an end of its captures: branches change their form late, and for good."""

    def fn(xs, n):
        out = {}
        for i, x in enumerate(xs):
            if x.sum() > 0:
                print(f"call {n}: part {i} is positive")
                x = -x
            out[f"part{i}"] = x * n
        return out

    calls = [([t(2 + (i + j) % 4, 3, seed=i + j) for j in range(1 + i % 5)], i) for i in range(96)]
    report = check(fn, *calls)
    if not IDENTITY:
        assert report.history[-1]["captures"] == report.history[47]["captures"] <= 24


@pytest.mark.parametrize("case", cases(__name__), ids=str)
def test_program(case) -> None:
    case.run()


def test_texts_are_not_kept_when_the_graph_breaks_below() -> None:
    """A callee that breaks is given a text of its caller's."""

    def inner(x, s):
        y = x + 1
        pliant.graph_break()
        return y, s, s + "?"

    def fn(x, n):
        return inner(x * 2, f"<{n}>"), torch.relu(x)

    check(fn, *[(t(3, 2), n) for n in (2, 3, 5, 4, 6)])


OF_CONTAINERS = {
    "print a shape": lambda x: print("x", x.shape),
    "print a tuple": lambda x: print(tuple(x.shape), (x.shape[0],), ()),
    "print a list": lambda x: print(list(x.shape), [x.shape[0], "a", None, 2.5, [x.size(0)]]),
    "print a dict": lambda x: print({"a": x.shape[0], 3: (x.shape[0], True)}),
    "an f-string of a shape": lambda x: f"{x.shape} {x.shape!r} {x.shape!s}",
    "of an empty shape": lambda x: f"{x.sum().shape} {x.shape[:1]} {x.shape[1:]}",
    "str": lambda x: str(x.shape) + "|" + str(x.shape[0]),
    "repr": lambda x: repr(x.size()) + repr([x.size(0)]),
    "format": lambda x: format(x.shape[0], ">7") + format(x.shape),
    "str.format": lambda x: "{0} and {n:>4} {0!r} {m:{w}}".format(x.shape, n=x.shape[0], m=x.size(0), w=6),  # noqa: UP032
    "percent": lambda x: "%s" % (x.shape,) + "%d rows, 5%%, %r" % (x.shape[0], [x.size(1)]) + "%s" % x.size(0),  # noqa: UP031
    "join": lambda x: ", ".join(map(str, x.shape)) + "/".join([str(n) for n in x.shape]) + "-".join(["a", "b"]),
    "join of a generator": lambda x: "x".join(str(n) for n in x.shape),
    "added to": lambda x: "n=" + str(x.shape[0]) + "!" + f"{x.shape[0]}",
    "read": lambda x: (len(str(x.shape)), str(x.shape)[0], str(x.shape).upper()),
    "compared": lambda x: str(x.shape) == "torch.Size([3, 4])",
    "a key": lambda x: {str(x.shape): 1},
    "errors": lambda x: ("".join, str(x.shape[0]), 3)[1:],
}


@pytest.mark.parametrize("name", OF_CONTAINERS)
def test_texts_of_shapes_and_containers(name, capsys):
    """A text of sizes is made when the graph has run: sizes stay open, unless the program reads the text."""
    make = OF_CONTAINERS[name]

    def program(x):
        said = make(x)
        return x + 1, said

    compiled = pliant.compile(program)
    for rows in (3, 2, 5, 7, 11, 4):
        x = torch.randn(rows, 4)
        results = []
        for fn in (program, compiled):
            y, said = fn(x)
            results.append((y.tolist(), said, capsys.readouterr().out))
        assert results[0] == results[1]
    if name not in ("read", "compared", "a key"):
        assert pliant.stats()["captures"] == 1 and pliant.stats()["graph_breaks"] == 0


def test_joining_what_is_no_text_raises():
    def program(x):
        try:
            return ", ".join([str(x.shape[0]), x.shape[0]])
        except TypeError as e:
            return str(e)

    def other(x):
        try:
            return "a" + str(x.shape[0]) + 3
        except TypeError as e:
            return str(e)

    def wrong(x):
        out = []
        for template, given in (("%d", str(x.shape[0])), ("%s", (x.shape[0], 1)), ("%s %s", x.shape[0]), ("%5.2q", x.shape[0])):
            try:
                out.append(template % given)
            except (TypeError, ValueError) as e:
                out.append(str(e))
        return out

    for fn in (program, other, wrong):
        compiled = pliant.compile(fn)
        for rows in (3, 5):
            assert compiled(torch.ones(rows)) == fn(torch.ones(rows))


TOLD_WITHIN = {
    "exception": lambda v: str(ValueError(v)), "its repr": lambda v: repr(KeyError(v)), "in a text": lambda v: f"{ValueError(v, 1)}",
    "in a template": lambda v: "%r" % (KeyError(v),), "list": lambda v: str([v]), "partial": lambda v: repr(functools.partial(len, v)),
    "by its class": lambda v: list.__repr__([v]), "dict": lambda v: f"{ {1: v} }", "alone": str, "missing key": lambda v: missing(v),
}  # fmt: skip


def missing(v):
    try:
        return {}[v]
    except KeyError as e:
        return str(e), repr(e)


@pytest.mark.parametrize("name", TOLD_WITHIN)
@pytest.mark.parametrize("make", [itertools.count, lambda n: array.array("i", [n])], ids=["count", "array"])
def test_texts_of_what_holds_a_state_of_c(name, make):
    held: list = []

    def program(x):
        try:
            return x + 1, TOLD_WITHIN[name](held[0])
        except TypeError as e:  # an array is no key
            return x, str(e)

    run = pliant.compile(program, backend="aten")
    for n in (3, 3, 2, 5):
        held[:] = [make(n)]
        assert repr(run(torch.ones(1))) == repr(program(torch.ones(1)))
