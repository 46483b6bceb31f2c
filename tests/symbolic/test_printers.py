"""What every printer writes means what the expression means."""

from __future__ import annotations

import ctypes
import math

import pytest

from pliant.symbolic import Scope, ops, straight_line
from pliant.symbolic.expr import TABLE, postorder
from pliant.symbolic.ops import DISPATCH_ONLY
from tests.symbolic.samples import FLOATS, INTS, close, environments, sample_expressions, value

NAMES = (*INTS, "n", *FLOATS, "b")
C_TYPES = {int: ("int64_t", ctypes.c_int64), float: ("double", ctypes.c_double), bool: ("bool", ctypes.c_bool)}
KINDS = [int] * 4 + [float] * 2 + [bool]


def test_samples_use_every_row() -> None:
    used = {s.op for e in sample_expressions() for s in straight_line.steps(e)}
    assert set(TABLE) - used - DISPATCH_ONLY == set()


def test_python_round_trip() -> None:
    """Evaluating the text gives the value; building from the text gives the expression."""
    for e in sample_expressions():
        text = e.python()
        for env in environments(20):
            v = value(e, env)
            if v is not None:
                assert close(eval(text, {"math": math}, env), v), (text, env)


def test_python_rename() -> None:
    scope = Scope()
    a = scope.backed("s0", 4)
    assert (a * 2 + 1).python({"s0": "n"}) == "2*n + 1"
    assert (a - 1).python(lambda n: f"env[{n!r}]") == "env['s0'] - 1"


def run_postfix(code: list[tuple], env: list[int]) -> int:
    stack: list[int] = []
    pops = {"neg": 1, "abs": 1, "not": 1, "where": 3}
    for op, *arg in code:
        if op in ("var", "const"):
            stack.append(env[arg[0]] if op == "var" else arg[0])
            continue
        n = pops.get(op, 2)
        args = stack[-n:]
        del stack[-n:]
        stack.append(int(TABLE[op].fn(*args)))
    assert len(stack) == 1
    return stack[0]


def test_postfix() -> None:
    index = {n: i for i, n in enumerate(NAMES)}
    programs = 0
    for e in sample_expressions():
        code = e.postfix(index)
        floats = any(n.kind is float for n in postorder(e))
        assert code is None or not floats
        if code is None:
            continue
        programs += 1
        for env in environments(20):
            v = value(e, env)
            if v is not None:
                assert run_postfix(code, [int(env[n]) for n in NAMES]) == v, (e, env)
    assert programs > 60


def check_native(call, expressions) -> None:
    for index, e in enumerate(expressions):
        for env in environments(30):
            v = value(e, env)
            if v is not None:
                got = call(index, [env[n] for n in NAMES])
                assert close(got, v), (e, env, got, v)


def test_llvm() -> None:
    llvmlite = pytest.importorskip("llvmlite.binding")
    llvmlite.initialize_native_target()
    llvmlite.initialize_native_asmprinter()
    expressions = sample_expressions()
    types = straight_line.LLVM_TYPES
    params = ", ".join(f"{types[k]} %{n}" for n, k in zip(NAMES, KINDS, strict=True))
    bodies, declarations = [], {}
    for i, e in enumerate(expressions):
        lines, result = straight_line.llvm(e, {n: f"%{n}" for n in NAMES})
        declarations |= dict.fromkeys(straight_line.llvm_declarations(lines))
        bodies.append(f"define {types[e.kind]} @f{i}({params}) {{\n" + "\n".join(lines) + f"\nret {types[e.kind]} {result}\n}}")
    module = llvmlite.parse_assembly("\n".join([*declarations, *bodies]))
    module.verify()
    target = llvmlite.Target.from_default_triple().create_target_machine(opt=0)
    engine = llvmlite.create_mcjit_compiler(module, target)
    engine.finalize_object()

    def call(i: int, args: list):
        proto = ctypes.CFUNCTYPE(C_TYPES[expressions[i].kind][1], *[C_TYPES[k][1] for k in KINDS])
        return proto(engine.get_function_address(f"f{i}"))(*args)

    check_native(call, expressions)


def test_stablehlo_is_well_formed() -> None:
    """Every line is one operation of the dialect on values defined before it, with a full type."""
    for e in sample_expressions():
        lines, result = straight_line.stablehlo(e, {n: f"%{n}" for n in NAMES})
        defined = {f"%{n}" for n in NAMES}
        for line in lines:
            target, _, rest = line.partition(" = ")
            assert rest.startswith("stablehlo."), line
            operation, _, type_ = rest.rpartition(" : ")
            assert "@" not in line and type_.count("tensor<") >= 1, line
            for token in operation.replace(",", " ").split():
                assert not token.startswith("%") or token in defined, line
            defined.add(target)
        assert result in defined


def test_stablehlo_runs() -> None:
    pytest.importorskip("jaxlib")
    from tests.symbolic.hlo import run

    run(sample_expressions(), NAMES, KINDS, environments(12))


def test_empty_program_of_a_constant() -> None:
    scope = Scope()
    assert straight_line.llvm(scope.const(5), {}) == ([], "5")
    assert ops.add(2, 3) == 5
