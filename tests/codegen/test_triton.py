"""Kernels printed as Triton: their text, and what is asked of them, where no Triton is needed."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
import torch

from pliant.codegen import target
from pliant.codegen.triton.backend import TritonTarget, few_and_long, known
from pliant.codegen.triton.printer import module_text
from pliant.codegen.triton.scalars import printable
from pliant.codegen.triton.schedule import schedule
from pliant.lower.loop_nest import LoopNest
from pliant.lower.loops import DTYPES, SCALARS, Buffer, Kernel, Node, Store
from tests.codegen.random_kernels import RandomKernel

ROWS = ("n", 1)


def load(buffer: int, dtype: str = "f32", strides: tuple = ROWS) -> Node:
    return Node("load", (), dtype, (buffer, strides, 0, ()))


def softmax() -> Kernel:
    x = load(0)
    top = Node("reduce", (x,), "f32", ("max",))
    e = Node("exp", (Node("sub", (x, top), "f32"),), "f32")
    total = Node("reduce", (e,), "f32", ("sum",))
    buffers = [Buffer("f32", False), Buffer("f32", True)]
    return Kernel("softmax", ("m", "n"), 1, buffers, [Store(1, ROWS, 0, Node("div", (e, total), "f32"))], ("m", "n"), {"m": 64, "n": 1000})


def test_every_scalar_operator_has_text():
    for name, row in SCALARS.items():
        assert printable(Node(name, (), "f32")), name
        for dtype, about in DTYPES.items():
            if about.kind in row.kinds:
                args = tuple(load(i, "bool" if name == "where" and not i else dtype, (1,)) for i in range(row.arity))
                out = "bool" if row.result == "bool" else dtype
                buffers = [Buffer(a.dtype, False) for a in args] + [Buffer(out, True)]
                kernel = Kernel("k", ("n",), 0, buffers, [Store(row.arity, (1,), 0, Node(name, args, out))], ("n",))
                ast.parse(module_text(kernel, "k"))


@pytest.mark.parametrize("seed", range(60))
def test_text_is_python_that_names_what_it_makes(seed):
    kernel = RandomKernel(seed).kernel
    if not all(map(known, kernel.nodes())):
        pytest.skip("holds a scan")
    (fn,) = ast.parse(module_text(kernel, "k")).body
    made = {a.arg for a in fn.args.args} | {n.id for n in ast.walk(fn) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    read = {n.id for n in ast.walk(fn) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    assert read <= made | {"tl", "F", "triton", "range", "float"}


def test_sizes_are_arguments():
    """The text depends on no size: hints choose the tile, and two sizes of one tile are one text."""
    text = module_text(softmax(), "k")
    assert text.startswith("@triton.jit\ndef k(b0, b1, m, n):")
    other = softmax()
    other.hints = {"m": 70, "n": 1023}
    assert module_text(other, "k") == text
    assert schedule(softmax()).passes == 3 and text.count("for start in") == 3


def test_what_a_kernel_writes_is_read_before():
    """In place: stores come behind the last pass of loads, and behind a barrier."""
    kernel = softmax()
    kernel.buffers = [Buffer("f32", True)]
    kernel.stores[0].buffer = 0
    text = module_text(kernel, "k")
    assert text.index("tl.debug_barrier()") < text.index("tl.store") and text.count("tl.store") == 1
    assert "debug_barrier" not in module_text(softmax(), "k")


def test_positions_of_64_bits():
    wide = module_text(softmax(), "k", "tl.int64")
    assert "tl.int32" not in wide and "tl.int32" in module_text(softmax(), "k")


def test_what_is_not_printed_is_refused():
    here = {torch.device("cuda", 0)}
    prints = TritonTarget().prints

    class Nest:
        reduced, outer, dims = 0, 1, (8,)

        def __init__(self, node, **store):
            self.stores = [Store(0, (1,), 0, node, **store)]

        def nodes(self):
            return [self.stores[0].node]

    x = load(0, strides=(1,))
    assert prints(Nest(x), here)
    assert not prints(Nest(x), here | {torch.device("cuda", 1)}) and not prints(Nest(x), here | {torch.device("cpu")})
    assert not prints(Nest(x, mode="add"), here) and not prints(Nest(x, index=(x,), index_strides=(1,)), here)
    assert not prints(Nest(Node("scan", (x,), "f32", ("sum",))), here)
    assert not prints(Nest(Node("bounded", (x,), "i64", ("n", True, 1))), here)


def test_few_long_rows_are_left_to_pytorch():
    assert few_and_long(LoopNest((8, 1 << 20), 1, [])) and few_and_long(LoopNest((1 << 20,), 1, []))
    assert not few_and_long(LoopNest((8, 1000), 1, [])) and not few_and_long(LoopNest((1 << 20,), 0, []))


def test_devices_choose_the_target(monkeypatch):
    monkeypatch.delenv("PLIANT_TARGET", raising=False)
    cpu, cuda = torch.device("cpu"), torch.device("cuda", 0)
    monkeypatch.setattr(target, "importable", lambda module: True)
    assert [target.serving(d).name for d in ({cpu}, {cuda}, {cpu, cuda}, set())] == ["cpu", "triton", "triton", "cpu"]
    with target.using("reference"):
        assert target.serving({cuda}).name == "reference"
    monkeypatch.setattr(target, "importable", lambda module: False)
    assert target.serving({cuda}).name == "cpu"


def test_triton_is_not_imported_where_no_cuda_tensor_is():
    code = "import sys, torch, pliant; pliant.compile(lambda x: (x * 2).relu())(torch.ones(3)); assert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PATH": "", "PLIANT_ENTRIES": "0", "PYTHONPATH": ":".join(sys.path)})
