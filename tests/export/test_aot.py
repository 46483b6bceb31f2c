"""Programs with machine code in their files: the same answers, and no capture, LLVM or Inductor in the process that loads them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import zipfile

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.codegen.cpu import image
from pliant.export import aot, compiled
from pliant.export.signature import SignatureError
from pliant.export.text import FormatError

X86 = pytest.mark.skipif(sys.platform != "linux" or "x86" not in __import__("platform").machine(), reason="machine code for x86-64 Linux")
pytestmark = X86


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(10, 8)
        self.linear = torch.nn.Linear(8, 5)
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, ids, shift):
        h = self.norm(self.table(ids) + shift.unsqueeze(-1))
        scores = torch.softmax(h @ h.transpose(1, 2), -1) @ h
        return {"out": torch.softmax(self.linear(scores), -1), "sum": h.sum(), "twice": ids.shape[0] * 2}


def inputs(n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(0, 10, (n, k)), torch.randn(n, k)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Model().eval()


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("aot") / "m.pliant"
    dims = {0: pliant.Dim("rows", min=1), 1: pliant.Dim("columns", min=1)}
    pliant.export(model, inputs(3, 4), dynamic={"ids": dims, "shift": dims}).compile(path, levels=aot.levels())
    return path


def runs(level: str) -> bool:
    return aot.levels().index(level) >= aot.levels().index(aot.here())


@pytest.mark.parametrize("level", aot.levels())
def test_every_level_gives_eagers_answers_at_every_size(model, path, level):
    if not runs(level):
        with pytest.raises(compiled.CannotRun, match="does not run"):
            compiled.Loaded(str(path), level)
        return
    loaded = compiled.load(path, (), level)
    assert loaded.level == level
    for n, k in ((3, 4), (1, 1), (7, 9), (2, 100), (1, 63)):
        args = inputs(n, k)
        with torch.no_grad():
            want = model(*args)
        got = loaded(*args)
        assert got.keys() == want.keys() and got["twice"] == 2 * n
        torch.testing.assert_close(got["out"], want["out"], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(got["sum"], want["sum"], rtol=1e-4, atol=1e-4)


def test_wholly_native(path):
    plan = json.loads(zipfile.ZipFile(path).read("plan.json"))
    assert {s[0] for v in plan["variants"] for s in v["steps"]} <= {"alloc", "call", "view", "reuse", "free"}


def test_a_fresh_process_needs_no_llvm_and_no_capture(model, path, tmp_path):
    args = inputs(5, 6)
    with torch.no_grad():
        torch.save((args, model(*args)["out"]), tmp_path / "case.pt")
    code = f"""
import sys, torch, pliant
args, want = torch.load({str(tmp_path / "case.pt")!r})
program = pliant.load({str(path)!r}, machine_code=True)
torch.testing.assert_close(program(*args)["out"], want, rtol=1e-5, atol=1e-6)
wrong = [m for m in sys.modules if m.startswith(("llvmlite", "torch._inductor.codegen", "triton"))]
assert not wrong, wrong
assert pliant.stats()["captures"] == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_without_being_asked_no_machine_code_runs(path, model, monkeypatch):
    monkeypatch.setattr(compiled, "library", lambda: pytest.fail("the runtime was asked"))
    args = inputs(2, 3)
    with torch.no_grad():
        torch.testing.assert_close(pliant.load(path)(*args)["out"], model(*args)["out"], rtol=1e-5, atol=1e-6)


def test_a_saved_program_without_machine_code_says_so(model, tmp_path):
    pliant.export(model, inputs(3, 4)).save(tmp_path / "m.pliant")
    with pytest.raises(pliant.PliantError, match="saved, but not compiled"):
        pliant.load(tmp_path / "m.pliant", machine_code=True)


def test_another_processor_compiles_the_text(model, path, monkeypatch):
    def load(self, path, level):
        raise compiled.CannotRun("this processor runs none of it")

    monkeypatch.setattr(compiled.Loaded, "__init__", load)
    program = pliant.load(path, machine_code=True)
    assert isinstance(program, pliant.Program)
    args = inputs(2, 3)
    with torch.no_grad():
        torch.testing.assert_close(program(*args)["out"], model(*args)["out"], rtol=1e-5, atol=1e-6)


def test_unknown_levels_are_refused(model, tmp_path):
    with pytest.raises(pliant.PliantError, match="x86-64-v4"):
        pliant.export(model, inputs(3, 4)).compile(tmp_path / "m.pliant", levels=("pdp-11",))


