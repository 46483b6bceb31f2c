"""Branches and loops on data in exported programs, in every format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import pliant
from pliant.cli import export as cli
from pliant.errors import PliantError
from pliant.export import text
from tests.graph import test_control_flow as spelled
from tests.programs import test_data_loops as loops

FORMATS = ("program", "file", "torch", "onnx", "stablehlo")


def r(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def tokens(batch: int, n: int) -> torch.Tensor:
    return torch.arange(batch * n).view(batch, n) % 9


def with_plain_functions(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: fn(spelled.cond, spelled.while_loop, *args)


def with_operators(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: fn(torch.cond, torch.while_loop, *args)


class Decoder(torch.nn.Module):
    """Greedy decoding until a token, or until there are enough."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(9, 6)
        self.mix = torch.nn.Linear(6, 6)

    def forward(self, ids: Any, end: int, most: int) -> Any:
        while ids.shape[1] < most:
            h = torch.tanh(self.mix(self.table(ids))).mean(1)
            token = (h @ self.table.weight.T).argmax(-1)
            ids = torch.cat([ids, token[:, None]], 1)
            if bool((token == end).all()):
                break
        return ids


class Padded(Decoder):
    """The same in a buffer of the final size: no size changes."""

    def forward(self, ids: Any, end: int, most: int) -> Any:
        n = 0
        token = torch.zeros(ids.shape[0], dtype=torch.int64)
        while n < most and not bool((token == end).all()):
            h = torch.tanh(self.mix(self.table(ids))).mean(1)
            token = (h @ self.table.weight.T).argmax(-1)
            ids = torch.cat([ids, token[:, None]], 1)[:, 1:]
            n += 1
        return ids, n


def drifting(x: Any) -> Any:
    """A loop whose result is not what it carries, with an assertion inside."""
    last = x.sum()
    while x.abs().max() > 0.5:
        last = x.sum() * 2
        torch._check(last.item() < 1e6)
        x = x * 0.5
    return last, x.T @ x


def transposed(x: Any) -> Any:
    """What it carries changes its strides."""
    y = x.T
    n = 0
    while y.sum() > 1:
        n += 1
        y = (y * 0.5).contiguous() if n % 2 else (y - 0.1).T.abs().T
    return y


def two_kinds(x: Any, k: float) -> Any:
    flag, n, total = False, 0, 0.0
    while total < k:
        total += x.abs().mean().item() + 0.25
        n += 2
        flag = not flag
    return n, total, flag


CALLS: dict[Any, tuple[Callable[..., Any], list[tuple]]] = {
    **{with_operators(fn): (with_plain_functions(fn), calls) for fn, calls in spelled.CALLS.items()},
    loops.fixed_point: (loops.fixed_point, [(r(3), 1e-3), (r(7), 1e-4), (r(1), 2.0)]),
    loops.newton: (loops.newton, [(r(3) + 1,), (r(5) * 9 + 1,), (r(1) + 3,)]),
    loops.bisection: (loops.bisection, [(torch.tensor(0.0), torch.tensor(b), t) for b, t in ((2.0, 2.0), (9.0, 5.0), (1e-4, 1.0))]),
    loops.greedy: (loops.greedy, [(r(5, 5), r(7, 5), torch.ones(n, dtype=torch.int64), 3) for n in (2, 1, 7, 11)]),
    loops.all_done: (loops.all_done, [(r(3),), (r(8) * 3,), (r(1) + 5,)]),
    loops.collatz: (loops.collatz, [(torch.tensor(7),), (torch.tensor(27),), (torch.tensor(1),)]),
    loops.with_else: (loops.with_else, [(r(3), 9), (r(4) * 3, 20), (r(2) * 9 + 9, 3)]),
    loops.shifted: (loops.shifted, [(r(3) / 9,), (r(5) / 20,), (r(2) * 9,)]),
    loops.nested_loops: (loops.nested_loops, [(r(3),), (r(5),), (r(2) / 9,)]),
    drifting: (drifting, [(r(3, 2),), (r(5, 7) * 8,), (r(1, 1) / 9,)]),
    transposed: (transposed, [(r(3, 2),), (r(5, 7),), (r(1, 1) / 9,)]),
    two_kinds: (two_kinds, [(r(3), 2.0), (r(7), 5.0), (r(2), 0.1)]),
    Decoder(): (Decoder(), [(tokens(b, n), end, most) for b, n, end, most in ((2, 3, 4, 8), (1, 4, 0, 13), (3, 1, 7, 2))]),
    Padded(): (Padded(), [(tokens(b, n), end, most) for b, n, end, most in ((2, 3, 4, 5), (1, 4, 0, 9), (3, 2, 7, 1))]),
}  # fmt: skip
NAMES = [*(fn.__name__ for fn in spelled.CALLS), *(getattr(f, "__name__", type(f).__name__) for f in list(CALLS)[len(spelled.CALLS) :])]

