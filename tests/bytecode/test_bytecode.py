"""Instructions are read and written as CPython does: operands, jumps, stack effects, prefixes; over the standard library's code."""

import dis
import importlib.util
import types

import pytest

from pliant.bytecode import instructions, kind_at, version
from pliant.bytecode import kinds as K
from pliant.bytecode.assemble import encode_exception_table, exception_table, ins
from pliant.bytecode.stack import stack_marks

MODULES = "argparse ast asyncio.base_events collections contextlib dataclasses decimal email.message enum functools inspect typing".split()


def codes(code):
    yield code
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from codes(c)


def code_of(module):
    return importlib.util.find_spec(module).loader.get_code(module)


@pytest.fixture(scope="module", params=MODULES)
def library(request):
    return list(codes(code_of(request.param)))


def test_every_opcode_has_a_kind():
    real = {name for name, op in dis.opmap.items() if op < 256 and name.isupper() and not name.startswith("INSTRUMENTED")}
    specialized = set(dis._all_opmap) - set(dis.opmap) if hasattr(dis, "_all_opmap") else set()
    assert real - specialized - {"EXTENDED_ARG"} == set(version.OPCODES)


def test_instructions_are_those_of_dis(library):
    for code in library:
        theirs = [i for i in dis.get_instructions(code) if i.opname != "EXTENDED_ARG"]
        ours = instructions(code)
        assert len(ours) == len(theirs)
        at_begin = {i.offset for i in ours}
        for mine, other in zip(ours, theirs, strict=True):
            assert mine.offset <= other.offset < mine.following
            assert mine.kind is version.OPCODES[other.opname].parts[0].kind
            assert kind_at(code, other.offset) is kind_at(code, mine.offset) is mine.kind
            if mine.kind in K.JUMPS:
                assert mine.operand == other.argval and mine.operand in at_begin
            elif mine.kind is K.LOAD_GLOBAL:
                assert mine.operand[0] == other.argval
            elif other.opname in ("LOAD_CONST", "LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "IMPORT_NAME"):
                assert mine.operand == other.argval


def test_stack_effects_are_cpythons(library):
    for code in library:
        theirs = [i for i in dis.get_instructions(code) if i.opname != "EXTENDED_ARG"]
        for mine, other in zip(instructions(code), theirs, strict=True):
            if other.opname in ("PRECALL", "CALL", "RETURN_GENERATOR", "RERAISE"):  # dis counts these otherwise
                continue
            for jump in (False, True) if mine.kind in K.JUMPS else (False,):
                pops, pushes = mine.kind.stack_effect(mine.operand, jump=jump)
                arg = other.arg if other.opcode >= dis.HAVE_ARGUMENT else None
                assert pushes - pops == dis.stack_effect(other.opcode, arg, jump=jump), other


def test_a_call_leaves_one_item_of_all_it_takes():
    def f(a, b):
        return a(b, 1, k=2) + a(*b, **b)

    marks = stack_marks(f.__code__)
    assert marks[next(i.offset for i in instructions(f.__code__) if i.kind is K.RETURN)] == "v"


def test_stacks_are_as_deep_as_cpython_says(library):
    for code in library:
        marks = stack_marks(code)
        assert max(map(len, marks.values())) <= code.co_stacksize


def test_exception_tables_are_written_as_they_were(library):
    for code in library:
        assert encode_exception_table(exception_table(code)) == code.co_exceptiontable


def test_written_instructions_are_read_again():
    for kind in version.OPCODE:
        if kind in K.JUMPS:
            continue
        code = (lambda a: a).__code__.replace(co_code=ins(kind, 70000) + ins(K.RETURN), co_names=("n",) * 70001, co_consts=(None,) * 70001)
        first, last = instructions(code)
        assert (first.kind, last.kind) == (kind, K.RETURN)
        assert first.offset == 0 and first.following == last.offset
