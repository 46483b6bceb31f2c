"""The programs of this folder contain every opcode that user code can contain."""

from __future__ import annotations

import dis
import importlib
import pathlib
import sys

import pytest

from tests.helpers import check
from tests.programs.registry import REGISTRY, code_objects, t

# Opcodes that no compiled function of ours needs to contain, and why.
EXCLUDED = {
    "CACHE": "never executed: inline cache space",
    "EXTENDED_ARG": "a prefix, folded into the instruction by `dis`; see test_large_function",
    "PRINT_EXPR": "interactive prompt only",
    "IMPORT_STAR": "module level only",
    "SETUP_ANNOTATIONS": "bodies of modules and classes with annotations",
}


def programs_code():
    for path in sorted(pathlib.Path(__file__).parent.glob("test_*.py")):
        importlib.import_module(f"tests.programs.{path.stem}")
        yield from code_objects(compile(path.read_text(), str(path), "exec"))


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the list is that of CPython 3.11")
def test_every_opcode_is_there():
    seen: dict[str, str] = {}
    for code in programs_code():
        if code.co_name == "<module>":
            continue
        for ins in dis.get_instructions(code):
            seen.setdefault(ins.opname, code.co_qualname)
    missing = set(dis.opmap) - set(seen) - set(EXCLUDED)
    assert not missing, sorted(missing)


def test_large_function():
    """More than 256 names, constants and locals, and jumps of more than 256 instructions: EXTENDED_ARG on each kind of operand."""
    lines = ["def fn(x, n):", "    for i in range(n):", "        if i == 1:", "            continue"]
    lines += [f"        v{k} = x + {k}.5 if n > {k + 1000} else {k}" for k in range(300)]
    lines += ["    return x + " + " + ".join(f"v{k}" for k in range(300))]
    space: dict = {}
    exec("\n".join(lines), space)
    assert any(i.opname == "EXTENDED_ARG" for i in dis.get_instructions(space["fn"])) or len(space["fn"].__code__.co_code) > 5000
    check(space["fn"], (t(3), 1), (t(4), 3), lines=False)


def test_there_are_enough_programs():
    list(programs_code())
    assert sum(map(len, REGISTRY.values())) >= 150
