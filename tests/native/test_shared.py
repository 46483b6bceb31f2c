"""Tables that Python and C++ both know are written once, in `native/shared.h`."""

from __future__ import annotations

import pathlib
import re

import pytest

from pliant import native
from pliant.bytecode import operands
from pliant.guards.program import POSTFIX
from pliant.lower import gemm, loops

ROOT = pathlib.Path(native.__file__).parents[1]
SOURCES = {p: p.read_text() for p in sorted(ROOT.rglob("*")) if p.suffix in (".py", ".cpp", ".c", ".h") and p.name != "shared.h"}


def test_python_reads_them_there():
    assert {name.upper() for name in POSTFIX} == set(native.POSTFIX) and POSTFIX["var"] == 0
    assert all(getattr(operands, name) == value < 0 for name, value in native.WAYS.items())
    assert {getattr(loops, name) for name in native.FAILURES} == set(loops.FAILURES)
    assert set(gemm.HALVES.values()) < set(native.PRODUCT_FLAGS.values())


@pytest.mark.parametrize("name", [*native.PRODUCT_FLAGS, *native.FAILURES, "OUT_OF_MEMORY", "ALIGNMENT", "MOST_ARGUMENTS"])
def test_numbers_stand_nowhere_else(name):
    assert not [p.name for p, text in SOURCES.items() if re.search(rf"\b{name}\b\s*=\s*-?\d", text)]


def test_words_of_failures_stand_nowhere_else():
    for _, _, words in native.FAILURES.values():
        assert not [p.name for p, text in SOURCES.items() if f'"{words}"' in text], words
