"""Exported programs: one capture, every size; signatures, mutations, trees, errors. Each program is also saved, loaded and run again."""

from __future__ import annotations

import collections
import copy
import enum
import json
import random
import zipfile
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree

import pliant
from pliant.errors import ConstraintViolation, GraphBreakError, PliantError
from pliant.export.signature import SignatureError
from pliant.export.text import FormatError, Reader, program_text


def agree(got: Any, want: Any) -> None:
    a, spec = pytree.tree_flatten(got)
    b, wanted = pytree.tree_flatten(want)
    assert spec == wanted
    for x, y in zip(a, b, strict=True):
        assert type(x) is type(y) or isinstance(x, torch.Tensor)
        if isinstance(x, torch.Tensor):
            assert x.dtype == y.dtype and x.shape == y.shape
            torch.testing.assert_close(x, y.detach(), rtol=1e-4, atol=1e-5, equal_nan=True)
        elif isinstance(x, (bool, int, float, str, type(None))):
            assert x == y or x != x


def loaded(p: pliant.Program, tmp_path: Any) -> pliant.Program:
    path = tmp_path / "program.pliant"
    p.save(path)
    q = pliant.load(path)
    assert str(q) == str(p)
    return q


# -- functions, the exported call, and calls that the program must answer -----------------------------------------------------------------
def gelu_mlp(x: Any, w: Any) -> Any:
    return torch.nn.functional.gelu(x @ w).sum(-1)


