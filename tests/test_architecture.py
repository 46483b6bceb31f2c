"""The house's rules, read off the source text: floors, imports where they can be seen, files of one idea, the incumbent left alone."""

from __future__ import annotations

import ast
import dis
import functools
import gc
import importlib
import math
import operator
import pathlib
import re
from collections.abc import Iterator

import numpy
import pytest
import torch

from pliant import versions
from pliant.graph.operators import Column
from pliant.interpret.state import SESSION, Interpreter
from pliant.lower import pipeline
from pliant.lower.program import LEVELS

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLIANT = ROOT / "pliant"
FILES = sorted(path.relative_to(ROOT).as_posix() for path in PLIANT.rglob("*.py"))

# From the ground up: a room may import itself and the rooms of the rows before its own. `native` is told by
# `shared.h` what C++ and Python both know; it knows no other room.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("errors", "config", "turns"),
    ("versions",),
    ("events",),
    ("native",),
    ("symbolic",),
    ("graph",),
    ("bytecode",),
    ("guards",),
    ("interpret",),
    ("lower",),
    ("codegen",),
    ("jit",),
    ("dropin", "export", "report"),
    ("remote",),
    ("__init__",),
    ("cli",),
    ("__main__",),
)
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}

# (file, module it imports): imports that climb a floor, each with its reason. Empty is how it should be.
CLIMBS: dict[tuple[str, str], str] = {}

# (file, imported module): imports inside functions, each with its reason. Never to dodge a cycle.
INNER_IMPORTS: dict[tuple[str, str], str] = {}

# Rooms that import no torch, so that they can be read, tested and typed alone.
TORCHLESS = ("errors", "config", "turns", "events", "symbolic")

INCUMBENT = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd", "torch._export", "torch.fx.experimental.symbolic_shapes")
MAY_NAME_INCUMBENT = {
    "pliant/codegen/backends.py": 'backend="inductor" by name',
    "pliant/export/torch_values.py": "the ShapeEnv that an ExportedProgram carries",
    "pliant/codegen/variants.py": "the ShapeEnv in which such a backend finds its symbols",
    "pliant/cli/incumbent.py": "measured beside pliant by the demo and the benchmarks",
}

MAX_LINES = 800

# The one place outside of a processor's own package that names it.
NAMES_PROCESSORS = {"pliant/codegen/target.py"}


@functools.cache
def tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text("utf-8"), file)


@functools.cache
def nodes(file: str) -> list[ast.AST]:
    return list(ast.walk(tree(file)))


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING")


@functools.cache
def imports(file: str) -> list[tuple[str, int, bool]]:
    """(absolute module, line, inside a function?) of every import that runs. `from a import b` gives a.b where that is a module, else a."""

    def walk(node: ast.AST, inner: bool) -> Iterator[tuple[str, int, bool]]:
        if isinstance(node, ast.If) and is_type_checking(node.test):
            children: list[ast.AST] = list(node.orelse)
        else:
            children = list(ast.iter_child_nodes(node))
        inner = inner or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in children:
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield alias.name, child.lineno, inner
            elif isinstance(child, ast.ImportFrom):
                package = pathlib.PurePosixPath(file).parts[: -child.level] if child.level else ()
                base = ".".join([*package, *filter(None, [child.module])])
                for alias in child.names:
                    yield (f"{base}.{alias.name}" if is_module(f"{base}.{alias.name}") else base), child.lineno, inner
            else:
                yield from walk(child, inner)

    return list(walk(tree(file), False))


def is_module(name: str) -> bool:
    """A module or package of ours, or one of the incumbent's that `from torch import _dynamo` could name."""
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists() or name in INCUMBENT


