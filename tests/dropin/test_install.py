"""`pliant.install()`: what programs reach through PyTorch's doors is pliant, and `uninstall()` puts all of it back."""

from __future__ import annotations

import inspect
import os
import pathlib
import pickle
import subprocess
import sys
import warnings

import pytest
import torch
import torch._dynamo
from torch._dynamo.utils import counters

import pliant
from pliant.dropin import install as room
from pliant.dropin import replacements
from pliant.errors import GraphBreakError, PliantError, RecompileError
from pliant.interpret import policy

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setattr(policy, "_by_user", dict(policy._by_user))
    with pliant.install():
        yield
    assert torch.compile is replacements.TORCH_COMPILE


def double(x):
    return torch.relu(x) * 2


def captures() -> int:
    return pliant.stats()["captures"]


def test_the_signature_is_torchs():
    """Names, kinds and defaults: a program cannot tell them apart."""
    ours, theirs = (inspect.signature(f).parameters for f in (replacements.compile, replacements.TORCH_COMPILE))
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [(p.name, p.kind, p.default) for p in theirs.values()]
    own = inspect.signature(pliant.compile).parameters
    assert [n for n in theirs if n not in own] == []
    assert all(own[n].default == p.default and own[n].kind == p.kind for n, p in theirs.items())


def test_every_way_to_compile_gives_a_region(installed):
    x = torch.randn(3, 4)
    assert torch.equal(torch.compile(double)(x), double(x))
    assert torch.equal(torch.compile(mode="reduce-overhead", fullgraph=True)(double)(x), double(x))
    assert torch.equal(torch.compiler.compile(double, dynamic=True)(x), double(x))
    assert torch.equal(torch._dynamo.optimize("inductor")(double)(x), double(x))
    assert torch.equal(torch._dynamo.optimize_assert("eager")(double)(x), double(x))
    module = torch.nn.Linear(4, 2)
    assert torch.allclose(torch.compile(module)(x), module(x), atol=1e-6)
    assert captures() >= 5
    before = captures()
    module.compile()
    assert torch.allclose(module(x), module._call_impl(x), atol=1e-6)
    assert captures() == before + 1
    assert torch.compile(double, disable=True) is double