@pytest.mark.parametrize(
    "args, words",
    [
        ((torch.zeros(3, 4), torch.zeros(3, 4)), r"ids must be a tensor i64\[.*\], but a tensor f32\[3, 4\] came"),
        ((torch.zeros(3, dtype=torch.int64), torch.zeros(3, 4)), r"but a tensor i64\[3\] came"),
        ((torch.zeros(3, 4, dtype=torch.int64), torch.zeros(2, 4)), "size 0 of shift must be 3"),
        ((torch.full((3, 4), 11), torch.zeros(3, 4)), "index out of range in self"),
        ((1, torch.zeros(3, 4)), "ids must be a tensor"),
    ],
)
def test_wrong_inputs_are_one_sentence(path, args, words):
    with pytest.raises(SignatureError, match=words):
        pliant.load(path, machine_code=True)(*args)


def test_strides_do_not_matter(model, path):
    loaded = pliant.load(path, machine_code=True)
    ids, shift = torch.randint(0, 10, (4, 3)).t(), torch.randn(3, 8)[:, ::2]
    with torch.no_grad():
        want = model(ids, shift)["out"]
    torch.testing.assert_close(loaded(ids, shift)["out"], want, rtol=1e-5, atol=1e-6)


# -- what is not in kernels -----------------------------------------------------------------------------------------------------
def checked(f, *cases, tmp_path):
    """Compiled from the first case, and compared at all."""
    path = tmp_path / "f.pliant"
    pliant.export(f, cases[0]).compile(path)
    loaded = pliant.load(path, machine_code=True)
    for case in cases:
        want, got = f(*case), loaded(*case)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    plan = json.loads(zipfile.ZipFile(path).read("plan.json"))
    return {s[2] if s[0] == "aten" else s[0] for v in plan["variants"] for s in v["steps"]}


def square(n: int) -> tuple[torch.Tensor]:
    return (torch.randn(n, 8),)


def test_sizes_that_data_decide(tmp_path):
    def f(x):
        at = torch.nonzero(x > 0)
        return at, x[at[:, 0]].sum() + at.shape[0]

    assert "aten::nonzero" in checked(f, square(8), square(3), square(17), tmp_path=tmp_path)


def test_numbers_out_of_tensors(tmp_path):
    def f(x):
        n = (x * x).sum().to(torch.int64).item()
        torch._check(n >= 0)
        return torch.ones(n) * 2

    assert "item" in checked(f, square(2), square(3), tmp_path=tmp_path)


def test_operators_of_libtorch(tmp_path):
    def f(x):
        values, at = torch.sort(x, dim=0)
        best, _ = torch.topk(values, 2, dim=-1)
        return values * 2, at, best, torch.split(values, [2, x.shape[0] - 2])[1].sum(0)

    assert {"aten::sort", "aten::topk"} <= checked(f, square(8), square(3), square(40), tmp_path=tmp_path)


def test_numbers_as_tensors_of_no_dims(tmp_path):
    def f(x):
        n = torch.arange(x.shape[0])
        return n % 3, n // 2, torch.zeros(4, 8).index_add(0, n % 4, x)

    checked(f, square(8), square(3), tmp_path=tmp_path)


def test_attention(tmp_path):
    def f(x):
        return F.scaled_dot_product_attention(x, x, x), F.scaled_dot_product_attention(x, x, x, is_causal=True)

    cases = [(torch.randn(b, h, n, 16),) for b, h, n in ((2, 3, 5), (1, 1, 1), (3, 2, 700))]
    path = tmp_path / "s.pliant"
    pliant.export(f, cases[0]).compile(path, levels=aot.levels())
    for level in filter(runs, aot.levels()):
        loaded = compiled.load(path, (), level)
        for (x,) in cases:
            torch.testing.assert_close(loaded(x), f(x), rtol=1e-4, atol=1e-5)


def test_convolutions(tmp_path):
    f = torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3, padding=1, stride=2, bias=False), torch.nn.ReLU(), torch.nn.Conv2d(6, 3, 1)).eval()

    cases = [(torch.randn(n, 4, h, w),) for n, h, w in ((2, 9, 8), (1, 3, 3), (3, 17, 30))]
    path = tmp_path / "c.pliant"
    pliant.export(f, cases[0]).compile(path, levels=aot.levels())
    for level in filter(runs, aot.levels()):
        loaded = compiled.load(path, (), level)
        for (x,) in cases:
            torch.testing.assert_close(loaded(x), f(x).detach(), rtol=1e-4, atol=1e-5)
    assert "aten" not in {s[0] for s in json.loads(zipfile.ZipFile(path).read("plan.json"))["variants"][0]["steps"]}


def test_closed_over_weights(tmp_path):
    weight = torch.randn(8, 5)
    checked(lambda x: x @ weight, square(3), square(9), tmp_path=tmp_path)