def floor_view(x: Any) -> Any:
    return x.view(x.shape[0] // 4, 4, -1).mean(1)


def branch_on_size(x: Any) -> Any:
    return x * 2 if x.shape[0] > 3 else x - 1


def computed_expand(x: Any, y: Any) -> Any:
    return x.expand(y.shape[0] * 2 + 1, x.shape[1])


def in_place(x: Any) -> Any:
    y = x.clone()
    y[1:, 0] = 5.0
    y.t()[1].mul_(2)
    z = y.view(-1)
    z.add_(1)
    return y, z[::2]


def writes_input(x: Any, out: Any) -> Any:
    out.add_(x)
    return out * 2


def numbers(x: Any, n: int, s: float) -> Any:
    return x[:n] * s, n * 3, x.shape[0] + 1, s * 2


def nested(d: dict, pair: tuple) -> Any:
    return {"a": d["x"] + pair[0], "b": [pair[1][0] * 2, None, "text", 1.5]}


def picked(x: Any, mask: Any) -> Any:
    return x[mask].sum(0), x.nonzero(), torch.unique(x.round())


def ragged(values: Any, lengths: Any) -> Any:
    return [v.sum() for v in values.split(lengths)]


def keyword(x: Any, *rest: Any, scale: int = 2, **kw: Any) -> Any:
    return x * scale + sum(r.sum() for r in rest) + kw["bias"]


def same_size(x: Any, y: Any) -> Any:
    return x + y


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class Plain:
    total: Any
    name: str


def objects(x: Any) -> Any:
    return Pair(x + 1, Plain(x.sum(), "sum")), collections.OrderedDict(z=x * 2)


def sides_of_data(x: Any, y: Any) -> Any:
    if x.sum() > 0:
        y = y + 1
        if y.max() > 2:
            y = y * 3
    else:
        y = y - x.mean()
    if x.shape[0] == 4:
        y = y.relu()
    return y, x.shape[0]


def item_branch(x: Any) -> Any:
    return x * 2 if x.sum().item() > 0 else x - 1


def noisy_sides(x: Any) -> Any:
    y = torch.rand(3)
    return y + x.sum() if x.max() > 0 else y * torch.rand(3)


r = torch.randn
SIDES = [((r(n) + k, r(3) + j), {}) for n in (4, 2, 1) for k in (-3, 3) for j in (0, 4)]
CASES: dict[str, tuple[Any, tuple, dict, list[tuple[tuple, dict]]]] = {
    "mlp": (gelu_mlp, (r(3, 4), r(4, 5)), {}, [((r(n, 4), r(4, m)), {}) for n, m in ((1, 1), (0, 3), (7, 2))]),
    "size one": (gelu_mlp, (r(1, 4), r(4, 5)), {}, [((r(n, 4), r(4, 5)), {}) for n in (2, 7, 0)]),
    "floor view": (floor_view, (r(8, 3),), {}, [((r(n, 3),), {}) for n in (4, 12, 40)]),
    "branch": (branch_on_size, (r(5, 2),), {}, [((r(n, 2),), {}) for n in (4, 9)]),
    "expand": (computed_expand, (r(1, 4), r(3)), {}, [((r(1, m), r(n)), {}) for n, m in ((1, 2), (5, 1))]),
    "in place": (in_place, (r(4, 5),), {}, [((r(n, m),), {}) for n, m in ((2, 2), (7, 9), (3, 2))]),
    "written input": (writes_input, (r(3, 4), r(3, 4)), {}, [((r(n, 2), r(n, 2)), {}) for n in (1, 6)]),
    "numbers": (numbers, (r(5, 2), 3, 0.5), {}, [((r(7, 2), n, s), {}) for n, s in ((1, 2.0), (0, -1.0), (6, 0.25))]),
    "nested": (nested, ({"x": r(3)}, (r(3), [r(2)])), {}, [(({"x": r(n)}, (r(n), [r(n + 2)])), {}) for n in (1, 5)]),
    "data": (picked, (r(5, 3), torch.tensor([True, False, True, False, True])), {}, [((r(3, 2), torch.tensor([False] * 3)), {})]),
    "keyword": (keyword, (r(3), r(2)), {"scale": 3, "bias": r(1)}, [((r(4), r(9)), {"scale": 5, "bias": r(1)})]),
    "same size": (same_size, (r(3), r(3)), {}, [((r(n), r(n)), {}) for n in (1, 8)]),
    "sides": (sides_of_data, (r(5), r(3)), {}, SIDES),
    "item": (item_branch, (r(5),), {}, [((r(n) + k,), {}) for n in (1, 5) for k in (-3, 3)]),
    "objects": (objects, (r(3),), {}, [((r(n),), {}) for n in (1, 6)]),
}


@pytest.mark.parametrize("form", ["aten", "core"])
@pytest.mark.parametrize("name", CASES)
def test_every_size(name: str, form: str, tmp_path: Any) -> None:
    f, args, kwargs, calls = CASES[name]
    p = pliant.export(f, args, kwargs, form=form)
    for q in (p, loaded(p, tmp_path)):
        for given, named in [(args, kwargs), *calls]:
            mine, theirs = copy.deepcopy((given, named)), copy.deepcopy((given, named))
            agree(q(*mine[0], **mine[1]), f(*theirs[0], **theirs[1]))
            agree(mine, theirs)  # and what it wrote


def test_core_is_functional() -> None:
    p = pliant.export(in_place, (r(4, 5),))
    assert not [op for op in p.ops if op.target._schema.is_mutable]
    assert any(op.target._schema.is_mutable for op in pliant.export(in_place, (r(4, 5),), form="aten").ops)


# -- modules ------------------------------------------------------------------------------------------------------------------
class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.fc.weight
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return self.norm(self.tied(self.fc(x)))


@pytest.mark.parametrize("training", [False, True])
def test_module_state(training: bool, tmp_path: Any) -> None:
    m = Counted().train(training)
    p = pliant.export(m, (r(3, 4),))
    assert [i.name for i in p.inputs if i.kind == "parameter"].count("fc.weight") == 1
    assert "tied.weight" not in p.state
    q = loaded(p, tmp_path)
    theirs = copy.deepcopy(m)
    for n in (2, 5, 3):
        x = r(n, 4)
        agree(q(x), theirs(x))
    assert int(q.state["calls"]) == 3 == int(theirs.calls)
    torch.testing.assert_close(q.state["norm.running_mean"] if training else theirs.norm.running_mean, theirs.norm.running_mean)
    assert int(m.calls) == 0, "loading shares nothing with the module"


class Jagged:
    """An object that nobody has registered: its tensors are inputs by name."""

    def __init__(self, values: Any, lengths: Any, keys: tuple) -> None:
        self._values = values
        self._lengths = lengths
        self._keys = keys


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(50, 8, mode="sum", include_last_offset=True)

    def forward(self, id_list_features: Jagged) -> Any:
        offsets = torch.nn.functional.pad(id_list_features._lengths.cumsum(0), (1, 0))
        return self.table(id_list_features._values, offsets).view(len(id_list_features._keys), -1, 8)


def jagged(n: int) -> Jagged:
    lengths = torch.randint(0, 4, (2 * n,))
    return Jagged(torch.randint(0, 50, (int(lengths.sum()),)), lengths, ("a", "b"))


def test_object_inputs_by_name(tmp_path: Any) -> None:
    m = Pooled()
    p = pliant.export(m, (jagged(3),))
    assert {i.name for i in p.user_inputs} == {"id_list_features._values", "id_list_features._lengths"}
    q = loaded(p, tmp_path)
    for n in (1, 5):
        x = jagged(n)
        agree(q(x), m(x))
        flat = q.run({"id_list_features._values": x._values, "id_list_features._lengths": x._lengths})
        agree(flat["output"], m(x))
    with pytest.raises(SignatureError, match="_keys"):
        q(Jagged(x._values, x._lengths, ("a", "b", "c")))


class Cache:
    def __init__(self) -> None:
        self.layers = [r(2, 3), r(2, 3)]


def with_cache(x: Any, cache: Cache) -> Any:
    out = x
    for i, kept in enumerate(cache.layers):
        cache.layers[i] = torch.cat([kept, x], 1)
        out = out + cache.layers[i].sum(1, keepdim=True)
    return out, cache


def test_objects_that_are_written(tmp_path: Any) -> None:
    p = pliant.export(with_cache, (r(2, 1), Cache()))
    assert {o.name for o in p.outputs if o.kind == "mutation"} == {"cache.layers.0.out", "cache.layers.1.out"}
    for q in (p, loaded(p, tmp_path)):
        mine = Cache()
        theirs = copy.deepcopy(mine)
        for _ in range(3):
            x = r(2, 1)
            got, kept = q(x, mine)
            want, _ = with_cache(x, theirs)
            agree(got, want)
            assert kept is mine
            agree(mine.layers, theirs.layers)


# -- what is refused, and the words for it ------------------------------------------------------------------------------------------
def test_wrong_calls_are_one_sentence() -> None:
    p = pliant.export(numbers, (r(5, 2), 3, 0.5), dynamic={"x": {0: pliant.Dim("rows", max=64)}})
    p2 = pliant.export(floor_view, (r(8, 3),))
    for call, words in (
        (lambda: p(r(5), 3, 0.5), r"x must be a tensor float32\[rows, .*\], but a tensor float32\[5\] came"),
        (lambda: p(r(5, 2).double(), 3, 0.5), "float64"),
        (lambda: p(r(5, 2), "3", 0.5), "n must be a Python int"),
        (lambda: p(r(5, 2), 3), "s of numbers is missing"),
        (lambda: p(r(65, 2), 3, 0.5), "rows"),
        (lambda: p(r(5, 2), 3, 0.5, q=1), "q"),
        (lambda: p.run({"x": r(5, 2)}), "n of numbers is missing"),
        (lambda: p2(r(7, 3)), r"floor_view needs .*test_program.py:\d+ in floor_view, but x.size\(0\) = 7"),
    ):
        with pytest.raises(SignatureError, match=words):
            call()


def test_declared_ranges_are_checked_by_loaded_programs(tmp_path: Any) -> None:
    p = pliant.export(lambda x, n: x * n, (r(5), 3), dynamic={"x": {0: pliant.Dim("rows", min=2, max=64)}})
    p.save(tmp_path / "m.pliant")
    q = pliant.load(tmp_path / "m.pliant")
    assert str(q) == str(p)
    lines = [line for line in str(p).splitlines() if not line.startswith("require")]  # a file that does not ask for what it declares
    bare = Reader.whole("\n".join(lines))
    assert {r.expr.python() for r in bare.relations} == {r.expr.python() for r in p.relations}
    for program in (p, q):
        assert program(r(64), 2).shape == (64,)
        for n in (1, 65):
            with pytest.raises(SignatureError, match="rows"):
                program(r(n), 2)


def test_what_the_example_knew_is_no_part_of_the_text(tmp_path: Any) -> None:
    def f(x: Any) -> Any:
        n = x.shape[1]
        pad = (-n) % 4
        return torch.nn.functional.pad(x, (0, 0, 0, pad)).view(x.shape[0], -1, 4, x.shape[2]).sum(2)[:, :n] + 1

    p = pliant.export(f, (r(2, 7, 3),))
    p.save(tmp_path / "m.pliant")
    q = pliant.load(tmp_path / "m.pliant")
    assert str(q) == str(p)
    for n in (1, 4, 9, 16):
        x = r(3, n, 2)
        torch.testing.assert_close(p(x), f(x))
        torch.testing.assert_close(q(x), f(x))


def prints(x: Any) -> Any:
    y = x + 1
    pliant.graph_break()
    z = y * 2
    pliant.graph_break()
    return z


def test_all_breaks_are_listed() -> None:
    with pytest.raises(GraphBreakError, match="2 graph breaks") as e:
        pliant.export(prints, (r(3),))
    assert str(e.value).count("where:") == 2


class Stateful(nn.Module):
    step = 0

    def forward(self, x: Any) -> Any:
        self.step = self.step + 1
        return x * self.step


STORE: list[Any] = []


def stores(x: Any) -> Any:
    STORE.append(x)
    return x


def test_effects_that_a_program_cannot_have() -> None:
    with pytest.raises(PliantError, match="step"):
        pliant.export(Stateful(), (r(3),))
    with pytest.raises(PliantError, match="STORE|list"):
        pliant.export(stores, (r(3),))


def test_declared_dims_hold() -> None:
    with pytest.raises(ConstraintViolation):
        pliant.export(lambda x: x.view(4, -1) if x.shape[0] == 8 else x.view(3, 1), (r(8),), dynamic={"x": {0: pliant.Dim("n")}})
    with pytest.raises(ValueError, match="declares 'y'"):
        pliant.export(floor_view, (r(8, 3),), dynamic={"y": {0: True}})
    with pytest.raises(PliantError, match="form"):
        pliant.export(floor_view, (r(8, 3),), form="mlir")


def test_the_users_own_errors_come_through() -> None:
    with pytest.raises(RuntimeError, match="size|shape"):
        pliant.export(lambda x: x.view(5, 7), (r(3),))


class Force(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(r(3))

    def forward(self, x: Any) -> Any:
        return torch.autograd.grad(((self.w * x) ** 3).sum(), self.w)[0]


def root(x: Any) -> Any:
    if x.min() < 0:
        raise ValueError("negative")
    return x.sqrt()


def test_a_side_that_raises() -> None:
    p = pliant.export(root, (r(3).abs(),))
    x = r(5).abs()
    agree(p(x), root(x))
    with pytest.raises(ValueError, match="negative"):
        p(-x)


def test_random_numbers_of_a_side_not_taken_are_put_back() -> None:
    p = pliant.export(noisy_sides, (r(4),))
    assert len(p.variants) == 1
    for x in (r(4).abs() + 1, -r(4).abs() - 1):
        torch.manual_seed(3)
        got = p(x)
        torch.manual_seed(3)
        agree(got, noisy_sides(x))


def test_loops_on_data_are_not_unrolled_for_ever() -> None:
    def halved(x: Any) -> Any:
        kept = []
        while x.sum() > 1:
            x = x / 2
            kept.append(x)
        return kept

    with pytest.raises(PliantError):
        pliant.export(halved, (r(3).abs() * 9,))


def test_gradients_inside() -> None:
    m = Force()
    p = pliant.export(m, (r(4, 3),))
    for n in (1, 6):
        x = r(n, 3)
        agree(p(x), m(x))


def test_strides_of_a_call_do_not_matter() -> None:
    p = pliant.export(floor_view, (r(8, 3),))
    x = r(3, 12).t()
    agree(p(x), floor_view(x.contiguous()))
    y = r(30, 3)[6:30:2]
    agree(p(y), floor_view(y.contiguous()))


def test_one_tensor_in_two_places_of_the_example():
    """It says nothing of other calls: the program has an input for each place."""

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))

        def forward(self, x):
            return x - self.weight

    x, y = torch.randn(3, 4), torch.randn(3, 4)
    torch.testing.assert_close(pliant.export(lambda x, y: x - y, (x, x))(x, y), x - y)
    torch.testing.assert_close(pliant.export(lambda x, z: x - z["y"][0], (x, {"y": [x]}))(x, {"y": [y]}), x - y)
    module = Scaled()
    program = pliant.export(module, (module.weight,))
    torch.testing.assert_close(program(y[0]), y[0] - module.weight)


