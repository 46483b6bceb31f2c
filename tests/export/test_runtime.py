"""The C interface without Python: built with a C++ compiler, driven by a C++ program, and from here by ctypes."""

from __future__ import annotations

import ctypes
import os
import pathlib
import random
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

import pliant
from pliant.export import aot
from pliant.export.plan import row_data
from pliant.symbolic import ops
from pliant.symbolic.expr import TABLE
from pliant.symbolic.scope import Scope
from pliant.symbolic.straight_line import StraightLine

BASELINE = aot.levels()[-1]
HOME = pathlib.Path(__file__).parents[2]
pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None or shutil.which("make") is None, reason="needs make and g++"),
    pytest.mark.skipif(sys.platform != "linux" or "x86" not in __import__("platform").machine(), reason="machine code for x86-64 Linux"),
]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("dtype", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("sizes", ctypes.c_int64 * 16), ("strides", ctypes.c_int64 * 16), ("owner", ctypes.c_void_p),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def built():
    """`make runtime`: nothing of it knows Python or libtorch."""
    subprocess.run(["make", "-s", "runtime"], cwd=HOME, check=True, timeout=300, capture_output=True)
    return HOME / "build" / "runtime"


@pytest.fixture(scope="module")
def lib(built):
    lib = ctypes.CDLL(str(built / "libpliant.so"))
    for name in ("pliant_error", "pliant_input_name", "pliant_output_name", "pliant_level", "pliant_output_kind", "pliant_output_of"):
        getattr(lib, name).restype = ctypes.c_char_p
    lib.pliant_input_size.restype = ctypes.c_int64
    return lib


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 3))

    def forward(self, x):
        return self.layers(x).softmax(-1)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Model().eval()


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("runtime") / "m.pliant"
    rows = {0: pliant.Dim("rows", min=1, max=5000)}
    pliant.export(model, (torch.randn(4, 6),), dynamic={"x": rows}).compile(path, levels=aot.levels())
    return path


@pytest.fixture
def program(lib, path):
    handle = ctypes.c_void_p()
    assert lib.pliant_load(os.fsencode(path), None, ctypes.byref(handle)) == 0, lib.pliant_error()
    yield handle
    lib.pliant_free(handle)


