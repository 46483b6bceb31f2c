"""Around the kernels: threads, bounds checks, the cache on disk, other targets' object code."""

from __future__ import annotations

import math
import multiprocessing
import threading

import numpy as np
import pytest
import torch

from pliant.codegen import cache
from pliant.codegen.cpu import compile as cpu
from pliant.codegen.cpu import machine, parallel
from pliant.lower.loops import Buffer, Kernel, Node, Store
from tests.codegen.loop_reference import call, reference
from tests.codegen.random_kernels import RandomKernel
from tests.codegen.test_cpu_kernels import check, differs


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))


def load(buffer: int, strides: tuple, dtype: str = "f32") -> Node:
    return Node("load", (), dtype, (buffer, strides, 0, ()))


def reduce(kind: str, n: Node, dtype: str = "f32") -> Node:
    return Node("reduce", (n,), dtype, (kind,))


def exp_kernel() -> Kernel:
    node = Node("exp", (load(0, (1,)),), "f32")
    return Kernel("exp", ("n",), 0, [Buffer("f32", False), Buffer("f32", True)], [Store(1, (1,), 0, node)], ("n",))


def softmax_kernel() -> Kernel:
    x = load(0, ("n", 1))
    e = Node("exp", (Node("sub", (x, reduce("max", x)), "f32"),), "f32")
    out = Node("div", (e, reduce("sum", e)), "f32")
    return Kernel("softmax", ("m", "n"), 1, [Buffer("f32", False), Buffer("f32", True)], [Store(1, ("n", 1), 0, out)], ("m", "n"))


def whole_kernel() -> Kernel:
    """Sum, maximum and its place over everything: threads share it."""
    x = load(0, ("n", 1))
    buffers = [Buffer("f32", False), Buffer("f32", True), Buffer("f32", True), Buffer("i64", True)]
    stores = [Store(1, (), 0, reduce("sum", x)), Store(2, (), 0, reduce("max", x)), Store(3, (), 0, reduce("argmax", x, "i64"))]
    return Kernel("whole", ("m", "n"), 2, buffers, stores, ("m", "n"))


def columns_kernel() -> Kernel:
    """Sums of few long columns."""
    node = reduce("sum", load(0, (1, "n")))
    kernel = Kernel("columns", ("n", "m"), 1, [Buffer("f32", False), Buffer("f32", True)], [Store(1, (1,), 0, node)], ("n", "m"))
    kernel.hints = {"n": 10, "m": 1 << 16}
    return kernel


def memory_of(kernel: Kernel, sizes: dict[str, int]) -> list[np.ndarray]:
    total = math.prod(sizes.values())
    if kernel.name == "scatter":
        numbers = np.random.default_rng(4)
        rows = numbers.integers(0, 5, sizes["m"])
        return [numbers.normal(0, 1, total).astype(np.float32), rows, np.ones(5 * sizes["n"], np.float32)]
    x = np.random.default_rng(3).normal(0.1, 1, total).astype(np.float32)
    shapes = {"exp": [total], "softmax": [total], "whole": [1, 1, 1], "columns": [sizes.get("n", 0)]}[kernel.name]
    return [x, *(np.zeros(n, np.int64 if b.dtype == "i64" else np.float32) for n, b in zip(shapes, kernel.buffers[1:]))]


def scatter_kernel() -> Kernel:
    """Rows added to rows that an index chooses."""
    index = load(1, (1, 0), "i64")
    store = Store(2, (0, 1), 0, load(0, ("n", 1)), (index,), ("n",), None, "add")
    return Kernel("scatter", ("m", "n"), 0, [Buffer("f32", False), Buffer("i64", False), Buffer("f32", True)], [store], ("m", "n"))