def breaks_in_loops(x, scales):
    for s in scales.values():
        for r in reversed([1, 2]):
            pliant.graph_break()
            x = x * s + r
    return x


def test_what_follows_from_a_break_is_no_break_of_its_own():
    """Behind a break in a loop, what the loop walks is not there any more."""
    with pytest.raises(GraphBreakError, match="1 graph break, ") as e:
        pliant.export(breaks_in_loops, (torch.ones(2), {"a": 1.0, "b": 2.0}))
    assert str(e.value).count("where:") == 1 and "iterat" not in str(e.value)


def numbers_of_sides(x):
    return x + 1, {"long": x.shape[0] > 3, "n": 1 if x.shape[0] > 3 else 2, "up": True if x.sum() > 0 else False}


def test_sides_that_give_different_constants():
    p = pliant.export(numbers_of_sides, (torch.ones(5),))
    for x in (torch.ones(5), -torch.ones(2), -torch.ones(6), torch.ones(3)):
        agree(p(x), numbers_of_sides(x))
        assert p.run({"x": x})["1.n"] == numbers_of_sides(x)[1]["n"]


def refuses(x, n):
    if x.sum() > 100:
        raise ValueError("too much: # 100")
    if (x < 0).any():
        if not x.sum() > 0:  # pytest rewrites `assert`
            raise AssertionError("below")
        return x * n
    if x.mean() < 50:
        return x + n
    raise Mine("high")


