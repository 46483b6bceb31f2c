"""Instructions are read and written as CPython does: operands, jumps, stack effects, prefixes; over the standard library's code."""

import dis
import importlib.util
import sys
import traceback
import types

import pytest

from pliant.bytecode import instructions, kind_at, version
from pliant.bytecode import kinds as K
from pliant.bytecode.assemble import encode_exception_table, exception_table, ins, on_line, place_at
from pliant.bytecode.natural_loops import loop_around
from pliant.bytecode.stack import stack_marks

MODULES = "argparse ast asyncio.base_events collections contextlib dataclasses decimal email.message enum functools inspect typing".split()
COUNTED_OTHERWISE = ("PRECALL", "CALL", "RETURN_GENERATOR", "RETURN_VALUE", "RERAISE", "CLEANUP_THROW")  # by `dis`


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


def paired(code):
    """Each instruction of `dis` with what it is read as: a superinstruction is several."""
    ours = instructions(code)
    at = 0
    for other in dis.get_instructions(code):
        if other.opname == "EXTENDED_ARG":
            continue
        end = at + 1
        while end < len(ours) and ours[end].offset % 2:
            end += 1
        yield ours[at:end], other
        at = end
    assert at == len(ours)


def test_every_opcode_has_a_kind():
    real = {name for name, op in dis.opmap.items() if op < 256 and name.isupper() and not name.startswith("INSTRUMENTED")}
    assert real - {"EXTENDED_ARG"} == set(version.OPCODES)


def test_instructions_are_those_of_dis(library):
    for code in library:
        begins = {i.offset for i in instructions(code)}
        for mine, other in paired(code):
            first, last = mine[0], mine[-1]
            assert first.offset <= other.offset < last.following
            assert kind_at(code, other.offset) is kind_at(code, first.offset) is first.kind
            if first.kind in K.JUMPS:
                behind = 2 * version.OPCODES[other.opname].parts[0].shift
                assert first.operand == other.argval + behind and first.operand in begins
            elif first.kind is K.LOAD_GLOBAL:
                assert first.operand[0] == other.argval
            elif first.kind in (K.LOAD_CONST, K.LOAD_ATTR, K.LOAD_METHOD, K.STORE_ATTR, K.IMPORT_NAME):
                said = (getattr(first.operand, "__name__", ""), repr(first.operand))  # all that `dis` tells of common constants
                assert first.operand == other.argval or other.argrepr in said


def test_stack_effects_are_cpythons(library):
    for code in library:
        theirs = {i.offset: i for i in dis.get_instructions(code)}
        for mine, other in paired(code):
            if other.opname in COUNTED_OTHERWISE:
                continue
            for jump in (False, True) if mine[0].kind in K.JUMPS else (False,):
                effects = [i.kind.stack_effect(i.operand, jump=jump) for i in mine]
                expected = effect(other, jump)
                if jump:  # what is jumped over, if that ends a loop
                    at = other.argval
                    while at < mine[0].operand:
                        expected += effect(theirs[at], False)
                        at += 2
                assert sum(pushes - pops for pops, pushes in effects) == expected, other


def effect(i, jump):
    return dis.stack_effect(i.opcode, i.arg if i.opcode >= dis.HAVE_ARGUMENT else None, jump=jump)


def test_a_call_leaves_one_item_of_all_it_takes():
    def f(a, b):
        return a(b, 1, k=2) + a(*b, **b)

    marks = stack_marks(f.__code__)
    assert marks[next(i.offset for i in instructions(f.__code__) if i.kind is K.RETURN)] == "v"


def test_stacks_are_as_deep_as_cpython_says(library):
    for code in library:
        marks = stack_marks(code)
        assert max(len(stack) for offset, stack in marks.items() if offset % 2 == 0) <= code.co_stacksize


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


@pytest.mark.parametrize("span", [(7, 7, 0, 3), (4321, 4400, 70, 2), (1, 1, 4000, 4100), (5, 5, None, None)])
def test_code_at_one_place(span):
    code = on_line(test_code_on_one_line.__code__, *span)
    want = span if None not in span else (span[0], span[0], None, None)
    assert {*code.co_positions()} == {want} and place_at(code, 4) == want and code.co_firstlineno == span[0]


def test_code_on_one_line() -> None:
    text = "def f(x):\n    try:\n        return [1 // y for y in x]\n    finally:\n        x = (lambda: 1 // 0)\n        x()\n"
    space: dict = {}
    exec(compile(text, "here.py", "exec"), space)
    f = space["f"]
    f.__code__ = on_line(f.__code__, 4321)
    todo = [f.__code__]
    for code in todo:
        assert {line for *_, line in code.co_lines()} == {4321} and code.co_firstlineno == 4321
        todo += [c for c in code.co_consts if isinstance(c, type(code))]
    assert len(todo) >= 2
    try:
        f([0])
    except ZeroDivisionError as e:
        seen = traceback.extract_tb(e.__traceback__)[1:]
        assert [s.name for s in seen][0] == "f" and {s.lineno for s in seen} == {4321}
    else:
        raise AssertionError("1 // 0")


def inner_behind_two_tests(a, b, c, d):
    for x in a():
        while b() and c():
            d()
        b()
    c()


def handlers_that_go_on(a, b, c, d):
    for x in a():
        try:
            b()
        except ValueError:
            continue
        c()
    d()


def while_with_a_handler(a, b, c, d):
    while a():
        try:
            b()
        except ValueError:
            c()
    while True:
        if d():
            return a()


def beside_each_other(a, b, c, d):
    while True:
        while a():
            b()
        for x in c():
            if d():
                break
        if b():
            return d()


@pytest.mark.parametrize(
    "fn, expected, since_314",
    [
        (inner_behind_two_tests, {1: {None}, 2: {1, 3}, 3: {3}, 4: {1}, 5: {None}}, {1: {None}, 2: {2}, 3: {2}, 4: {1}, 5: {None}}),
        (handlers_that_go_on, {1: {None}, 3: {1}, 6: {1}, 7: {None}}, None),
        (while_with_a_handler, {1: {None, 2}, 3: {2}, 5: {2}, 7: {7}, 8: {7}}, {1: {1}, 3: {1}, 5: {1}, 7: {6}, 8: {None}}),
        (beside_each_other, {2: {2, 3}, 3: {3}, 4: {2}, 5: {4}, 7: {2}, 8: {2}}, {2: {2}, 3: {2}, 4: {1}, 5: {4}, 7: {1}, 8: {None}}),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_the_loop_around_a_call(fn, expected, since_314):
    """By lines: that of the call -> that of the header of the loop around it. Since 3.14 the test of a `while` loop stands there once."""
    expected = since_314 or expected if sys.version_info >= (3, 14) else expected
    code, first = fn.__code__, fn.__code__.co_firstlineno
    line = {offset: number - first for start, end, number in code.co_lines() if number for offset in range(start, end)}
    found = {}
    for i in instructions(code):
        if i.kind is K.CALL:
            header = loop_around(code, i.offset)
            found.setdefault(line[i.offset], set()).add(line[header] if header is not None else None)
    assert found == expected
