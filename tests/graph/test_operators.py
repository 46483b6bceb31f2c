"""The rows of operators: columns are views of them, a row is one call, and what others change is in the key of everything on disk."""

from __future__ import annotations

import pathlib
import re

import pytest
import torch

import pliant
import pliant.codegen.native
from pliant.cli.main import main
from pliant.codegen import target
from pliant.errors import PliantError
from pliant.graph import operators
from pliant.graph.operators import COLUMNS, FIELDS, OPERATORS, Column, operator
from pliant.graph.rules.table import RULES
from pliant.jit.persist import environment
from pliant.lower.lowerings.builder import TABLE

aten = torch.ops.aten
DOC = pathlib.Path(__file__).parents[2] / "docs" / "adding-an-operator.md"


@pytest.fixture(autouse=True)
def as_before():
    """Rows as they were, behind each test."""
    target.current()
    columns = {name: dict(column) for name, column in COLUMNS.items()}
    yield
    for name, column in COLUMNS.items():
        for t in set(column) - set(columns[name]):
            del column[t]
        for t, value in columns[name].items():
            if column.get(t) is not value:
                column[t] = value
    assert not operators.FOREIGN
    pliant.reset()


def test_columns_are_views_of_the_rows() -> None:
    assert set(COLUMNS) == set(FIELDS)
    for name, column in COLUMNS.items():
        assert column, name
        for t, value in column.items():
            assert getattr(OPERATORS[t], name) is value
        assert {t for t, spec in OPERATORS.items() if getattr(spec, name) not in (None, False)} == set(column)


def test_the_documents_example_is_one_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """As it stands in docs/adding-an-operator.md."""
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))
    made: list = []
    compile_all = pliant.codegen.native.compile_all
    monkeypatch.setattr(pliant.codegen.native, "compile_all", lambda k, *more: (made.extend(k), compile_all(k, *more)))

    def fn(x, y):
        return torch.hypot(x, y) * 2 + 1

    def count() -> int:
        made.clear()
        compiled = pliant.compile(fn, strict=True)
        for n in (3, 8):
            x, y = torch.randn(n, 5), torch.randn(n, 5)
            torch.testing.assert_close(compiled(x, y), fn(x, y))
        pliant.reset()
        return sum("sqrt" in {n.op for n in launch.kernel.nodes()} for launch in made)

    assert aten.hypot.default not in TABLE and count() == 0
    (code,) = re.findall(r"```python\n(.*?)```", DOC.read_text("utf-8"), re.DOTALL)
    exec(compile(code, str(DOC), "exec"), {})
    assert count() == 1
    assert "hypot" in operators.described("hypot") and "stays an ATen call" not in operators.described("hypot")


def test_what_is_refused() -> None:
    with pytest.raises(PliantError, match="no such operator"):
        operator("does_not_exist", certain=True)
    with pytest.raises(PliantError, match="no column loweringg; choose from"):
        operator("hypot", loweringg=print)
    with pytest.raises(PliantError, match="no operator"):
        operators.described("does_not_exist")
    with pytest.raises(pliant.errors.InternalError, match="no column"):
        Column("lowering")


def test_what_others_change_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    config = pliant.config.Config()
    monkeypatch.setattr(environment.policy, "_by_user", type(environment.policy._by_user)())  # what other tests have told it
    before = environment.key(config)
    assert operators.fingerprint() == b"" and before is not None
    operator("hypot", lowering=lambda b, o: None)
    other = environment.key(config)
    operator("hypot", lowering=lambda b, o: b)
    assert len({before, other, environment.key(config)}) == 3
    monkeypatch.setitem(RULES, aten.sin.default, RULES[aten.cos.default])  # one of pliant's own, in another place
    assert environment.key(config) not in (before, other)


def test_the_command(capsys: pytest.CaptureFixture) -> None:
    assert main(["operator"]) == 0 and "operators have rows" in capsys.readouterr().out
    assert main(["operator", "add.Tensor", "embedding"]) == 0
    said = capsys.readouterr().out
    assert "aten::add.Tensor" in said and "checks_data" in said
    assert main(["operator", "nobody"]) == 1