REFUSED = {
    ("stablehlo", "other_sizes"): "sizes only data tell",
    ("stablehlo", "greedy"): "sizes only data tell",
    ("stablehlo", "Decoder"): "sizes only data tell",
    ("torch", "fixed_point"): "torch.export.save writes no program that takes floats",
    ("torch", "bisection"): "torch.export.save writes no program that takes floats",
    ("torch", "two_kinds"): "torch.export.save writes no program that takes floats",
}


def runs(p: Any, format_: str, work: Path) -> Callable[[dict[str, Any]], list[Any]]:
    if format_ in cli.FORMATS and format_ != "pliant":
        return cli.FORMATS[format_](p, work / "m")[1]
    if format_ == "file":
        p.save(work / "m.pliant")
        q = pliant.load(work / "m.pliant")
        assert str(q) == str(p)
        q.save(work / "n.pliant")
        assert str(pliant.load(work / "n.pliant")) == str(p)
        p = q

    def run(values: dict[str, Any]) -> list[Any]:
        out = p.run(values)
        return [out[o.name] for o in p.user_outputs]

    return run


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("name", NAMES)
def test_formats_agree_with_eager(name: str, format_: str, tmp_path: Path) -> None:
    if format_ == "stablehlo":
        pytest.importorskip("jaxlib")
    f, (eager, calls) = list(CALLS.items())[NAMES.index(name)]
    with torch.no_grad():
        p = pliant.export(f, calls[0])
    assert "flow(" in str(p)

    def all_calls() -> None:
        run = runs(p, format_, tmp_path)
        for args in calls:
            with torch.no_grad():
                want = p.outputs_of(eager(*args))
                got = run(p.inputs_of(*args))
            for a, b in zip(got, want, strict=True):
                torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b).to(torch.as_tensor(a).dtype))

    why = REFUSED.get((format_, name))
    if why is None:
        all_calls()
    else:
        with pytest.raises(Exception, match=why):
            all_calls()


def test_random_numbers_are_drawn_round_by_round(tmp_path: Path) -> None:
    p = pliant.export(loops.drawing, (r(3),))
    for format_ in ("program", "file", "torch"):
        run = runs(p, format_, tmp_path)
        for x in (r(3), r(3) * 0, r(3) + 3):
            torch.manual_seed(3)
            got = run(p.inputs_of(x))
            torch.manual_seed(3)
            for a, b in zip(got, p.outputs_of(loops.drawing(x)), strict=True):
                torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b))


def test_assertions_in_rounds() -> None:
    p = pliant.export(drifting, (r(3, 2),))
    with pytest.raises(RuntimeError):
        p(r(3, 2) * 1e7)


def test_without_python_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PliantError, match="branch or loop on data"):
        pliant.export(loops.newton, (r(3),)).compile(tmp_path / "m.pliant")


LIES = {
    "again [%": "again [%0, %",  # more values than it carries
    "leave [%": "leave [%0, %",
    "  changing u6\n": "",
    "[u6 + 1]": "[u6 + 2]",
    "carried %5: i64 [u6] strides [1]": "carried %5: i64 [u6] strides [2]",
    "branch u8 == s10": "branch u999 == s10",
    "    else\n": "",
    "finds u5 at 0 size 0": "",
}


def read_by_nobody(x: torch.Tensor) -> torch.Tensor:
    z = x
    for _ in range(3):
        z = torch.full(x.shape, 0.5)
        if x.sum().item() < 1:
            y, n = x, 0
            while y.abs().sum() > 0.5 and n < 3:
                y, n = y * 0.5, n + 1
        t = x
        while t.abs().max() > 0.25:
            t = t * 0.5
    return z * x


def test_a_loop_that_nobody_reads(tmp_path: Path) -> None:
    p = pliant.export(read_by_nobody, (r(3, 4),))
    p.save(tmp_path / "p.pliant")
    q = pliant.load(tmp_path / "p.pliant")
    assert str(q) == str(p)
    for n in (3, 1, 5):
        torch.testing.assert_close(q(r(n, 4)), read_by_nobody(r(n, 4)))


@pytest.mark.parametrize("words", LIES)
def test_a_file_that_lies_about_a_loop_is_refused(words: str) -> None:
    source = str(pliant.export(loops.greedy, (r(5, 5), r(7, 5), torch.tensor([1, 2]), 3)))
    source = source[: source.index("pliant program", 5)] if "pliant program" in source[5:] else source
    assert words in source, source
    with pytest.raises(text.FormatError):
        text.Reader.whole(source.replace(words, LIES[words], 1))