def test_modules_compiled_in_place_have_entries_of_their_own(installed):
    modules = [torch.nn.Linear(4, n) for n in range(2, 8)]
    for m in modules:
        m.compile()
    for rows in (3, 5, 9):
        for m in modules:
            x = torch.randn(rows, 4)
            assert torch.allclose(m(x), m._call_impl(x), atol=1e-6)
    assert captures() == len(modules)
    whole = torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), modules[0]), fullgraph=True)
    assert whole(torch.randn(2, 4)).shape == (2, 2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_other_backends_get_pliants_graphs(installed, backend):
    x = torch.randn(3, 4)
    compiled = torch.compile(double, backend=backend)
    assert torch.equal(compiled(x), double(x)) and torch.equal(compiled(x[:2]), double(x[:2]))
    assert captures() == 1
    seen = []

    def mine(graph, inputs):
        seen.append(graph)
        return graph.forward

    assert torch.equal(torch.compile(double, backend=mine)(x), double(x)) and len(seen) == 1


def test_the_default_backend_of_torch_is_kept(installed):
    torch.compiler.set_default_backend("eager")
    try:
        compiled = torch.compile(double)
        assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
        assert pliant.events.events("backend_compile")[-1].fields["backend"] == "eager"
    finally:
        torch.compiler.set_default_backend(None)


def test_options_that_mean_nothing_are_named_once(installed):
    replacements._said.clear()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for _ in range(2):
            torch.compile(double, options={"epilogue_fusion": True, "entry_limit": 3})(torch.ones(2))
    said = "pliant: the option 'epilogue_fusion' of torch.compile means nothing to pliant and is passed over"
    assert [str(w.message) for w in heard] == [said]
    with pytest.raises(RuntimeError, match="mode or options"):
        torch.compile(double, mode="default", options={})
    with pytest.raises(PliantError, match="unknown mode"):
        torch.compile(double, mode="fast")


def test_what_torch_compiles_for_itself_stays_its_own(installed):
    space = {"__name__": "torch.nn.attention.flex_attention", "torch": torch}
    exec("def inner(fn):\n    return torch.compile(fn, backend='eager')", space)
    compiled = space["inner"](double)
    assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
    assert captures() == 0
    torch._dynamo.reset()


def test_counters_tell(installed):
    counters.clear()

    def two(x):
        y = x.relu()
        torch._dynamo.graph_break()
        return y * 2

    torch.compile(two)(torch.ones(2))
    assert counters["stats"]["unique_graphs"] == 2
    assert counters["frames"]["ok"] == 2
    assert sum(counters["graph_break"].values()) == 1
    counters.clear()


def test_errors_are_torchs_too(installed):
    exc = torch._dynamo.exc

    def breaks(x):
        pliant.graph_break()
        return x + 1

    with pytest.raises(exc.Unsupported, match="PL0019") as caught:
        torch.compile(breaks, fullgraph=True)(torch.ones(3))
    assert "PL0019" in caught.value.msg and caught.value.real_stack and not caught.value.gb_type
    kept = pickle.loads(pickle.dumps(caught.value))
    assert type(kept) is GraphBreakError and kept.args == caught.value.args

    def backend(module, inputs):
        raise ValueError("none")

    with pytest.raises(exc.BackendCompilerFailed) as caught:
        torch.compile(double, backend=backend, fullgraph=True)(torch.ones(3))
    assert isinstance(caught.value.inner_exception, ValueError) and caught.value.backend_name.endswith("backend")
    sums = torch.compile(lambda a, b: a + b)
    sums(torch.ones(2), torch.ones(2))
    with torch._dynamo.config.patch(error_on_recompile=True), pytest.raises(exc.RecompileError):
        sums(torch.ones(2), 1)


def test_errors_are_pliants_alone_without_installing():
    assert GraphBreakError.__bases__ == (PliantError,) and issubclass(RecompileError, RuntimeError)
    with pliant.install():
        assert issubclass(GraphBreakError, torch._dynamo.exc.Unsupported)
    assert GraphBreakError.__bases__ == (PliantError,) and not issubclass(RecompileError, torch._dynamo.exc.RecompileError)


def test_explain_is_torchs_record(installed):
    def two(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    found = torch._dynamo.explain(two)(torch.ones(2))
    assert (found.graph_count, found.graph_break_count, found.op_count) == (2, 1, 2)
    assert "you asked" in str(found).lower() or "PL0019" in str(found)
    assert torch._dynamo.explain(double, torch.ones(2)).graph_count == 1


def test_reset_forgets(installed):
    compiled = torch.compile(double)
    compiled(torch.ones(2))
    assert captures() == 1
    for reset in (torch.compiler.reset, torch._dynamo.reset):
        reset()
        assert captures() == 0
        compiled(torch.ones(2))
        assert captures() == 1


def test_install_twice_and_uninstall():
    assert not room.is_installed()
    outer = pliant.install()
    with pliant.install():
        assert torch.compile is replacements.compile
    assert torch.compile is replacements.compile  # the inner block had installed nothing
    outer.__exit__()
    assert torch.compile is replacements.TORCH_COMPILE and not room.is_installed()
    pliant.uninstall()
    for door in room.DOORS:
        assert "pliant" not in getattr(sys.modules[door.module], door.name).__module__, door


def test_what_others_replaced_since_stays(monkeypatch):
    pliant.install()
    other = lambda model=None, **_: model  # noqa: E731
    monkeypatch.setattr(torch, "compile", other)
    pliant.uninstall()
    assert torch.compile is other
    monkeypatch.undo()
    torch.compile = replacements.TORCH_COMPILE


def run(code: str, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **(env or {})}
    return subprocess.run([sys.executable, *(words or ("-c", code))], env=environment, capture_output=True, text=True, timeout=300)


def test_torchdynamo_is_opened_when_it_comes():
    """Installing imports nothing of it; its doors and counters are ours once the program imports it."""
    said = run(
        "import sys, torch, pliant\n"
        "pliant.install()\n"
        "f = torch.compile(lambda x: x.relu())\n"
        "f(torch.ones(2))\n"
        "assert 'torch._dynamo' not in sys.modules\n"
        "import torch._dynamo\n"
        "from torch._dynamo.utils import counters\n"
        "print(counters['stats']['unique_graphs'], torch._dynamo.optimize.__module__)\n"
        "torch._dynamo.reset()\n"
        "print(pliant.stats()['captures'])\n"
        "pliant.uninstall()\n"
        "print(torch._dynamo.optimize.__module__)\n"
    )
    assert said.stdout.split() == ["1", "pliant.dropin.replacements", "0", "torch._dynamo.eval_frame"], said.stderr


SCRIPT = """
import sys
import torch
print(__name__, sys.argv[1:], torch.compile(lambda x: x * 2)(torch.ones(2)).tolist())
sys.exit(int(sys.argv[1]))
"""


def test_a_script_is_run_unchanged(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    said = run("", "-m", "pliant", "run", "--stats", str(script), "3", "--flag")
    assert said.stdout.strip() == "__main__ ['3', '--flag'] [2.0, 2.0]", said.stderr
    assert said.returncode == 3 and "captures 1" in said.stderr
    (tmp_path / "module_of_mine.py").write_text(SCRIPT)
    said = run("", "-m", "pliant", "run", "-m", "module_of_mine", "0", env={"PYTHONPATH": f"{ROOT}:{tmp_path}"})
    assert said.stdout.strip() == "__main__ ['0'] [2.0, 2.0]" and said.returncode == 0, said.stderr
    script.write_text("import pliant\nraise pliant.PliantError('mine')\n")
    said = run("", "-m", "pliant", "run", str(script))
    assert said.returncode == 1 and "Traceback" in said.stderr and "script.py" in said.stderr


# -- stances and settings ------------------------------------------------------------------------------------------------
replacements_of_torch = torch.compiler.set_stance  # which asks for a stance's name only when something is compiled


@pytest.fixture(params=["ours", "installed", "torchs"])
def set_stance(request):
    """The three ways to say it: pliant's own door, PyTorch's door while installed, and PyTorch's own."""
    if request.param == "installed":
        with pliant.install():
            yield torch.compiler.set_stance
    else:
        yield pliant.set_stance if request.param == "ours" else torch.compiler.set_stance
    pliant.set_stance("default")
    torch._dynamo.set_stance("default")


def test_stances(set_stance):
    x = torch.ones(2)
    compiled = pliant.compile(double, dynamic=False)
    with set_stance("eager_on_recompile"):
        assert compiled(x).tolist() == [2.0, 2.0] and captures() == 0
    with set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match="fail_on_recompile"):
        compiled(x)
    compiled(x)
    with set_stance("fail_on_recompile"):
        compiled(x)  # an entry serves it
        with pytest.raises(RecompileError, match="double"):
            compiled(torch.ones(3))
    with set_stance("eager_then_compile"):
        other = pliant.compile(lambda x: x - 1)
        before = captures()
        other(x)
        assert captures() == before
        other(x)
        assert captures() == before + 1
    if set_stance is not replacements_of_torch:
        with pytest.raises(RuntimeError, match="no such stance"):
            set_stance("no such stance")


def test_force_eager_runs_no_entry():
    x = torch.ones(2)
    compiled = pliant.compile(double)
    compiled(x)

    @pliant.set_stance("force_eager")
    def eagerly():
        before = pliant.stats()["calls"]
        compiled(x)
        return pliant.stats()["calls"] - before

    assert eagerly() == 0
    before = pliant.stats()["calls"]
    compiled(x)
    assert pliant.stats()["calls"] == before + 1
    with pytest.raises(RuntimeError, match="force_backend"):
        pliant.set_stance(force_backend="eager")


def test_settings_of_torchdynamo_that_mean_something():
    x = torch.ones(2)
    config = torch._dynamo.config
    with config.patch(disable=True):
        pliant.compile(lambda x: x + 2)(x)
        assert captures() == 0
    static = pliant.compile(double, dynamic=False)
    static(x)
    with config.patch(error_on_recompile=True), pytest.raises(RecompileError, match="error_on_recompile"):
        static(torch.ones(3))
    with config.patch(recompile_limit=2):
        for n in (3, 4, 5):
            static(torch.ones(n))
    assert captures() == 2
    with config.patch(recompile_limit=1, fail_on_recompile_limit_hit=True):
        failing = pliant.compile(lambda x: x * 3, dynamic=False)
        failing(x)
        with pytest.raises(RecompileError, match="more than 1"):
            failing(torch.ones(3))


def test_recompile_limit_and_isolation():
    limited = pliant.compile(double, dynamic=False, recompile_limit=2)
    for n in range(2, 7):
        assert limited(torch.ones(n)).shape == (n,)
    assert captures() == 2
    failing = pliant.compile(lambda x: x * 3, dynamic=False, recompile_limit=1, fullgraph=True)
    failing(torch.ones(2))
    with pytest.raises(RecompileError, match="more than 1 compiled"):
        failing(torch.ones(3))
    pliant.reset()
    fn = lambda x: x / 2  # noqa: E731
    shared = [pliant.compile(fn) for _ in range(2)]
    own = [pliant.compile(fn, isolate_recompiles=True) for _ in range(2)]
    for f in (*shared, *own):
        assert f(torch.ones(2)).tolist() == [0.5, 0.5]
    assert captures() == 3


def test_a_name_is_said():
    pliant.compile(double, name="stage one")(torch.ones(2))
    assert pliant.events.events("capture_start")[-1].fields["name"] == "stage one: double"


# -- what programs told PyTorch ------------------------------------------------------------------------------------------
def test_marks_of_torch_on_sizes():
    def f(x):
        return x * x.shape[0]

    compiled = pliant.compile(f)
    one = torch.ones(1, 2)
    torch._dynamo.mark_dynamic(one, 0, min=1, max=4)
    for x in (one, torch.ones(3, 2), torch.ones(7, 2)):
        assert torch.equal(compiled(x), f(x))
    assert captures() == 1
    static = torch.ones(3, 2)
    torch._dynamo.mark_static(static, 0)
    fresh = pliant.compile(lambda x: x + 1)
    fresh(static)
    assert all("shape" not in str(e.fields) for e in pliant.events.events("warning"))
    fresh(torch.ones(4, 2))
    assert captures() == 3
    for mark in (torch._dynamo.maybe_mark_dynamic, torch._dynamo.decorators.mark_unbacked):
        x = torch.ones(1, 2)
        mark(x, 0)
        before = captures()
        g = pliant.compile(lambda x: x.sum(1), isolate_recompiles=True)
        g(x), g(torch.ones(5, 2))
        assert captures() == before + 1, mark


def test_a_marked_size_that_is_pinned_is_an_error():
    x = torch.ones(4)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(PliantError, match="mark_dynamic"):
        pliant.compile(lambda x: x.view(4) + 1)(x)
    a, b = torch.ones(4), torch.ones(4)
    torch._dynamo.mark_dynamic(a, 0)
    torch._dynamo.mark_dynamic(b, 0)
    assert pliant.compile(lambda a, b: a + b)(a, b).tolist() == [2.0] * 4  # sizes may be equal


def test_marks_of_torch_on_functions():
    calls = []

    @torch.compiler.assume_constant_result
    def constant():
        calls.append(1)
        return 3

    @torch.compiler.disable
    def hidden(x):
        calls.append("eager" if not torch.compiler.is_compiling() else "captured")
        return x + 1

    class Holder:
        factor = 5

        @torch.compiler.assume_constant_result
        def parts(self):
            calls.append(2)
            return [self.factor, torch.full((2,), 2.0)]

    holder, x = Holder(), torch.ones(2)
    whole = pliant.compile(lambda x: x * constant() * holder.parts()[0] + holder.parts()[1], fullgraph=True)
    assert whole(x).tolist() == [17.0, 17.0] and calls
    calls.clear()
    holder.factor = 7  # the assertion says that this does not happen
    assert [whole(x).tolist() for _ in range(3)] == [[17.0, 17.0]] * 3 and not calls
    given = pliant.compile(lambda x: x * torch.compiler.assume_constant_result(lambda t: float(t.sum()))(x))
    assert given(x).tolist() == [2.0, 2.0] and given(x * 2).tolist() == [8.0, 8.0]  # of tensors nothing is asserted
    broken = pliant.compile(lambda x: hidden(x * 2) * 3)
    assert broken(x).tolist() == [9.0, 9.0] and calls[-1] == "eager"
    assert pliant.events.events("graph_break")[-1].fields["code"] == "PL0021"


def test_allow_in_graph_while_installed(installed):
    @torch.compiler.allow_in_graph
    def opaque(x):
        return x * 2 if isinstance(x, torch.Tensor) else None

    def f(x):
        return opaque(x) + 1

    assert torch.compile(f, fullgraph=True)(torch.ones(2)).tolist() == [3.0, 3.0]


def test_functions_left_whole_without_installing():
    @torch._dynamo.nonstrict_trace
    def scaled(x, settings):
        torch._dynamo.graph_break()  # inside of a function that is left whole, it means nothing
        return x * settings["by"]

    @torch._dynamo.allow_in_graph
    def opaque(x):
        return x * 2 if isinstance(x, torch.Tensor) else None

    compiled = pliant.compile(lambda x: scaled(x + 1, {"by": 3}) + opaque(x), fullgraph=True)
    for n in (2, 5):
        assert compiled(torch.ones(n)).tolist() == [8.0] * n
    assert captures() == 1


def test_disallow_in_graph_while_installed(installed):
    compiled = torch.compile(lambda x: torch.sub(x.relu(), 1) * 2)
    torch._dynamo.disallow_in_graph(torch.sub)
    try:
        assert compiled(torch.ones(2)).tolist() == [0.0, 0.0]
        assert pliant.stats()["graph_breaks"] == 1
    finally:
        torch._dynamo.allow_in_graph(torch.sub)


def test_compiling_inside_of_what_is_compiled(installed):
    def f(x):
        @torch.compile(dynamic=True)
        def inner(x):
            return x + 1

        layer = torch.compile(module)
        return pliant.compile(lambda x: layer(x) * 2)(inner(x))

    module = torch.nn.Linear(3, 3)
    compiled = torch.compile(f, fullgraph=True)
    for n in (2, 4):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x), f(x))


