"""The table of types: rows are whole, nothing stands on the stack without one, and what no row knows is opaque."""

from __future__ import annotations

import array
import collections
import io
import mmap
import queue
import sqlite3
import types
import zlib

import pytest
import torch

import pliant
from pliant.graph.traced import TracedTensor
from pliant.interpret import engine  # noqa: F401  (it fills the table)
from pliant.interpret.gate import has_c_state
from pliant.interpret.generators import Generator
from pliant.interpret.immutable import IMMUTABLE
from pliant.interpret.late_text import LateText
from pliant.interpret.opaque import Opaque
from pliant.interpret.shadows import CONTAINERS
from pliant.interpret.types.row import COLUMNS, LOCATED, ROWS
from pliant.jit import rows

PROXIES = (TracedTensor, Opaque, LateText, Generator, torch.SymInt, torch.SymFloat, torch.SymBool)
TABLE = list({id(r): r for r in (*ROWS.values(), *LOCATED.values())}.values())
OPERATORS = [c for c in COLUMNS if c not in ("name", "located", "stands", "plain", "rank")]


@pytest.mark.parametrize("row", TABLE, ids=lambda r: r.name)
def test_rows_are_whole(row):
    """What a row locates it says how to locate, and each column that is filled can be called."""
    assert row.located or row.stands, "a row for no type"
    assert bool(row.located) == (row.locate is not None)
    assert all(callable(getattr(row, c)) for c in OPERATORS if getattr(row, c) is not None)
    assert not (row.plain and row.to_c is not None), "what is plain is given to C code as it is"
    for t in row.stands:
        assert ROWS[t] is row
    for t in row.located:
        assert LOCATED[t] is row


@pytest.mark.parametrize("t", PROXIES, ids=lambda t: t.__name__)
def test_proxies_have_rows(t):
    """What is not the program's own object says what it is to the program, to C code and to torch, and how it is made again."""
    row = ROWS[t]
    assert row.type is not None or row.isinstance is not None
    assert row.plain or row.to_c is not None or row.to_graph is not None
    special = t in rows.special or t is Generator or t is LateText
    assert special, "nobody can make it again after a graph break"


@pytest.mark.parametrize("t", sorted(LOCATED, key=lambda t: t.__qualname__), ids=lambda t: t.__qualname__)
def test_what_is_located_is_guarded_or_shadowed(t):
    """A type of C with a row is plain, a container that is read item by item, a proxy, or known by identity; never just passed on."""
    row = LOCATED[t]
    stands = ROWS.get(t)
    known = stands is not None and (stands.plain or stands.to_c is not None or stands.getattr is not None)
    by_identity = row.locate.__name__ in (
        "identity", "constant", "locate_function", "locate_builtin", "locate_method", "locate_partial", "by_identity"
    )  # fmt: skip
    assert known or by_identity or row.stands != (t,)


def opaque_objects():
    memory = mmap.mmap(-1, 8)
    return [
        array.array("i", [1, 2]), bytearray(b"ab"), memoryview(b"ab"), io.BytesIO(b"ab"), memory, queue.SimpleQueue(),
        sqlite3.connect(":memory:"), zlib.compressobj(), iter([1, 2]), iter({1: 2}), map(abs, [1]), types.SimpleNamespace().__class__(a=1),
    ]  # fmt: skip


@pytest.mark.parametrize("o", opaque_objects(), ids=lambda o: type(o).__qualname__)
def test_types_of_c_without_a_row_are_opaque(o):
    """Whoever would read one breaks the graph: no entry rests on what it held."""
    t = type(o)
    assert t not in LOCATED and t not in IMMUTABLE and t not in CONTAINERS
    assert has_c_state(t)

    def program(x, o):
        return x + len(str(o)[:1])

    compiled = pliant.compile(program, backend="aten", strict=True)
    before = pliant.stats()["graph_breaks"]
    x = torch.zeros(3)
    assert torch.equal(compiled(x, o), program(x, o))
    assert pliant.stats()["graph_breaks"] > before


class Slots:
    __slots__ = ("a",)


class Derived(collections.OrderedDict):
    pass


def test_classes_of_python_are_told_by_their_layout():
    class Plain:
        pass

    for t in (Plain, Slots, type("Both", (Slots, Plain), {}), type("Num", (int,), {}), type("Text", (str,), {})):
        assert not has_c_state(t), t
    for t in (array.array, Derived, type("Buffer", (array.array,), {}), type("File", (io.BytesIO,), {}), type("Data", (bytearray,), {})):
        assert has_c_state(t), t


def test_ids_of_objects_made_here():
    """They agree with each other inside, and with the objects that leave; a number made of one breaks the graph."""

    @pliant.compile(backend="aten", strict=True)
    def program(x):
        a, b = [x], [x]
        seen = {id(a): "a"}
        return a, id(a), seen, id(a) == id(a), id(a) == id(b), id(b) in seen, seen.get(id(a)), type(id(a)), {id(a)} | {id(b)}

    before = pliant.stats()["graph_breaks"]
    for n in (3, 4):
        a, number, seen, *rest, both = program(torch.ones(n))
        assert id(a) == number and list(seen) == [number] and type(number) is int and number in both
        assert rest == [True, False, False, "a", int]
    assert pliant.stats()["graph_breaks"] == before
    assert pliant.compile(lambda x: hex(id([x]))[:2], backend="aten", strict=True)(torch.ones(2)) == "0x"
    assert pliant.stats()["graph_breaks"] == before + 1