class Mine(KeyError):
    pass


def test_a_side_that_only_raises_raises_the_program_s_own_exception(tmp_path):
    p = pliant.export(refuses, (torch.ones(3), 2))
    p.save(tmp_path / "p.pliant")
    calls = [torch.ones(3) * 40, torch.tensor([-3.0, 1.0]), torch.tensor([60.0]), torch.tensor([-1.0, 4.0]), torch.ones(5)]
    for q in (p, pliant.load(tmp_path / "p.pliant")):
        for x in calls:
            try:
                want = refuses(x, 2)
            except Exception as e:
                nearest = KeyError if isinstance(e, Mine) else type(e)  # a class of the user's is the one of Python's that it is made from
                with pytest.raises(nearest) as found:
                    q(x, 2)
                assert type(found.value) is nearest and (nearest is not type(e) or found.value.args == e.args)
            else:
                torch.testing.assert_close(q(x, 2), want)


def test_a_file_names_no_other_exceptions():
    p = pliant.export(refuses, (torch.ones(3), 2))
    words = program_text(p)
    assert "raises ValueError" in words
    for other in ("SystemExit", "KeyboardInterrupt", "print", "os.PathLike", "UnicodeDecodeError"):
        with pytest.raises(FormatError):
            Reader.whole(words.replace("raises ValueError", f"raises {other}"))