def test_shapes_spec():
    from torch.fx.experimental.dynamic_spec import IntVar, ParamsSpec, SeqSpec, ShapesSpec, ShapeVar, TensorSpec

    rows = ShapeVar("rows", min=1, max=64)
    spec = ParamsSpec({"x": TensorSpec([rows, None]), "ys": SeqSpec([TensorSpec([rows * 2 + 1, None])]), "n": IntVar("n")})

    def f(x, ys, n):
        return x.sum() + ys[0].sum() * n

    compiled = pliant.compile(f, shapes_spec=spec)
    for r, n in ((1, 0), (4, 1), (9, -3)):
        x, y = torch.arange(2.0 * r).reshape(r, 2), torch.ones(2 * r + 1, 2)
        assert torch.equal(compiled(x, [y], n), f(x, [y], n))
    assert captures() == 1
    with pytest.raises(PliantError, match=r"2\*rows"):
        compiled(torch.randn(4, 2), [torch.randn(4, 2)], 1)
    with pytest.raises(PliantError, match="assumptions"):
        pliant.compile(f, shapes_spec=ShapesSpec({"x": None}, assumptions=[rows * 2 > 3]))


def test_compiled_modules_inside_of_compiled_functions():
    """A module that was compiled alone is part of what calls it, in one graph; its changes are seen."""
    layers = [pliant.compile(torch.nn.Linear(3, 3)) for _ in range(3)]

    def f(x):
        for layer in layers:
            x = layer(x)
        return x

    compiled = pliant.compile(f, fullgraph=True)
    x = torch.randn(2, 3)
    with torch.no_grad():
        assert torch.allclose(compiled(x), f(x), atol=1e-6)
        layers[1].weight.add_(1)
        assert torch.allclose(compiled(x), f(x), atol=1e-6)
        layers[1].register_forward_hook(lambda module, args, out: out * 2)
        assert torch.allclose(compiled(x), f(x), atol=1e-6)
        layers[2] = torch.nn.Tanh()
        assert torch.allclose(compiled(x), f(x), atol=1e-6)
