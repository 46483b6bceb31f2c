"""The house's rules, read off the source text: floors, imports where they can be seen, files of one idea, the incumbent left alone."""

from __future__ import annotations

import ast
import functools
import pathlib
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLIANT = ROOT / "pliant"
FILES = sorted(path.relative_to(ROOT).as_posix() for path in PLIANT.rglob("*.py"))

# From the ground up: a room may import itself and the rooms of the rows before its own. `native` stands under `guards`, which compiles
# guards for it; it knows no other room.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("errors", "config"),
    ("versions",),
    ("events",),
    ("symbolic",),
    ("graph",),
    ("native",),
    ("guards",),
    ("interpret",),
    ("lower",),
    ("codegen",),
    ("jit",),
    ("export", "remote", "report"),
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
TORCHLESS = ("errors", "config", "events", "symbolic")

INCUMBENT = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd", "torch._export", "torch.fx.experimental.symbolic_shapes")
MAY_NAME_INCUMBENT = {
    "pliant/codegen/backends.py": 'backend="inductor" by name',
    "pliant/cli/incumbent.py": "measured beside pliant by the demo and the benchmarks",
}

MAX_LINES = 800


@functools.cache
def tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(), file)


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING")


def imports(file: str) -> Iterator[tuple[str, int, bool]]:
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

    return walk(tree(file), False)


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
    for node in ast.walk(tree(file)):  # also without an import statement: torch._dynamo.xyz
        if isinstance(node, ast.Attribute) and ast.unparse(node) in INCUMBENT:
            used.append(f"{file}:{node.lineno}: {ast.unparse(node)}")
    assert not used or file in MAY_NAME_INCUMBENT, "\n".join(used)


@pytest.mark.parametrize("pattern", ["*.py", "*.cpp", "*.c", "*.h"])
def test_files_are_one_idea_long(pattern):
    long = {p.relative_to(ROOT).as_posix(): n for p in PLIANT.rglob(pattern) if (n := len(p.read_text().splitlines())) > MAX_LINES}
    assert not long, f"over {MAX_LINES} lines is two ideas: {long}"


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