class LayerDrop(torch.nn.Module):
    def forward(self, x):
        for _ in range(2):
            p, q = np.random.uniform(0, 1), random.random()
            if self.training and p + q < 0.5:
                continue
            x = x * 2
        return x


def test_draws_that_nobody_reads_are_notes(tmp_path):
    program = pliant.export(LayerDrop().eval(), (torch.ones(3),))
    assert "draws 4 numbers" in program.notes[0]
    program.save(tmp_path / "m.pliant")
    for p in (program, pliant.load(tmp_path / "m.pliant")):
        torch.testing.assert_close(p(torch.ones(5)), torch.full((5,), 4.0))


def held_by_others():
    x = torch.randn(4, 3)
    yield "wrapper", TwoTensor(x, x.clone())
    yield "fake", FakeTensorMode().from_tensor(x)
    yield "functional", torch._to_functional_tensor(x)
    yield "zeros", torch._efficientzerotensor(4, 3)


@pytest.mark.parametrize("kind, x", held_by_others())
def test_tensors_whose_elements_are_elsewhere_are_refused(kind, x):
    """Machine code would look for them where there are none: it ended the process."""
    p = pliant.export(torch.nn.Linear(3, 2), (torch.randn(3, 3),))
    with pytest.raises(ValueError, match="in memory"):
        p(x)