CASES = [
    (exp_kernel(), {"n": 100_003}), (exp_kernel(), {"n": 70}), (softmax_kernel(), {"m": 57, "n": 301}),
    (whole_kernel(), {"m": 331, "n": 1009}), (whole_kernel(), {"m": 1, "n": 300_001}), (whole_kernel(), {"m": 3, "n": 5}),
    (columns_kernel(), {"n": 10, "m": 40_001}),
    (scatter_kernel(), {"m": 301, "n": 700}), (scatter_kernel(), {"m": 30, "n": 7}),
    (columns_kernel(), {"n": 3001, "m": 20}), (columns_kernel(), {"n": 5, "m": 0}),
]  # fmt: skip


def test_results_do_not_depend_on_threads(monkeypatch):
    """Whatever the work, with any team, and from a thread that PyTorch has not seen: the same bits, which are right."""
    monkeypatch.setattr(parallel, "SERIAL_PICOSECONDS", 0)
    monkeypatch.setattr(parallel, "GRAIN_PICOSECONDS", 1)
    addresses = cpu.compile_kernels([k for k, _ in CASES])
    before = torch.get_num_threads()
    try:
        for (kernel, sizes), address in zip(CASES, addresses):
            memory = memory_of(kernel, sizes)
            want = reference(kernel, memory, sizes)
            results = []
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                results.append(call(address, kernel, memory, sizes))
            worker = threading.Thread(target=lambda: results.append(call(address, kernel, memory, sizes)))
            worker.start()
            worker.join()
            assert len(results) == 4
            for code, got in results:
                assert code == 0
                for k, (g, w) in enumerate(zip(got, want)):
                    assert not differs(kernel.buffers[k].dtype, g, w), (kernel.name, sizes, k)
                    assert g.tobytes() == results[0][1][k].tobytes(), (kernel.name, sizes, k)
    finally:
        torch.set_num_threads(before)


def test_random_kernels_on_many_threads(monkeypatch):
    """However small: blocks of the vector dim, tiles and chunks that end anywhere."""
    monkeypatch.setattr(parallel, "SERIAL_PICOSECONDS", 0)
    monkeypatch.setattr(parallel, "GRAIN_PICOSECONDS", 1)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        check(range(500, 524), checked=False)
    finally:
        torch.set_num_threads(before)


def test_long_sums_are_accurate():
    """A plain running sum of ten million floats is off by 1e-3 and more; a cascade by a few units in the last place."""
    x = np.random.default_rng(0).uniform(0, 1, 3_000_000).astype(np.float32)
    sizes = {"m": 1, "n": x.size}
    address = cpu.compile_kernels([whole_kernel()])[0]
    _, got = call(address, whole_kernel(), [x, np.zeros(1, np.float32), np.zeros(1, np.float32), np.zeros(1, np.int64)], sizes)
    exact = x.sum(dtype=np.float64)
    assert abs(got[1][0] - exact) <= 4e-7 * exact
    columns = columns_kernel()
    columns.hints = {"n": 100_000, "m": 8}  # not split
    address = cpu.compile_kernels([columns])[0]
    _, got = call(address, columns, [x, np.zeros(3, np.float32)], {"n": 3, "m": x.size // 3})
    exact = x.reshape(-1, 3).sum(0, dtype=np.float64)
    assert (np.abs(got[1] - exact) <= 2e-6 * exact).all()


def test_bounds_checks_find_what_lies_outside():
    """With the last element of every buffer off limits, each kernel that touches one says so, and writes nothing there."""
    cases = [RandomKernel(seed) for seed in range(100, 130)]
    found = 0
    for case, address in zip(cases, cpu.compile_kernels([c.kernel for c in cases], checked=True)):
        code, got = call(address, case.kernel, case.memory, case.sizes, shrink=1)
        for g, m, b in zip(got, case.memory, case.kernel.buffers):
            if b.written and m.size:
                assert g[-1] == m[-1]
        found += code != 0
        assert call(address, case.kernel, case.memory, case.sizes)[0] == 0
    assert found >= len(cases) // 3


def test_objects_are_cached():
    cpu.compile_kernels([exp_kernel()])
    found, emitted = cpu.times.from_disk, cpu.times.emit
    address = cpu.compile_kernels([exp_kernel()])[0]
    assert cpu.times.from_disk == found + 1 and cpu.times.emit == emitted
    assert call(address, exp_kernel(), [np.zeros(3, np.float32), np.zeros(3, np.float32)], {"n": 3})[1][1].tolist() == [1, 1, 1]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "foreign"])
