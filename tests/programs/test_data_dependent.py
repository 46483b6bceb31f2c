"""The table of `benchmarks/data_dependent`: each program in one graph, eager's answer at every size, 0 and 1 among them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import pliant
from benchmarks.data_dependent.judge import under_pliant
from benchmarks.data_dependent.table import PROGRAMS
from pliant.symbolic import Scope


def test_the_table_is_wide() -> None:
    assert len(PROGRAMS) >= 60
    few = {p.name for p in PROGRAMS.values() if len(p.sizes) < 5}
    assert few <= {"broadcast_against_an_input", "one_row_of_a_jagged_tensor"}  # eager takes two, and there are four rows
    assert sum(1 in p.sizes or 0 in p.sizes for p in PROGRAMS.values()) == len(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_program(name: str) -> None:
    verdict = under_pliant(PROGRAMS[name])
    assert verdict.fine, verdict


# what fails at run time ----------------------------------------------------------------------------------------
def compiled(fn: Callable) -> Callable:
    pliant.reset()
    return pliant.compile(fn, fullgraph=True, strict=True)


def test_an_assertion_names_the_line_the_relation_and_the_values() -> None:
    def pairs(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        chosen = x[mask]
        return chosen.view(-1, 2)

    fn = compiled(pairs)
    assert fn(torch.arange(6), torch.arange(6) < 4).shape == (2, 2)
    with pytest.raises(RuntimeError) as e:
        fn(torch.arange(6), torch.arange(6) < 3)
    line = pairs.__code__.co_firstlineno + 2
    assert "is invalid for input of size 3" in str(e.value)  # eager's words
    (note,) = e.value.__notes__
    assert "`u0 % 2 == 0` is false" in note and f"test_data_dependent.py:{line} in" in note and "(u0 = 3)" in note
    assert pliant.stats()["captures"] == 1


def test_checks_of_the_program_keep_their_words_and_kinds() -> None:
    fn = compiled(PROGRAMS["checked_number"].fn)  # (pytest would rewrite an assertion of this file)
    for n in (5, 0, 1, 8):
        assert fn(torch.tensor(n)).shape == (n,)
    wrong = {-1: (RuntimeError, "not negative"), 9: (IndexError, "cond to be True"), 6: (AssertionError, "not six")}
    wrong[4] = (ValueError, "not four")
    for n, (error, words) in wrong.items():
        with pytest.raises(error, match=words):
            fn(torch.tensor(n))
    assert pliant.stats()["captures"] == 1


def test_a_raise_that_the_program_may_handle_is_a_branch() -> None:
    def guarded(x: torch.Tensor) -> torch.Tensor:
        n = x.item()
        try:
            assert n > 3
        except AssertionError:
            return x - 1
        return x + 1

    pliant.reset()
    fn = pliant.compile(guarded, strict=True)
    assert [fn(torch.tensor(n)).item() for n in (5, 2, 7)] == [6, 1, 8]


def test_what_is_checked_is_known_afterwards() -> None:
    def known(lengths: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        a, b = lengths.tolist()
        torch._check(a >= 0)
        torch._check(b >= a)
        torch._check(b <= x.shape[0])
        if b + 1 > a:  # proved: no branch
            return x[a:b]
        return x

    fn = compiled(known)
    for a, b in ((1, 4), (0, 0), (2, 2), (0, 6)):
        assert torch.equal(fn(torch.tensor([a, b]), torch.arange(6)), torch.arange(6)[a:b])
    assert pliant.stats()["captures"] == 1


def test_implied_assertions_are_not_emitted() -> None:
    scope = Scope()
    u, v = scope.unbacked("u0", size_like=True), scope.unbacked("u1", size_like=True)
    assert scope.assume(u <= v) and scope.assume(v <= 8)
    assert scope.assume(u <= 8) and scope.assume(u <= v + 1) and scope.assume(u >= 0)
    assert [str(a.expr) for a in scope.asserts] == ["u0 <= u1", "u1 <= 8"]


@pytest.mark.parametrize(
    "what",
    [
        lambda x: x.nonzero().shape[0],
        lambda x: x[x > 0].shape[0],
        lambda x: torch.unique(x).shape[0],
        lambda x: x.masked_select(x > 0).shape[0],
        lambda x: torch.unique_consecutive(x.flatten()).shape[0],
    ],
)
def test_sizes_from_data_are_bounded_by_symbols(what: Callable) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        n = what(x)
        if n > x.numel():  # proved: no branch, and no question at run time
            return x * 2
        return x + n

    run = compiled(fn)
    for shape in ((3, 4), (5, 2)):
        x = torch.randn(*shape)
        assert torch.equal(run(x), fn(x))
    assert pliant.stats()["captures"] == 1


KEYS = (lambda n: n, lambda n: (slice(None), n), lambda n: (..., n), lambda n: (None, n, slice(1, 3)), lambda n: (n, 1))


@pytest.mark.parametrize("key", KEYS)
def test_indexing_with_a_number_from_data(key: Callable) -> None:
    def fn(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        n = at.item()
        y[key(n)] = 0
        return y + x[key(n)].sum()

    run = compiled(fn)
    for n in (2, 0, 1, -1, -3):
        assert torch.equal(run(torch.arange(16.0).reshape(4, 4), torch.tensor(n)), fn(torch.arange(16.0).reshape(4, 4), torch.tensor(n)))
    assert pliant.stats()["captures"] == 1
    with pytest.raises(IndexError, match="out of bounds") as e:
        run(torch.arange(16.0).reshape(4, 4), torch.tensor(4))
    assert "is false at" in e.value.__notes__[0]


def test_a_number_is_within_its_type() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        n = x[0].item()
        if n > 127 or n < -128:  # proved: no branch
            return x - 1
        return x.float() + n

    run = compiled(fn)
    for n in (5, 0, 127, -128):
        x = torch.tensor([n, 1], dtype=torch.int8)
        assert torch.equal(run(x), fn(x))
    assert pliant.stats()["captures"] == 1


def test_what_is_unique_of_something_is_something() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        n = torch.unique(x).shape[0]
        if n == 0:  # proved: no branch, where x has elements
            return x
        return x / n

    run = compiled(fn)
    for k in (5, 3, 2):
        assert torch.equal(run(torch.arange(float(k))), fn(torch.arange(float(k))))
    assert pliant.stats()["captures"] == 1


def test_parameters_of_activations_that_only_the_run_knows() -> None:
    def fn(x: torch.Tensor, t: torch.Tensor) -> tuple:
        v = t.item()
        return torch.nn.functional.leaky_relu(x, v), torch.nn.functional.elu(x, v), torch.nn.functional.softplus(x, v)

    run = compiled(fn)
    for v in (0.5, 0.25, 2.0):
        x, t = torch.arange(-2.0, 3.0), torch.tensor(v)
        for got, want in zip(run(x, t), fn(x, t), strict=True):
            torch.testing.assert_close(got, want)