def test_programs_under_function_transforms_are_refused():
    p = pliant.export(torch.nn.Linear(3, 2), (torch.randn(3, 3),))
    for call in (torch.vmap(lambda v: p(v[None])), torch.func.grad(lambda v: p(v).sum())):
        with pytest.raises(ValueError, match="in memory"):
            call(torch.randn(4, 3))


@pytest.mark.parametrize("f", [
    lambda x: x == x.conj(), lambda x: x @ x.mH, lambda x: x.conj().imag * 2, lambda x: torch._neg_view(x) * 2, lambda x: x.imag + 1,
    lambda x: x.mul(1j) + complex(-0.0, 2), lambda x: torch.full_like(x, complex("nan")).real.isnan(),
])  # fmt: skip
def test_conjugates_and_complex_numbers_in_files(tmp_path, f):
    """A tensor that is the conjugate of its memory is so when it is read back, whichever way the arguments lie."""

    class M(torch.nn.Module):
        def forward(self, x):
            return f(x)

    z = torch.randn(4, 2, dtype=torch.complex64)
    for example in (z, z.conj()):
        pliant.export(M(), (example,)).save(tmp_path / "p.pliant")
        p = pliant.load(tmp_path / "p.pliant")
        for given in (z, z.conj(), z.t().contiguous().t().conj()):
            assert torch.allclose(p(given), f(given))


def test_a_text_that_forgets_a_conjugate_is_refused():
    class M(torch.nn.Module):
        def forward(self, x):
            return x.conj() * 2

    text = str(pliant.export(M(), (torch.randn(4, 2, dtype=torch.complex64),)))
    assert " conj = aten._conj" in text
    with pytest.raises(FormatError, match="conjugated"):
        Reader().program(text.replace(" conj = ", " = "))


class Mode(enum.Enum):
    TWICE = 2
    THRICE = 3


class Scaled:
    factor = 2


class Shifted:
    factor = 3


@dataclass
class Chosen:
    how: Any


def by_mode(x: torch.Tensor, c: Chosen) -> Any:
    return x * (2 if c.how is Mode.TWICE else 3)


def by_class(x: torch.Tensor, c: Chosen) -> Any:
    return x * c.how.factor


def by_function(x: torch.Tensor, c: Chosen) -> Any:
    return c.how(x)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def by_dtype(x: torch.Tensor, c: Chosen) -> Any:
    return x.to(c.how)


@pytest.mark.parametrize(
    ("fn", "given", "other"),
    [
        (by_mode, Mode.TWICE, Mode.THRICE), (by_class, Scaled, Shifted), (by_function, torch.neg, torch.abs),
        (by_function, doubled, torch.neg), (by_dtype, torch.float64, torch.float16),
    ],
)  # fmt: skip
def test_what_the_program_was_decided_by_is_checked(fn, given, other, tmp_path) -> None:
    p = pliant.export(fn, (torch.ones(3), Chosen(given)))
    for q in (p, loaded(p, tmp_path)):
        x = torch.tensor([1.0, -2.0])
        agree(q(x, Chosen(given)), fn(x, Chosen(given)))
        with pytest.raises(SignatureError, match="c.how must be"):
            q(x, Chosen(other))