def test_both_sides_of_branches(tmp_path):
    def f(x):
        y = x * 2 if x.sum() > 0 else x - 1
        return y.softmax(-1) if x.shape[0] > 5 else y.sum(0, keepdim=True)

    a, b = torch.ones(7, 8), -torch.ones(3, 8)
    checked(f, (a,), (b,), (-a,), (-b,), tmp_path=tmp_path)


def test_assertions_speak(tmp_path):
    def f(x):
        n = x.sum().to(torch.int64).item()
        torch._check(n >= 3, lambda: "too few of them")
        return torch.zeros(n)

    path = tmp_path / "a.pliant"
    pliant.export(f, (torch.ones(4),)).compile(path)
    loaded = pliant.load(path, machine_code=True)
    assert loaded(torch.ones(5)).shape == (5,)
    with pytest.raises(SignatureError, match="too few of them|n >= 3|>= 3"):
        loaded(torch.ones(2))


def test_buffers_that_change_are_kept(tmp_path):
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(8))

        def forward(self, x):
            self.seen += x.sum(0)
            return x * 2

    model = Counter()
    path = tmp_path / "b.pliant"
    pliant.export(model, square(3)).compile(path)
    loaded = pliant.load(path, machine_code=True)
    eager = Counter()
    for n in (3, 5):
        x = square(n)[0]
        torch.testing.assert_close(loaded(x), eager(x))
        name = next(o.name for o in loaded.signature.outputs if o.kind == "mutation")
    torch.testing.assert_close(loaded.run({"x": torch.zeros(1, 8)})[name], eager.seen)


def test_what_cannot_do_without_python_is_named(tmp_path):
    def f(x):
        return torch.histc(x, 5, 0.0, 1.0)

    with pytest.raises(pliant.PliantError, match=r"aten\.histc"):
        pliant.export(f, square(4)).compile(tmp_path / "h.pliant")


# -- files that are not what they say -----------------------------------------------------------------------------------------------
def test_damaged_files_are_errors(path, tmp_path):
    """In another process, which would tell of a crash by its exit status."""
    whole = path.read_bytes()
    rng = random.Random(0)
    plan = whole.index(b"plan.json")
    for k in range(60):
        data = bytearray(whole)
        if k % 3 == 0:
            data = data[: rng.randrange(len(data))]
        else:
            for _ in range(rng.choice((1, 4, 40))):
                at = rng.randrange(plan if k % 3 == 1 else 0, len(data))
                data[at] = rng.randrange(256)
        (tmp_path / f"{k}.pliant").write_bytes(data)
    code = f"""
import pathlib, torch, pliant
good = bad = 0
for p in sorted(pathlib.Path({str(tmp_path)!r}).glob("*.pliant")):
    try:
        program = pliant.load(p, machine_code=True)
        good += 1
    except (pliant.PliantError, OSError) as e:
        assert str(e).strip(), p
        bad += 1
print(good, bad)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    good, bad = map(int, done.stdout.split()[-2:])
    assert good + bad == 60 and bad > 20


def test_plans_that_lie_are_errors(path, tmp_path):
    """Plans with a good checksum whose numbers, names and kinds were changed: what they refer to is looked at before anything runs."""
    with zipfile.ZipFile(path) as z:
        members = {i.filename: z.read(i) for i in z.infolist()}
    rng = random.Random(1)
    plan = json.loads(members["plan.json"])
    plan["code"] = {aot.levels()[-1]: plan["code"][aot.levels()[-1]]}

    def places(value, found):
        for k, v in value.items() if isinstance(value, dict) else enumerate(value):
            found.append((value, k))
            if isinstance(v, (dict, list)):
                places(v, found)
        return found

    refused = 0
    for _ in range(150):
        lie = json.loads(json.dumps(plan))
        holder, key = rng.choice(places({k: v for k, v in lie.items() if k != "code"}, []))
        holder[key] = rng.choice((-1, 10**6, 2**70, "x", None, [], {}, 1.5, [[]]))
        if key in lie and holder is not lie:
            lie[key] = holder[key]
        with zipfile.ZipFile(tmp_path / "lie.pliant", "w") as z:
            for name, data in members.items():
                z.writestr(name, json.dumps(lie) if name == "plan.json" else data)
        try:
            compiled.Loaded(str(tmp_path / "lie.pliant"), None)
        except (FormatError, pliant.PliantError) as e:
            assert str(e)
            refused += 1
    assert refused > 75


def test_images_hold_only_what_can_be_moved():
    with pytest.raises(pliant.PliantError, match="x86-64"):
        image.link([b"MZ" + bytes(100)], [])