def test_damaged_objects_are_built_again(damage):
    cpu.compile_kernels([softmax_kernel()])
    to = machine.current()
    key = cache.key(cpu.module_text([exp_kernel()], to), (to, cpu.versions()))
    cpu.compile_kernels([exp_kernel()])
    path = cache.directory() / key[:2] / key
    data = path.read_bytes()
    other = next(p for p in cache.directory().glob("*/*") if p != path).read_bytes()
    path.write_bytes({"cut": data[:-5], "flip": data[:-9] + b"\0garbage\0", "empty": b"", "foreign": other}[damage])
    assert cache.read(key) is None and not path.exists()
    address = cpu.compile_kernels([exp_kernel()])[0]
    assert path.read_bytes() == data
    assert call(address, exp_kernel(), [np.zeros(3, np.float32), np.zeros(3, np.float32)], {"n": 3})[1][1].tolist() == [1, 1, 1]


def write_many(worker: int) -> int:
    for k in range(50):
        cache.write(f"{k:064d}", bytes([k]) * 20_000)
    return worker


def test_writers_may_race():
    with multiprocessing.get_context("fork").Pool(3) as pool:
        assert sorted(pool.map(write_many, range(3))) == [0, 1, 2]
    assert all(cache.read(f"{k:064d}") == bytes([k]) * 20_000 for k in range(50))
    assert not list(cache.directory().glob("*/.new-*"))


def test_the_cache_forgets_what_was_not_used_for_longest():
    for k in range(10):
        cache.write(f"{k:064d}", bytes(1000))
        path = cache.directory() / "00" / f"{k:064d}"
        times = (1_000_000 + k, 1_000_000 + k)
        cache.os.utime(path, times)
    assert cache.read(f"{0:064d}") is not None  # used just now
    cache.shrink(limit=5000)
    left = {int(p.name) for p in cache.directory().glob("*/*")}
    assert 0 in left and 9 in left and 1 not in left and len(left) <= 4


def test_the_cache_keeps_so_many_files(monkeypatch):
    monkeypatch.setattr(cache, "LIMIT_FILES", 8)
    for k in range(12):  # the name says that the size of the directory is looked at
        cache.write(f"{k:064d}", b"code")
    left = {int(p.name) for p in cache.directory().glob("*/*")}
    assert len(left) <= 8 and 11 in left and all(cache.read(f"{k:064d}") == b"code" for k in left)


def test_an_unusable_cache_only_costs_time(monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.write_text("not a directory")
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(file))
    assert cpu.compile_kernels([exp_kernel()])[0]


def test_aarch64_objects():
    """The portable printer's text is valid for another machine: an ELF object for it."""
    cpu.llvm.initialize_all_targets()
    cpu.llvm.initialize_all_asmprinters()
    to = machine.named("aarch64")
    kernels = [exp_kernel(), softmax_kernel(), whole_kernel(), columns_kernel(), *(RandomKernel(s).kernel for s in range(6))]
    [code] = cpu.emit_objects([cpu.module_text(kernels, to)], to)
    assert code[:4] == b"\x7fELF" and int.from_bytes(code[18:20], "little") == 183


def test_an_unknown_target_says_what_there_is(monkeypatch):
    monkeypatch.setenv("PLIANT_CPU", "mmx")
    with pytest.raises(machine.PliantError, match="avx512, avx2, portable"):
        machine.current()