class Filled:
    """An object that nobody has registered, whose attributes an exported function writes."""

    def __init__(self) -> None:
        self.keys, self.full, self.rounds = torch.zeros(1, 2), False, 0


def test_constants_that_are_put_into_arguments(tmp_path) -> None:
    def f(x: torch.Tensor, c: Filled, d: dict) -> torch.Tensor:
        d["first"] = "x"
        c.keys = torch.cat([c.keys, x])
        c.full = True
        d["sum"], d["last"] = x.sum(), None
        return c.keys.sum()

    p = pliant.export(f, (torch.ones(2, 2), Filled(), {"n": 1}))
    assert "it writes c.full = True" in p.notes
    for q in (p, loaded(p, tmp_path)):
        c, d, want, told = Filled(), {"n": 1}, Filled(), {"n": 1}
        for n in (2, 3):
            x = torch.randn(n, 2)
            agree(q(x, c, d), f(x, want, told))
            agree([*vars(c).items(), *d.items()], [*vars(want).items(), *told.items()])


def test_constants_of_the_side_taken() -> None:
    def f(x: torch.Tensor, d: dict) -> torch.Tensor:
        if x.sum() > 0:
            d["side"] = "more"
            return x + 1
        d["side"] = "less"
        return x - 1

    p = pliant.export(f, (torch.ones(3), {"side": ""}))
    for x in (torch.ones(4), -torch.ones(2)):
        d, want = {"side": ""}, {"side": ""}
        agree(p(x, d), f(x, want))
        assert d == want


def test_one_object_for_two_is_refused_where_the_program_asks(tmp_path) -> None:
    p = pliant.export(lambda x, y: x + 1 if x is y else x - y, (torch.ones(3), torch.ones(3)))
    for q in (p, loaded(p, tmp_path)):
        agree(q(torch.ones(2), torch.ones(2)), torch.zeros(2))
        with pytest.raises(SignatureError, match="x must be another object than y"):
            q(x := torch.ones(3), x)


def test_memory_of_two_that_is_written_is_refused() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2

    for form in ("aten", "core"):
        p = pliant.export(f, (torch.ones(3), torch.ones(3)), form=form)
        m, n = torch.arange(12.0).reshape(6, 2), torch.arange(12.0).reshape(6, 2)
        agree(p(m[:, 0], m[:, 1]), f(n[:, 0], n[:, 1]))  # between each other, and apart
        assert torch.equal(m, n)
        for y in (m[:, 0], m[1:, 0], m.reshape(-1)[:4]):
            with pytest.raises(SignatureError, match="share memory, and the program writes x"):
                p(m[: len(y), 0], y)
        assert torch.equal(m, n)


def test_memory_of_a_buffer_that_is_written() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.add_(1)
            return x * 2

    m = Counts()
    p = pliant.export(m, (torch.ones(3),))
    agree(p(torch.ones(3)), torch.full((3,), 2.0))
    with pytest.raises(SignatureError, match="share memory"):
        p(p.state["seen"])


def test_a_file_leads_to_nothing_outside_of_its_arguments(tmp_path) -> None:
    def f(x: torch.Tensor, c: Filled) -> torch.Tensor:
        c.full = True
        return x + 1

    path = tmp_path / "program.pliant"
    pliant.export(f, (torch.ones(2), Filled())).save(path)
    changed = tmp_path / "changed.pliant"
    with zipfile.ZipFile(path) as given, zipfile.ZipFile(changed, "w") as made:
        for name in given.namelist():
            data = given.read(name)
            if name == "signature.json":
                signature = json.loads(data)
                signature["puts"][0][0] = ["c", ["attr", "__init__"], ["attr", "__globals__"], ["key", "pliant"]]
                data = json.dumps(signature).encode()
            made.writestr(name, data)
    with pytest.raises(FormatError, match="__init__"):
        pliant.load(changed)
