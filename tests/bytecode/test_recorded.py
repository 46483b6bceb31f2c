"""CPython 3.14's table, on code and on what its `dis` said of it, both recorded there (3.14.2): each opcode is met."""

import json
import pathlib

import pytest

from pliant.bytecode import kinds as K
from pliant.bytecode import rows
from pliant.bytecode.assemble import encode_exception_table
from pliant.bytecode.cpython314 import OPCODES
from pliant.bytecode.operands import COMPARISONS, OPERATORS
from pliant.native import decode_units
from tests.bytecode.test_bytecode import COUNTED_OTHERWISE

RECORDED = json.loads(pathlib.Path(__file__).with_name("cpython314.json").read_text("utf-8"))
NAMES, CACHES = RECORDED["names"], RECORDED["caches"]
TABLE = rows(opcodes=OPCODES, names=NAMES, caches=CACHES)


@pytest.fixture(params=RECORDED["codes"], ids=lambda c: c["name"])
def recorded(request):
    code = request.param
    pools = (tuple(code["names"]), tuple(range(code["consts"])), OPERATORS, COMPARISONS)
    pairs, kinds, offsets, _ = decode_units(bytes.fromhex(code["code"]), TABLE, pools, NAMES.index("EXTENDED_ARG"))
    return code, [operand for _, operand in pairs], kinds, offsets


def test_every_opcode_is_in_the_table():
    real = {n for n in NAMES if n.isupper() and not n.startswith(("INSTRUMENTED", "EXTENDED_ARG"))}
    assert set(OPCODES) <= real
    met = {name for code in RECORDED["codes"] for _, name, *_ in code["dis"]}
    assert met - {"EXTENDED_ARG"} <= set(OPCODES) and len(met) > 100


def test_instructions_jumps_and_stack_effects(recorded):
    code, operands, kinds, offsets = recorded
    theirs = [row for row in code["dis"] if row[1] != "EXTENDED_ARG"]
    effects = {at: plain for at, _, _, _, plain, _ in theirs}
    n = 0
    for at, name, arg, target, plain, jump in theirs:
        parts = 1
        while n + parts < len(offsets) and offsets[n + parts] % 2:
            parts += 1
        assert offsets[n] <= at
        if kinds[n] in K.JUMPS:
            shift = OPCODES[name].parts[0].shift
            assert offsets[operands[n]] == target + 2 * shift
            jump += sum(effects[target + 2 * i] for i in range(shift))  # what is jumped over, if that ends a loop
        elif kinds[n] is K.LOAD_ATTR:
            assert operands[n] == code["names"][arg >> 1]
        elif name == "LOAD_SMALL_INT":
            assert operands[n] == arg
        if name not in COUNTED_OTHERWISE:
            for taken, expected in ((False, plain), (True, jump)) if kinds[n] in K.JUMPS else ((False, plain),):
                found = [kinds[i].stack_effect(operands[i], jump=taken) for i in range(n, n + parts)]
                assert sum(pushes - pops for pops, pushes in found) == expected, name
        n += parts
    assert n == len(kinds)


def test_exception_tables(recorded):
    code = recorded[0]
    assert encode_exception_table([tuple(e) for e in code["handlers"]]) == bytes.fromhex(code["table"])
