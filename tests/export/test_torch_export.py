"""`to_torch_export`: what torch.export gets wrong, and every way that its programs go."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from pliant import Dim
from pliant.errors import PliantError
from pliant.export import export
from pliant.export.torch_export import to_torch_export

pytestmark = pytest.mark.filterwarnings("ignore")
batch = Dim("batch", min=1)


def saved(ep: Any) -> Any:
    file = io.BytesIO()
    torch.export.save(ep, file)
    file.seek(0)
    return torch.export.load(file)


WAYS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda ep: ep.module(),
    "saved": lambda ep: saved(ep).module(),
    "decomposed": lambda ep: ep.run_decompositions().module(),
    "saved after": lambda ep: saved(ep.run_decompositions()).module(),
}


def close(got: Any, want: Any) -> None:
    a, b = pytree.tree_leaves(got), pytree.tree_leaves(want)
    assert len(a) == len(b)
    for x, y in zip(a, b):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


def same_everywhere(f: Callable, args: tuple, others: list[tuple], dynamic: Any = None) -> None:
    """Exported once, run in every way at every size, beside eager; what is written is written."""
    ep = to_torch_export(export(f, args, dynamic=dynamic))
    for way, make in WAYS.items():
        module = make(ep)
        for other in (args, *others):
            mine, theirs = copy.deepcopy(other), copy.deepcopy(other)
            try:
                close((module(*mine), mine), (f(*theirs), theirs))
            except Exception as e:
                raise AssertionError(f"{way}, at {[getattr(x, 'shape', x) for x in other]}: {e}") from e


r = torch.randn


def positive_sum(x):
    n = x.sum().item()
    torch._check(n > 0)
    return x * n


def written(x, y):
    x[1:].add_(1)
    return x * y


CASES: dict[str, tuple[Callable, tuple, list[tuple], Any]] = {
    "an example of size 1": (lambda x: x * 2 + x.sum(0), (r(1, 3),), [(r(5, 3),), (r(2, 3),)], {"x": {0: batch}}),
    "two equal sizes": (
        lambda x, y: (x + 1, y.sum()),
        (r(3, 4), r(3, 4)),
        [(r(5, 4), r(2, 4)), (r(2, 4), r(9, 4))],
        {"x": {0: Dim("a")}, "y": {0: Dim("b")}},
    ),
    "a branch on a size": (
        lambda x: x * 2 if x.shape[0] > 3 else x + 1, (r(7, 2),), [(r(4, 2),), (r(50, 2),)], {"x": {0: Dim("n", min=4)}},
    ),
    "a branch on a number of the data": (positive_sum, (r(3).abs(),), [(r(8).abs() + 1,)], {"x": {0: batch}}),
    "ints": (lambda x, n: x[:n] * n, (r(5, 2), 3), [(r(9, 2), 7), (r(4, 2), 2)], {"x": {0: batch}, "n": Dim("n")}),
    "a quarter of a size": (
        lambda x: x.view(x.shape[0] // 4, 4, -1).sum(1),
        (r(8, 3),),
        [(r(16, 3),), (r(12, 3),)],
        {"x": {0: Dim("b", multiple_of=4, min=4)}},
    ),
    "sizes of data": (lambda x: (x[x > 0].cumsum(0), (x > 0).nonzero()), (r(9),), [(r(2),), (r(40),)], None),
    "unique": (
        lambda x: torch.unique(x, return_inverse=True, return_counts=True),
        (torch.arange(9) % 4,),
        [(torch.arange(30) % 7,), (torch.zeros(2).long(),)],
        None,
    ),
    "inputs that are written": (written, (r(3), r(3)), [(r(5), r(5))], None),
    "sizes given back": (lambda x: (x.shape[0] * 2 + 1, x, {"a": x.shape[0] // 2, "b": (None, 3, True)}), (r(3),), [(r(8),)], None),
    "nests": (lambda x, m: [m["a"][0] + x, m["b"]], (r(3), {"a": [r(3)], "b": r(2)}), [(r(7), {"a": [r(7)], "b": r(4)})], None),
    "a derived size": (
        lambda x, y: x + y[1::2],
        (r(4), r(9)),
        [(r(7), r(15))],
        {"x": {0: (n := Dim("n", min=1))}, "y": {0: 2 * n + 1}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_torch_export_gets_wrong(name):
    f, args, others, dynamic = CASES[name]
    names = f.__code__.co_varnames[: f.__code__.co_argcount]
    assert dynamic is None or set(dynamic) <= set(names)
    same_everywhere(f, args, others, dynamic)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.out = torch.nn.Linear(8, 4)
        self.register_buffer("calls", torch.zeros(4))
        self.scale = torch.tensor(3.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(x.mean((0, 1))[:4])
        return self.out(self.attention(x, x, x, need_weights=False)[0]) * self.scale


def test_a_model_with_parameters_buffers_and_constants():
    model = Model().eval()
    ep = to_torch_export(export(model, (r(2, 3, 8),), dynamic={"x": {1: Dim("seq", min=2)}}))
    signature = ep.graph_signature
    assert set(signature.parameters) == {n for n, _ in model.named_parameters()}
    assert list(signature.buffers) == ["calls"] and set(signature.buffers_to_mutate.values()) == {"calls"}
    assert len(signature.lifted_tensor_constants) == 1 and set(ep.state_dict) == set(model.state_dict())
    for way, make in WAYS.items():
        module, eager = make(copy.deepcopy(ep)), copy.deepcopy(model)
        for seq in (2, 7, 33):
            x = r(2, seq, 8)
            with torch.no_grad():
                torch.testing.assert_close(module(x), eager(x), rtol=1e-4, atol=1e-5, msg=lambda m: f"{way}, {seq}: {m}")  # noqa: B023
        assert torch.allclose(module.calls, eager.calls, atol=1e-5), way


# -- branches ---------------------------------------------------------------------------------------------------------------------
def by_size(x):
    return x * 2 if x.shape[0] > 3 else x + 1


def by_data(x):
    if x.sum() > 0:
        return x * 2, x.sum()
    return x - 1, x.max()


def to_sizes_of_data(x):
    n = (x > 0).sum().item()
    if n > 2:
        return x.nonzero(), n
    return x.nonzero() + 1, 0


def by_parity(x):
    if x.shape[0] % 2 == 0:
        return x.view(-1, 2, x.shape[1]).sum(1), x
    return x[1:], x


def by_both(x, y):
    if x.shape[0] == y.shape[0]:
        if x.sum() > 0:
            return x + y, x.shape[0]
        return x - y, x.shape[0]
    return x.sum() + y, 3


BRANCHES: dict[str, tuple[Callable, tuple, list[tuple], int, tuple[str, ...]]] = {
    "a size": (by_size, (r(7, 2),), [(r(2, 2),), (r(1, 3),), (r(50, 2),)], 2, tuple(WAYS)),
    "data": (by_data, (r(5).abs(),), [(-r(4).abs(),), (r(9).abs(),)], 2, tuple(WAYS)),
    "sizes of data": (to_sizes_of_data, (r(9).abs(),), [(-r(2).abs(),), (r(40),)], 2, tuple(WAYS)),
    "sizes that other sides cannot have": (by_parity, (r(6, 3),), [(r(7, 3),), (r(1, 2),), (r(2, 2),)], 2, ("as it is", "saved")),
    "one in the other": (
        by_both, (r(5).abs(), r(5)), [(r(3), r(4)), (-r(6).abs(), r(6)), (r(2).abs(), r(2))], 3, ("as it is", "saved"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BRANCHES)
def test_branches_have_all_their_sides(name):
    f, args, others, sides, ways = BRANCHES[name]
    p = export(f, args)
    assert 1 + len(p.variants) == sides
    ep = to_torch_export(p)
    for way in ways:
        module = WAYS[way](ep)
        for other in (args, *others):
            close(module(*other), f(*other))


class TwoHeads(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x.sum(0))
        return self.one(x) if x.mean() > 0 else self.two(x).relu()


def test_a_model_with_branches():
    model = TwoHeads().eval()
    ep = to_torch_export(export(model, (r(3, 4).abs(),)))
    assert set(ep.graph_signature.parameters) == {n for n, _ in model.named_parameters()}
    for way, make in WAYS.items():
        module, eager = make(copy.deepcopy(ep)), copy.deepcopy(model)
        for x in (r(3, 4).abs(), -r(5, 4).abs(), r(1, 4).abs()):
            with torch.no_grad():
                torch.testing.assert_close(module(x), eager(x), msg=lambda m: f"{way}: {m}")  # noqa: B023
        assert torch.allclose(module.seen, eager.seen, atol=1e-5), way


def test_branches_that_the_format_cannot_say():
    def drawn(x):
        return x + 1 if torch.rand(()) > 0.5 else x - 1

    def of_other_kinds(x):
        return x * 2 if x.shape[0] > 3 else x.sum()

    with pytest.raises(PliantError, match="branches on random numbers"):
        to_torch_export(export(drawn, (r(3),)))
    with pytest.raises(PliantError, match=r"the sides of a branch give torch\.float32 with 1 dims"):
        to_torch_export(export(of_other_kinds, (r(7),)))


def test_no_side_for_these_sizes():
    def f(x):
        if x.shape[0] > 6:
            return x * 2
        if x.shape[0] > 3:
            return x + 1
        raise ValueError("too short")

    p = export(f, (r(9),))
    ep = to_torch_export(p)
    for way, make in WAYS.items():
        module = make(ep)
        for n in (5, 8):
            x = r(n)
            close(module(x), f(x))
        with pytest.raises((RuntimeError, AssertionError)):
            print(way, module(r(2)))


@pytest.mark.parametrize("data, wrong", [(lambda x: x.sum(), -1.0), (lambda x: x.sum() > 0, -1.0), (lambda x: x.sum().long(), -1.0)])
def test_what_data_must_be_is_asserted(data, wrong):
    def f(x):
        n = data(x).item()
        torch._check(n > 0)
        return x * n

    ep = to_torch_export(export(f, (torch.ones(3),)))
    for way, make in WAYS.items():
        module = make(ep)
        close(module(torch.ones(5)), f(torch.ones(5)))
        with pytest.raises(RuntimeError):
            f(torch.full((4,), wrong))
        with pytest.raises((RuntimeError, AssertionError)):
            print(way, module(torch.full((4,), wrong)))


def test_ranges_and_names():
    ep = to_torch_export(export(lambda x: x.view(x.shape[0] * 2, -1), (r(4, 6),), dynamic={"x": {0: Dim("rows", min=2, max=99)}}))
    assert any((int(v.lower), int(v.upper)) == (2, 99) for v in ep.range_constraints.values())
    assert any(n.name == "rows" for n in ep.graph.nodes)
    with pytest.raises(Exception, match="99"):
        ep.module()(r(100, 6))


def test_relations_are_asserted():
    ep = to_torch_export(export(lambda x, y: x.reshape(3, -1) + y, (r(9), r(3)), dynamic={"x": {0: Dim("n", min=9, max=9)}}))

    def thirds(x):
        if x.shape[0] % 3 != 0:
            raise ValueError("not by threes")
        return x.sum()

    ep2 = to_torch_export(export(thirds, (r(9),)))
    assert ep.module()(r(9), r(3)).shape == (3, 3)
    ep2.module()(r(12))
    with pytest.raises(RuntimeError, match=r"% 3 == 0 must hold, needed at .*test_torch_export\.py"):
        ep2.module()(r(10))
    with pytest.raises(RuntimeError, match=r"% 3 == 0 must hold"):
        saved(ep2).module()(r(10))


def test_sizes_that_are_tied_are_checked():
    ep = to_torch_export(export(lambda x, y: x @ y, (r(3, 4), r(4, 5))))
    assert ep.module()(r(7, 2), r(2, 9)).shape == (7, 9)
    with pytest.raises(AssertionError, match="Guard failed"):
        ep.module()(r(7, 2), r(3, 9))


@dataclass
class Jagged:
    values: torch.Tensor
    lengths: torch.Tensor


def test_tensors_in_objects_are_one_dict():
    def f(j):
        rows = torch.repeat_interleave(torch.arange(j.lengths.shape[0]), j.lengths)
        return torch.zeros(j.lengths.shape[0], j.values.shape[1]).index_add(0, rows, j.values)

    p = export(f, (Jagged(r(6, 2), torch.tensor([2, 1, 3])),))
    ep = to_torch_export(p)
    for way, make in WAYS.items():
        for lengths in ([4, 1], [1, 2, 0, 3]):
            j = Jagged(r(sum(lengths), 2), torch.tensor(lengths))
            given = {i.name: getattr(j, i.name.removeprefix("j.")) for i in p.user_inputs}
            assert torch.allclose(make(ep)(given), f(j), atol=1e-6), way


def test_by_keyword():
    def f(x, y):
        return x - y

    ep = to_torch_export(export(f, (), {"x": r(3), "y": r(3)}), keywords=True)
    x, y = r(5), r(5)
    assert torch.equal(ep.module()(x=x, y=y), x - y)


def test_other_forms_are_refused():
    with pytest.raises(PliantError, match='form="core"'):
        to_torch_export(export(lambda x: x + 1, (r(3),), form="torch"))


def test_it_goes_on_to_onnx(tmp_path):
    pytest.importorskip("onnxscript")
    ort = pytest.importorskip("onnxruntime")
    ep = to_torch_export(export(lambda x: torch.nn.functional.gelu(x).softmax(-1), (r(3, 4),), dynamic={"x": {0: batch}}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(ep, (), tmp_path / "m.onnx", dynamo=True, verbose=False)
    session = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    for n in (1, 2, 33):
        x = r(n, 4)
        got = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
        close(torch.tensor(got), torch.nn.functional.gelu(x).softmax(-1))


@pytest.mark.timeout(280)
def test_it_compiles_ahead_of_time(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).eval()
    with torch.no_grad():
        ep = to_torch_export(export(model, (r(1, 8),), dynamic={"input": {0: batch}}))
        path = torch._inductor.aoti_compile_and_package(ep, package_path=str(tmp_path / "m.pt2"))
        compiled = torch._inductor.aoti_load_package(path)
        for n in (1, 2, 7, 33):
            x = r(n, 8)
            close(compiled(x), model(x))


def chunks(x):
    """A side for each number of chunks: what one knows of its sizes is not so in the test for it, nor at those of the example."""
    outs = []
    for i in range(0, x.shape[1], 8):
        c = x[:, i : min(i + 8, x.shape[1])]
        outs.append(c.softmax(1) if c.shape[1] > 1 else c * 2)
    return torch.cat(outs, 1)


def test_a_side_that_pins_a_size():
    module = export(chunks, (torch.randn(2, 7),)).to_torch_export().module()
    for n in (7, 12, 5, 9, 17, 16):
        x = torch.randn(2, n)
        torch.testing.assert_close(module(x), chunks(x))


def without_a_week(x):
    return x[:, 7:].sum(1) + x[:, :7].sum(1)


def test_what_a_size_of_the_example_happens_to_give_is_no_guard():
    program = export(without_a_week, (torch.randn(2, 7),))
    module = program.to_torch_export().module()
    for n in (7, 12, 3):
        x = torch.randn(2, n)
        torch.testing.assert_close(module(x), without_a_week(x))


@pytest.mark.parametrize("branches", [False, True])
def test_an_argument_that_is_given_back_unread_is_left_to_the_caller(branches):
    def f(x, items):
        y = x * 2 if branches and x.shape[0] > 3 else x + 1
        return {"given": items, "made": y}

    p = export(f, (r(2, 3), [r(2), r(1)]))
    module = to_torch_export(p).module()
    for n in (2, 5):
        x = r(n, 3)
        (got,) = pytree.tree_leaves(module(x))
        torch.testing.assert_close(got, f(x, [])["made"])


def test_numbers_out_of_range_and_the_program_s_own_words():
    def f(x, n):
        if n < -5:
            raise KeyError("small")
        if x.sum() > 100:
            raise ValueError("too much")
        return x * n

    module = to_torch_export(export(f, (torch.ones(3), 2))).module()
    close(module(torch.ones(4), -5), f(torch.ones(4), -5))
    with pytest.raises(RuntimeError, match=r"-5"):
        module(torch.ones(3), -6)
    with pytest.raises(RuntimeError, match="ValueError: too much"):
        module(torch.ones(3) * 99, 1)