def tensor(x: np.ndarray, dtype: int = 6) -> Tensor:
    t = Tensor(x.ctypes.data, dtype, x.ndim)
    t.sizes[: x.ndim], t.strides[: x.ndim] = x.shape, [s // x.itemsize for s in x.strides]
    return t


def call(lib, program, x: np.ndarray) -> np.ndarray:
    out = Tensor()
    if lib.pliant_run(program, ctypes.byref(tensor(x)), 1, ctypes.byref(out), 1):
        raise RuntimeError(lib.pliant_error().decode())
    sizes = tuple(out.sizes[: out.ndim])
    got = np.ctypeslib.as_array(ctypes.cast(out.data, ctypes.POINTER(ctypes.c_float)), sizes).copy()
    lib.pliant_release(ctypes.byref(out), 1)
    return got


def test_the_library_knows_no_python_and_no_torch(built):
    needed = subprocess.run(["readelf", "-d", built / "libpliant.so"], capture_output=True, text=True, check=True).stdout
    assert "python" not in needed and "torch" not in needed
    undefined = subprocess.run(["nm", "-D", "--undefined-only", built / "libpliant.so"], capture_output=True, text=True, check=True).stdout
    assert "Py" not in undefined


def test_signature(lib, program):
    assert lib.pliant_inputs(program) == 1 and lib.pliant_outputs(program) == 1
    assert lib.pliant_input_name(program, 0) == b"x" and lib.pliant_input_dtype(program, 0) == 6 and lib.pliant_input_ndim(program, 0) == 2
    assert [lib.pliant_input_size(program, 0, d) for d in (0, 1, 2)] == [-1, 6, -1]
    assert lib.pliant_output_kind(program, 0) == b"user" and lib.pliant_output_name(program, 7) is None
    assert lib.pliant_level(program).decode() == aot.here()


def test_every_size(lib, program, model):
    rng = np.random.default_rng(0)
    for n in (1, 2, 7, 64, 1000, 3):
        x = rng.standard_normal((n, 6)).astype(np.float32)
        with torch.no_grad():
            np.testing.assert_allclose(call(lib, program, x), model(torch.from_numpy(x)).numpy(), rtol=1e-5, atol=1e-6)
    x = np.asfortranarray(rng.standard_normal((50, 6)).astype(np.float32))
    with torch.no_grad():
        np.testing.assert_allclose(call(lib, program, x), model(torch.from_numpy(x)).numpy(), rtol=1e-5, atol=1e-6)


def broken(**fields) -> Tensor:
    t = tensor(np.zeros((2, 6), np.float32))
    for k, v in fields.items():
        if k in ("sizes", "strides"):
            getattr(t, k)[: len(v)] = v
        else:
            setattr(t, k, v)
    return t


@pytest.mark.parametrize(
    "given, words",
    [
        (dict(dtype=7), "x must be a tensor f32[rows, 6], but a tensor f64[2, 6] came"),
        (dict(ndim=1), "but a tensor f32[2] came"),
        (dict(sizes=[2, 5]), "size 1 of x must be 6, but it is 5"),
        (dict(sizes=[5001, 6]), "needs"),
        (dict(sizes=[0, 6]), "needs"),
        (dict(sizes=[-1, 6]), "-1 elements"),
        (dict(sizes=[2**62, 6], strides=[2**62, 1]), "cannot be"),
        (dict(strides=[-6, 1]), "cannot be"),
        (dict(data=None), "x has no data"),
        (dict(dtype=99), "dtype 99"),
        (dict(ndim=17), "17 dims"),
        (dict(ndim=-1), "-1 dims"),
    ],
)
def test_wrong_inputs_are_one_sentence(lib, program, given, words):
    out = Tensor()
    assert lib.pliant_run(program, ctypes.byref(broken(**given)), 1, ctypes.byref(out), 1) == 1
    assert words in lib.pliant_error().decode()


def test_wrong_counts(lib, program):
    out = (Tensor * 2)()
    given = tensor(np.zeros((2, 6), np.float32))
    assert lib.pliant_run(program, ctypes.byref(given), 0, out, 1) and b"1 inputs, but 0" in lib.pliant_error()
    assert lib.pliant_run(program, ctypes.byref(given), 1, out, 2) and b"1 outputs, but 2" in lib.pliant_error()
    assert lib.pliant_run(None, None, 0, None, 0) and b"no program" in lib.pliant_error()


def test_files_that_are_none(lib, tmp_path, path):
    handle = ctypes.c_void_p()
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_bytes(b"hello" * 100)
    whole = path.read_bytes()
    (tmp_path / "half").write_bytes(whole[: len(whole) // 2])
    for name in ("empty", "text", "half", "nothing there"):
        assert lib.pliant_load(os.fsencode(tmp_path / name), None, ctypes.byref(handle)) == 1 and lib.pliant_error(), name
        assert not handle


def test_state_can_be_set(lib, program, model):
    x = np.ones((2, 6), np.float32)
    before = call(lib, program, x)
    bias = np.array([5, 0, 0], np.float32)
    assert lib.pliant_set_state(program, b"layers.3.bias", ctypes.byref(tensor(bias))) == 0, lib.pliant_error()
    after = call(lib, program, x)
    assert (after[:, 0] > before[:, 0]).all()
    assert lib.pliant_set_state(program, b"layers.3.bias", ctypes.byref(tensor(np.zeros(4, np.float32))))
    assert lib.pliant_set_state(program, b"nobody", ctypes.byref(tensor(bias))) and b"nobody" in lib.pliant_error()


DRIVER = r"""
#include "pliant.h"
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

static float answer(const pliant_program *p, int rows, int seed, pliant_tensor *out) {
    std::vector<float> x(static_cast<size_t>(rows) * 6);
    for (size_t i = 0; i < x.size(); i++) x[i] = static_cast<float>(std::sin(static_cast<double>(i * 7 + seed)));
    pliant_tensor in = {};
    in.data = x.data(), in.dtype = PLIANT_F32, in.ndim = 2, in.sizes[0] = rows, in.sizes[1] = 6;
    pliant_set_contiguous(&in);
    if (pliant_run(p, &in, 1, out, 1)) { std::puts(pliant_error()); std::exit(2); }
    float sum = 0;
    for (int64_t i = 0; i < out->sizes[0] * 3; i++) sum += static_cast<float *>(out->data)[i] * static_cast<float>(1 + i % 5);
    return sum;
}

int main(int, char **argv) {
    pliant_program *p = nullptr;
    if (pliant_load(argv[1], nullptr, &p)) { std::puts(pliant_error()); return 1; }
    std::vector<float> want;
    for (int n = 1; n <= 200; n++) {
        pliant_tensor out;
        want.push_back(answer(p, n, n, &out));
        pliant_release(&out, 1);
    }
    int wrong = 0;
    std::vector<std::thread> threads;
    std::vector<pliant_tensor> passed(4);
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&, t] {
            for (int k = 0; k < 500; k++) {
                const int n = 1 + (k * 37 + t * 11) % 200;
                pliant_tensor out;
                if (answer(p, n, n, &out) != want[static_cast<size_t>(n - 1)]) __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
                if (k == 499) passed[static_cast<size_t>(t)] = out; // released by another thread
                else pliant_release(&out, 1);
            }
        });
    for (auto &t : threads) t.join();
    pliant_release(passed.data(), 4);
    int64_t early = 0, late = 0, most = 0;
    for (int k = 0; k < 10000; k++) {
        pliant_tensor out;
        answer(p, 1 + (k * 7919) % 4999 % 300, k, &out);
        pliant_release(&out, 1);
        if (k == 1000) pliant_memory(&early, nullptr);
    }
    pliant_memory(&late, &most);
    pliant_free(p);
    std::printf("%d wrong, grown by %lld\n", wrong, static_cast<long long>(late - early));
    return wrong || late > early + (4 << 20);
}
"""


def test_threads_and_ten_thousand_shapes(built, path, tmp_path):
    (tmp_path / "driver.cpp").write_text(DRIVER)
    command = ["g++", "-O1", "-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{HOME / 'pliant' / 'runtime'}", str(tmp_path / "driver.cpp")]
    subprocess.run([*command, str(built / "libpliant.a"), "-o", str(tmp_path / "driver"), "-ldl", "-lpthread"], check=True, timeout=120)
    done = subprocess.run([tmp_path / "driver", path], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_header_is_c(tmp_path):
    (tmp_path / "a.c").write_text('#include "pliant.h"\nint main(void) { return pliant_error() == 0; }\n')
    include = f"-I{HOME / 'pliant' / 'runtime'}"
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", include]
    subprocess.run(["gcc", *flags, "-c", str(tmp_path / "a.c"), "-o", str(tmp_path / "a.o")], check=True)


def test_an_operator_of_libtorch_without_libtorch_is_named(lib, tmp_path):
    pliant.export(lambda x: torch.sort(x)[0], (torch.randn(5),)).compile(tmp_path / "s.pliant")
    code = f"""
import ctypes
lib = ctypes.CDLL({str(HOME / "build" / "runtime" / "libpliant.so")!r})
lib.pliant_error.restype = ctypes.c_char_p
handle = ctypes.c_void_p()
assert lib.pliant_load({str(tmp_path / "s.pliant")!r}.encode(), None, ctypes.byref(handle))
print(lib.pliant_error().decode())
"""
    environment = {k: v for k, v in os.environ.items() if k not in ("PLIANT_TORCH", "LD_LIBRARY_PATH")}
    said = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, env=environment).stdout
    assert "aten::sort" in said and "PLIANT_TORCH" in said


# -- numbers ------------------------------------------------------------------------------------------------------------------------
def test_scalar_operations_are_pythons(lib, tmp_path):
    """Random expressions over two ints and a float, evaluated by the runtime (as outputs of a program) and by Python."""
    rng = random.Random(3)
    scope = Scope()
    a, b = (scope.backed(n, hint=5, source=None) for n in ("a", "b"))
    f = scope.backed("f", hint=0.5, kind=float, source=None)
    ints, floats = [a, b, a.ctx.lift(3), a.ctx.lift(-2)], [f, a.ctx.lift(1.5)]
    for _ in range(120):
        op = rng.choice("add sub mul floordiv mod min max bit_and bit_or bit_xor where floor trunc round ceil abs neg".split())
        try:
            if op == "where":
                made = ops.where(ops.lt(rng.choice(ints), rng.choice(ints)), rng.choice(ints), rng.choice(ints))
            elif op in ("floor", "trunc", "round", "ceil"):
                made = ops.DOORS[op](rng.choice(floats))
            elif op in ("abs", "neg"):
                made = ops.DOORS[op](rng.choice(ints))
            else:
                made = ops.DOORS[op](rng.choice(ints), rng.choice(ints))
            ints.append(made)
            x, y = rng.choice(floats), rng.choice(floats)
            floats.append(ops.DOORS[rng.choice("add sub mul truediv floordiv mod min max".split())](x, y))
            floats.append(ops.truediv(rng.choice(ints), rng.choice(ints)))
        except (ZeroDivisionError, OverflowError):
            continue
    wanted = [e for e in ints + floats if e.const is None]
    line = StraightLine()
    at = [line.add(e) for e in wanted]
    rows = [row_data(s) for s in line.rows]
    kinds = {int: "int", float: "float", bool: "bool"}
    where = {s.value.name: i for i, s in enumerate(line.rows) if s.op == "sym"}
    known = sorted(where)
    checked = raised = 0
    for row, e in zip(at, wanted, strict=True):
        plan = {
            "slots": 0, "begin": 0, "relations": [], "steps": [], "rows": rows,
            "inputs": [{"name": n, "kind": "user", "row": where[n], "number": "float" if n == "f" else "int"} for n in known],
            "outputs": [{"name": "out", "kind": "user", "row": row, "number": kinds[e.kind]}],
        }  # fmt: skip
        handle = loaded(lib, plan, tmp_path)
        for a_, b_, f_ in ((7, 3, 0.5), (-7, 2, -2.5), (0, 0, 0.0), (2**40, -1, 1e300)):
            values = {"a": a_, "b": b_, "f": f_}
            given = (Tensor * 3)()
            keep = []
            for i, n in enumerate(known):
                x = np.array(values[n], np.float64 if n == "f" else np.int64)
                keep.append(x)
                given[i] = tensor(x, 7 if n == "f" else 4)
            out = Tensor()
            status = lib.pliant_run(handle, given, len(known), ctypes.byref(out), 1)
            try:
                want = e.evaluate(values)
            except (ZeroDivisionError, OverflowError, ValueError):
                want = None
            if want is None or (e.kind is int and not -(2**63) <= want < 2**63) or beyond(e, values):
                raised += 1
                assert status or e.kind is float or not unsure(e, values, out)
            else:
                assert status == 0, (e, values, lib.pliant_error())
                kind = ctypes.c_double if e.kind is float else ctypes.c_int64
                got = ctypes.cast(out.data, ctypes.POINTER(kind))[0]
                assert got == want or (got != got and want != want), (e, values, got, want)
                checked += 1
            if not status:
                lib.pliant_release(ctypes.byref(out), 1)
        lib.pliant_free(handle)
    assert checked > 100


def beyond(e, values) -> bool:
    """Does something on the way not fit into 64 bits? Then the runtime may refuse what Python can."""
    from pliant.symbolic.expr import postorder

    for n in postorder(e):
        try:
            v = n.evaluate(values)
        except (ZeroDivisionError, OverflowError, ValueError):
            return True
        if n.kind is int and abs(v) >= 2**62 or n.op == "sum" and any(abs(c) * abs(v) >= 2**62 for _, c in n.terms):
            return True
    return False


def unsure(e, values, out) -> bool:
    """A number that came although something on the way has none: then it must be right (`where` did not take that side)."""
    try:
        return bool(ctypes.cast(out.data, ctypes.POINTER(ctypes.c_int64))[0] != e.evaluate(values))
    except (ZeroDivisionError, OverflowError, ValueError):
        return True


def loaded(lib, plan, tmp_path) -> ctypes.c_void_p:
    import json
    import zipfile

    from pliant.export.plan import Code

    made = aot.image_of(Code(), BASELINE)
    code = {BASELINE: {"imports": list(made.imports), "exports": made.exports}}
    plan = {"format": 1, "name": "numbers", "code": code, "variants": [plan]}
    with zipfile.ZipFile(tmp_path / "n.pliant", "w") as z:
        z.writestr("plan.json", json.dumps(plan))
        z.writestr(f"code/{BASELINE}", made.code)
        z.writestr("weights.safetensors", (2).to_bytes(8, "little") + b"{}")
    handle = ctypes.c_void_p()
    assert lib.pliant_load(os.fsencode(tmp_path / "n.pliant"), None, ctypes.byref(handle)) == 0, lib.pliant_error()
    return handle


def test_the_runtime_knows_every_scalar_operation():
    text = (HOME / "pliant" / "runtime" / "numbers.cpp").read_text()
    missing = [name for name in TABLE if name not in ops.DISPATCH_ONLY and f'{{"{name}",' not in text]
    assert not missing
