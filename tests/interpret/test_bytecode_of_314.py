"""CPython 3.14's bytecode is interpreted as 3.14 runs it: code objects, and what they came to, recorded there, on the CPython at hand."""

import json
import pathlib
import weakref

import pytest

import pliant
from pliant import bytecode
from pliant.bytecode import kinds as K
from pliant.bytecode.cpython314 import OPCODES
from pliant.bytecode.operands import COMPARISONS, OPERATORS
from pliant.interpret import actions, decode, opcodes, opcodes_build, opcodes_newer
from pliant.interpret.capture import UNSET
from pliant.native import decode_units
from tests.bytecode.test_recorded import CACHES, NAMES
from tests.interpret import programs_of_314 as programs

RECORDED = json.loads(pathlib.Path(__file__).with_name("bytecode_of_314.json").read_text("utf-8"))
CODES = {code["name"]: code for code in RECORDED["codes"]}
ROWS = bytecode.rows(decode.HANDLERS, decode.unknown, OPCODES, NAMES, CACHES)


def put(monkeypatch, code, recorded):
    """Let the interpreter find 3.14's instructions where it looks for those of `code`, and so on for the functions in it."""
    if [list(v) for v in (code.co_varnames, code.co_cellvars, code.co_freevars)] != recorded["variables"]:
        pytest.skip("the frame has other variables here: comprehensions have frames of their own, class bodies other cells")
    own = [c for c in code.co_consts if hasattr(c, "co_code")]
    consts = []
    for kind, value in recorded["consts"]:
        if kind == "code":
            inner = next(c for c in own if c.co_qualname == value["name"])
            own.remove(inner)
            put(monkeypatch, inner, value)
            consts.append(inner)
        else:
            consts.append(eval(value))
    pools = tuple(recorded["names"]), tuple(consts), OPERATORS, COMPARISONS
    ins, kinds, offsets, headers = decode_units(bytes.fromhex(recorded["code"]), ROWS, pools, NAMES.index("EXTENDED_ARG"))
    n = code.co_nlocals + len([c for c in code.co_cellvars if c not in code.co_varnames]) + len(code.co_freevars)
    d = decode.Decoded(weakref.ref(code), ins, kinds, offsets, [], n, [UNSET] * n, bool(code.co_flags & 0x20), headers)
    d.table = [(d.index(start), d.index(end), d.index(target), depth, lasti) for start, end, target, depth, lasti in recorded["handlers"]]
    monkeypatch.setitem(decode._decoded, id(code), d)
    return d


@pytest.mark.parametrize("name", RECORDED["outcomes"])
def test_a_program_comes_to_what_it_came_to_there(monkeypatch, name):
    for room in (actions, opcodes, opcodes_build, opcodes_newer):
        monkeypatch.setattr(room, "CALLABLE_FIRST", True)
    for fn in programs.functions():
        if fn in programs.PROGRAMS and fn.__name__ not in (name, "each", "takes"):
            continue
        put(monkeypatch, fn.__code__, CODES[fn.__qualname__])
    pliant.reset()
    found = programs.outcome(pliant.compile(getattr(programs, name), fullgraph=True), 3)
    assert found.replace("tests.interpret.programs_of_314", "programs_of_314") == RECORDED["outcomes"][name]
    assert pliant.stats()["captures"] == 1 and pliant.stats()["fallbacks"] == 0


def test_the_instructions_that_this_is_about_are_met(monkeypatch):
    met = set()
    for code in RECORDED["codes"]:
        pools = tuple(code["names"]), (None,) * len(code["consts"]), OPERATORS, COMPARISONS
        met.update(decode_units(bytes.fromhex(code["code"]), ROWS, pools, NAMES.index("EXTENDED_ARG"))[1])
    assert {K.LOAD_SPECIAL, K.EXIT_METHOD, K.CALL_EX, K.CALL_KW, K.LOAD_ITEM, K.TO_BOOL, K.MATCH_CLASS, K.YIELD} <= met