def room(module_or_file: str) -> str:
    """`pliant/graph/trace.py` and `pliant.graph.trace` are both in `graph`; `pliant` itself is `__init__`."""
    parts = module_or_file.removesuffix(".py").replace("/", ".").split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def within(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(module == p or module.startswith(p + ".") for p in prefixes)


def test_every_room_has_its_floor():
    assert {room(file) for file in FILES} <= set(LEVEL)


@pytest.mark.parametrize("file", FILES)
def test_imports_go_down(file):
    here = room(file)
    climbs = []
    for module, line, _ in imports(file):
        if within(module, ("pliant",)):
            there = room(module)
            if there != here and LEVEL[there] >= LEVEL[here] and (file, module) not in CLIMBS:
                climbs.append(f"{file}:{line}: {here} imports {module}, which is not below it")
    assert not climbs, "\n".join(climbs)


@pytest.mark.parametrize("file", FILES)
def test_imports_stand_at_the_top(file):
    inner = [f"{file}:{line}: {module}" for module, line, inside in imports(file) if inside and (file, module) not in INNER_IMPORTS]
    assert not inner, "imports inside functions (a cycle? then a room is in the wrong place):\n" + "\n".join(inner)


@pytest.mark.parametrize("file", [f for f in FILES if room(f) in TORCHLESS])
def test_ground_floors_import_no_torch(file):
    assert not [f"{file}:{line}: {module}" for module, line, _ in imports(file) if within(module, ("torch", "numpy"))]


@pytest.mark.parametrize("file", FILES)
def test_the_incumbent_is_not_used(file):
    used = [f"{file}:{line}: {module}" for module, line, _ in imports(file) if within(module, INCUMBENT)]
    for node in nodes(file):  # also without an import statement: torch._dynamo.xyz
        if isinstance(node, ast.Attribute) and ast.unparse(node) in INCUMBENT:
            used.append(f"{file}:{node.lineno}: {ast.unparse(node)}")
    assert not used or file in MAY_NAME_INCUMBENT, "\n".join(used)


@pytest.mark.parametrize("file", [f for f in FILES if not f.startswith("pliant/codegen/cpu/")])
def test_processors_are_plug_ins(file):
    """Rooms ask the target: nobody imports the CPU's package, or tells devices of its name where programs are lowered."""
    used = [f"{file}:{line}: {module}" for module, line, _ in imports(file) if within(module, ("pliant.codegen.cpu",))]
    text = (ROOT / file).read_text("utf-8")
    named = file not in NAMES_PROCESSORS and "pliant.codegen.cpu" in text
    if room(file) == "lower" and file != "pliant/lower/text.py":  # which leaves the usual device out
        named = named or 'device.type == "cpu"' in text or 'device.type != "cpu"' in text
    assert not used and not named, used


def test_passes_are_one_list():
    """Every pass over programs stands in the pipeline, with a name of its own, and is left out by that name."""
    names = [row.name for row in pipeline.PASSES]
    assert len(set(names)) == len(names) and {row.at for row in pipeline.PASSES} == set(LEVELS[:-1])
    assert [row.makes for row in pipeline.PASSES if row.makes] == list(LEVELS[1:])


@pytest.mark.parametrize("pattern", ["*.py", "*.cpp", "*.c", "*.h"])
def test_files_are_one_idea_long(pattern):
    long = {p.relative_to(ROOT).as_posix(): n for p in PLIANT.rglob(pattern) if (n := len(p.read_text("utf-8").splitlines())) > MAX_LINES}
    assert not long, f"over {MAX_LINES} lines is two ideas: {long}"


# File names that several rooms have, and the one thing that they mean. In rooms that treat the same operators one by one, files are
# called after the operators (pointwise, reductions, views, ...).
OPERATORS_BY_FAMILY = (
    "pliant/graph/rules/", "pliant/lower/lowerings/", "pliant/export/onnx/", "pliant/export/stablehlo/", "pliant/interpret/arrays/",
)  # fmt: skip
SHARED_NAMES = {
    "backend": "what makes code of a graph",
    "branches": "branches of the program",
    "builder": "grows a graph or program, operation by operation",
    "cache": "what is kept on disk",
    "capture": "runs a function for its graph",
    "collectives": "collective operations",
    "compile": "the function `compile`",
    "control_flow": "branches and loops as operations",
    "decode": "code objects as instructions",
    "dims": "what is declared of sizes",
    "dtypes": "dtypes in another system's terms",
    "effects": "what is noticed from outside",
    "emit": "writes out what a room makes",
    "flow": "where control goes on",
    "gradients": "gradients that programs ask for",
    "guards": "guards, shown or kept",
    "indexing": "subscripts",
    "kernels": "kernels that run",
    "operands": "what operations, or instructions, are given",
    "operators": "operators, one row each",
    "probe": "finds a layout by trying",
    "program": "a list of steps: exported, lowered, or of guards",
    "quantized": "quantized layers",
    "recurrent": "recurrent networks",
    "reduce": "reductions",
    "region": "a compiled region",
    "row": "a row of a table",
    "checkpoints": "of the program: captured, and around compiled functions",
    "functions": "rules and code by function",
    "schedule": "loops of a target",
    "run": "runs something",
    "runtime": "what compiled code calls",
    "scalars": "operators of scalars",
    "second_backward": "gradients of gradients",
    "proxies": "what stands for values while they are captured",
    "tensors": "tensors",
    "text": "printing and reading",
    "torch_branches": "branches in PyTorch's graphs",
    "values": "values, one by one",
    "variants": "compiled forms of one program, by what they assume",
    "views": "what is seen of something without copying it",
}  # fmt: skip


def test_a_file_name_has_one_meaning():
    """Names that two rooms have are in the table, and the table has no others."""
    rooms: dict[str, list[str]] = {}
    for file in FILES:
        name = pathlib.PurePosixPath(file).stem
        if not name.startswith("__"):
            rooms.setdefault(name, []).append(file)
    twice = {name for name, files in rooms.items() if len(files) > 1 and not all(f.startswith(OPERATORS_BY_FAMILY) for f in files)}
    assert twice == set(SHARED_NAMES) & set(rooms) == set(SHARED_NAMES), twice ^ set(SHARED_NAMES)


@pytest.mark.parametrize("name", ["Region", "Break", "Target", "Pass", "OpSpec", "Column", "Alloc", "KernelCall"])
def test_a_word_of_the_house_is_one_class(name):
    assert len([file for file in FILES for node in nodes(file) if isinstance(node, ast.ClassDef) and node.name == name]) <= 1


def test_exceptions_are_still_needed():
    """A row of an exception table whose import is gone must go too."""
    present = {(file, module) for file in FILES for module, _, _ in imports(file)}
    assert set(CLIMBS) | set(INNER_IMPORTS) <= present


def test_the_reader_of_imports_sees_what_it_must(tmp_path, monkeypatch):
    """The checks above rest on `imports`: planted violations of each form are found."""
    source = (
        "from pliant import jit\nimport torch._dynamo as d\nfrom torch import _inductor\n"
        "def f():\n    from pliant.graph import trace\n"
        "class A:\n    def g(self):\n        import json\n"
        "if TYPE_CHECKING:\n    from pliant.cli import main\nelse:\n    import os\n"
        "try:\n    from .guard import Guard\nexcept ImportError:\n    pass\n"
    )
    monkeypatch.setitem(globals(), "tree", lambda file: ast.parse(source))
    found = [(module, inside) for module, _, inside in imports("pliant/guards/planted.py")]
    assert found == [
        ("pliant.jit", False),
        ("torch._dynamo", False),
        ("torch._inductor", False),
        ("pliant.graph.trace", True),
        ("json", True),
        ("os", False),
        ("pliant.guards.guard", False),
    ]


# -- one row per operator -------------------------------------------------------------------------------------------
# (module, table): where operators of PyTorch stand beside their rows, and why that is no property of theirs.
BESIDE_THE_ROWS: dict[tuple[str, str], str] = {
    ("graph.casts", "INSIDE"): "operators that obey autocast in what they call",
    ("graph.data_errors", "DIVISIONS"): "of integers, which operands tell",
    ("graph.data_errors", "CHOOSING"): "of no elements, which operands tell",
    ("graph.decompositions", "PAST_SCHEMAS"): "how a decomposition here is recorded",
    ("graph.dispatch", "ZERO_RULES"): "of one pattern: zeros of forward derivatives",
    ("graph.implemented", "POINTWISE"): "what PyTorch's tags leave out",
    ("graph.implemented", "TRIED"): "is asked of PyTorch itself, by trying",
    ("graph.implemented", "HALVES"): "is asked of PyTorch itself, by trying",
    ("graph.implemented", "CHECKED"): "arguments that PyTorch checks itself",
    ("graph.known_numbers", "ADDITIONS"): "of one pattern: step counters",
    ("graph.lstm", "WHOLE"): "networks for which there is an operator of ours",
    ("graph.same_values", "COPIES"): "of one question: what holds the same values",
    ("graph.same_values", "RESIZING"): "the same, where sizes stay",
    ("graph.operators", "OPERATORS"): "the rows",
    ("graph.recurrent", "WHOLE"): "of the decompositions there",
    ("lower.emit", "ALLOCATIONS"): "of what emit writes",
    ("lower.liveness", "RESTRIDERS"): "of what a pass moves",
    ("lower.liveness", "METADATA_WRITERS"): "of what a pass moves",
    ("lower.lowerings.scatters", "SCATTERS"): "those with a lowering there",
    ("lower.overlaps", "MEETING"): "of a proof over views",
    ("lower.overlaps", "STRIDED"): "of a proof over views",
    ("lower.pattern_fusion", "VIEWS"): "of a pattern",
    ("codegen.aten", "AS_STRIDED"): "told from other views",
    ("codegen.cpu.profitability", "ALWAYS"): "fills the column `worth`",
    ("codegen.cpu.profitability", "GATHERS"): "fills the column `worth`",
    ("codegen.cpu.profitability", "FLOATS"): "fills the column `worth`",
    ("codegen.cpu.profitability", "ARITHMETIC"): "fills the column `worth`",
    ("codegen.cpu.profitability", "OF_HALVES"): "fills the column `worth`",
    ("codegen.double_backward", "OWN_STATISTICS"): "of one formula of autograd's",
    ("codegen.fastops", "EQUIVALENT"): "fills the column `binding`",
}


def of_pytorch(x: object) -> bool:
    return isinstance(x, torch._ops.OpOverload) and x.namespace == "aten" or isinstance(x, str) and x.startswith("aten::")


def test_what_is_known_of_operators_is_a_column():
    """Tables by operator are columns of the rows, but for those of which it is said why not."""
    found = set()
    for file in (f for f in FILES if room(f) in ("graph", "lower", "codegen") and "/triton/" not in f):  # which may not be there
        name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        made = [node for node in tree(file).body if isinstance(node, ast.Assign | ast.AnnAssign)]
        stores = {n.id for node in made for n in ast.walk(node) if isinstance(n, ast.Name)}
        for table, value in vars(importlib.import_module(name)).items():
            if table in stores and isinstance(value, dict | set | frozenset | tuple | list) and not isinstance(value, Column):
                if sum(map(of_pytorch, value)) > 1 and not is_imported(file, table):
                    found.add((name.removeprefix("pliant."), table))
    assert found == set(BESIDE_THE_ROWS), found ^ set(BESIDE_THE_ROWS)


def is_imported(file: str, name: str) -> bool:
    return any(isinstance(node, ast.ImportFrom) and name in [a.asname or a.name for a in node.names] for node in tree(file).body)


# -- one gate -------------------------------------------------------------------------------------------------------
ROOMS = "slots opcodes opcodes_build lookasides hashes keys calls attributes classes type_names".split()
INTERPRETER = [f"pliant/interpret/{name}.py" for name in ROOMS]
READERS = {
    "bool", "hash", "iter", "next", "int", "float", "complex", "range", "str", "repr", "ascii", "format", "sum", "divmod", "round", "abs",
    "bytes", "sorted",
}  # fmt: skip
# (file, function, builtin): where the interpreter itself asks an object, and why nobody's state is read.
ASKED_DIRECTLY: dict[tuple[str, str, str], str] = {
    ("attributes", "class_value", "next"): "over the MRO, our own generator",
    ("attributes", "descriptor", "next"): "over the MRO, our own generator",
    ("attributes", "gets", "bool"): "of a flag of a type",
    ("calls", "answered", "str"): "a message of an error",
    ("hashes", "l_symbol_hash", "hash"): "of a number, pinned",
    ("hashes", "hash_of_identity", "hash"): "of an id",
    ("lookasides", "l_range", "range"): "of ints that `gate.index` gave, or to raise",
    ("opcodes_build", "build_map", "range"): "over the operands",
    ("opcodes_build", "format_value", "bool"): "of the flags of an instruction",
    ("opcodes_build", "format_value", "format"): "of an exact str, int, float or bool",
    ("opcodes_build", "match_mapping", "bool"): "of a flag of a type",
    ("opcodes_build", "match_sequence", "bool"): "of a flag of a type",
    ("slots", "get_iter", "iter"): "of exact containers that call nobody",
    ("slots", "advance", "next"): "of exact iterators that call nobody",
    ("slots", "truth", "bool"): "of plain operands and symbols",
    ("keys", "agreed", "hash"): "as CPython will ask the key, to be compared with what its interpreted method says",
    ("type_names", "function_text", "str"): "a message of an error",
}
NATIVE_CALLS = {"pliant/interpret/gate.py", "pliant/interpret/calls.py", "pliant/interpret/engine.py"}


def functions(file: str) -> Iterator[ast.FunctionDef]:
    return (node for node in nodes(file) if isinstance(node, ast.FunctionDef))


def test_the_interpreter_asks_no_object_itself():
    """What reads an object goes through the gate: builtins that ask one are called nowhere else but where a reason is written down."""
    found = {
        (pathlib.PurePosixPath(file).stem, fn.name, node.func.id)
        for file in INTERPRETER
        for fn in functions(file)
        for node in ast.walk(fn)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in READERS
    }
    assert found == set(ASKED_DIRECTLY), found ^ set(ASKED_DIRECTLY)


def test_c_code_runs_behind_the_gate():
    """Only the gate and the calls behind it start C code on the program's objects, or record a torch function."""
    for file in FILES:
        if room(file) != "interpret":
            continue
        for node in nodes(file):
            if isinstance(node, ast.Attribute) and node.attr == "call_captured":
                assert file in NATIVE_CALLS, f"{file}:{node.lineno}: C code is run past the gate"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "record_torch":
                assert file == "pliant/interpret/calls.py", f"{file}:{node.lineno}: a torch function is recorded past `graph_call`"


def test_the_session_declares_what_it_holds():
    """Attributes of `vm` are fields of the session or declared operations, each of them set by one module."""
    declared = set(Interpreter.__annotations__) | set(SESSION)
    setters: dict[str, set[str]] = {}
    for file in FILES:
        for node in nodes(file):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "vm":
                assert node.attr in declared, f"{file}:{node.lineno}: vm.{node.attr} is declared nowhere"
                if isinstance(node.ctx, ast.Store):
                    setters.setdefault(node.attr, set()).add(file)
    operations = set(Interpreter.__annotations__)
    assert operations <= set(setters), f"set by nobody: {operations - set(setters)}"
    assert all(len(setters[name]) == 1 for name in operations)


VERSIONS_OPCODES = tuple(
    importlib.import_module(f"pliant.bytecode.{path.stem}").OPCODES for path in sorted((PLIANT / "bytecode").glob("cpython3*.py"))
)


def test_every_supported_cpython_has_its_table():
    """And one more, which is read and written only (decision 009)."""
    assert len(VERSIONS_OPCODES) == len(versions.PYTHON) + 1 >= 4


def test_opcodes_are_known_in_one_place():
    """Rooms above `bytecode` know kinds of instructions, no opcode of any CPython, and no `dis`."""
    opcodes = {name for table in (dis.opmap, *VERSIONS_OPCODES) for name in table if "_" in name}
    found = []
    for file in FILES:
        if file.startswith("pliant/bytecode/"):
            continue
        found += [f"{file}:{line}: imports {module}" for module, line, _ in imports(file) if module in ("dis", "opcode")]
        for node in nodes(file):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in opcodes:
                found.append(f"{file}:{node.lineno}: {node.value}")
    assert not found, "\n".join(found)


# -- one header -----------------------------------------------------------------------------------------------------
NATIVE = {path.name: path.read_text("utf-8") for path in (PLIANT / "native").iterdir() if path.suffix in (".c", ".cpp", ".h")}
# What tells versions of CPython apart, and what only its internal headers, or its undocumented fields, know.
BELOW = re.compile(
    r"\b(PY_VERSION_HEX|PY_(MAJOR|MINOR)_VERSION|PL_PYTHON|Py_BUILD_CORE|pycore_\w+|_PyInterpreter(Frame|State)\w*|_PyFrame\w+|_PyEval_\w+|_PyCode_\w+"
    r"|PyUnstable_\w+|f_(code|executable|func|funcobj|builtins)|prev_instr|instr_ptr|stacktop|localsplus|co_framesize|cframe|datastack_\w+"
    r"|ma_(version_tag|values|keys)|tp_(version_tag|dict)|_Py_CODEUNIT)\b"
)


def below(name: str) -> list[str]:
    return [f"{name}:{number}: {m[0]}" for number, line in enumerate(NATIVE[name].splitlines(), 1) for m in BELOW.finditer(line)]


def test_the_inside_of_cpython_is_known_in_one_header():
    """What differs between CPythons below their documented interfaces stands in `cpython.h`; one file asks for its frames."""
    found = [line for name in NATIVE if name != "cpython.h" for line in below(name)]
    assert not found, "\n".join(found)
    assert below("cpython.h")
    assert [name for name, text in NATIVE.items() if "PlFrame" in text and name != "cpython.h"] == ["hook.c"]


AT_WORK = tuple(f"pliant/{room}/" for room in ("graph", "guards", "interpret", "lower", "codegen", "jit"))
NOT_YET = ("pliant/graph/originals.py",)


@pytest.mark.parametrize("file", [f for f in FILES if f.startswith(AT_WORK) and f not in NOT_YET])
def test_functions_of_libraries_are_read_as_they_were(file):
    """A program may replace `torch.where`: code that is at work while programs run has such modules from `graph.originals`. A class is
    the program's also there: its methods are those of `ORIGINAL`."""
    libraries = {
        "gc": gc, "math": math, "numpy": numpy, "operator": operator, "torch": torch, "torch._C": torch._C, "torch.Tensor": torch.Tensor,
    }  # fmt: skip
    imported = [a for n in nodes(file) if isinstance(n, ast.Import) for a in n.names]
    plain = {a.asname or a.name: a.name for a in imported if a.name.split(".")[0] in libraries}
    for fn in nodes(file):
        if isinstance(fn, ast.FunctionDef | ast.Lambda):
            for n in (n for part in (fn.body if isinstance(fn.body, list) else [fn.body]) for n in ast.walk(part)):
                first, *rest = (ast.unparse(n.value) if isinstance(n, ast.Attribute) else "").split(".")
                of = ".".join([plain.get(first, first), *rest])
                if (first in plain or of == "torch.Tensor") and of in libraries:
                    found = getattr(libraries[of], n.attr, None)
                    kept = isinstance(found, type) or not callable(found) and of != "math"  # whose numbers may go, too
                    assert kept, f"line {n.lineno}: {of}.{n.attr}"


OF_TENSORS = frozenset((
    "dim is_floating_point is_complex is_conj is_neg is_contiguous numel untyped_storage element_size storage_offset _is_view detach"
    " requires_grad_ new_empty new_zeros as_strided contiguous is_inference resolve_conj resolve_neg permute unsqueeze"
).split())
"""Methods that are a tensor's wherever they are called, unless one of `HAVE_THEM` is asked."""
HAVE_THEM = re.compile(r"ORIGINAL|BASE|torch|layout|.*\.shape\b.*")
AS_PYTORCH = ("pliant/interpret/in_torch.py", "pliant/interpret/batched_functions.py", "pliant/jit/verify/")
"""What is interpreted in the place of PyTorch's own Python code sees what that sees; verification puts PyTorch's methods back while it asks
(`originals.of_own_tensors`, `tests/jit/test_verify.py`)."""


@pytest.mark.parametrize("file", [f for f in FILES if f.startswith(AT_WORK) and not f.startswith(AS_PYTORCH)])
def test_methods_of_tensors_are_those_that_they_were(file):
    """A program may put a function in the place of `torch.Tensor.dim`: pliant's own questions are not for that."""
    for n in nodes(file):
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in OF_TENSORS:
            assert HAVE_THEM.fullmatch(ast.unparse(n.func.value)), f"line {n.lineno}: {ast.unparse(n.func)}"
