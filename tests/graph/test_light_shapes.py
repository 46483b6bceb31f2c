"""PyTorch's shape functions are asked without the module that imports SymPy, and whoever wants that module has the real one."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

SHAPES = "torch.fx.experimental.symbolic_shapes"
PROGRAM = """
    import sys, threading
    import torch, torch.nn.functional as F
    import pliant
    from pliant.graph import light_shapes

    def fn(x):
        y = F.adaptive_avg_pool2d(x, 4)
        z = torch.cdist(x.flatten(0, 1), x.flatten(0, 1))
        return y, z, x.topk(2).values, torch.fft.rfft(x).real, F.pad(x, (1, 1, 1, 1), mode="reflect")

    compiled = pliant.compile(fn)
    for n in (6, 9, 7):
        x = torch.randn(2, 3, n, n + 1)
        for ours, eager in zip(compiled(x), fn(x)):
            assert torch.allclose(ours, eager, atol=1e-5)
    assert pliant.stats()["graph_breaks"] == 0
"""


def run(more: str) -> None:
    code = textwrap.dedent(PROGRAM) + textwrap.dedent(more)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


def test_sympy_is_not_imported():
    run(f"assert 'sympy' not in sys.modules and '{SHAPES}' not in sys.modules and not hasattr(torch.fx.experimental, 'symbolic_shapes')")


@pytest.mark.parametrize(
    ("imports", "says"),
    [
        (f"import {SHAPES} as m", "type(m.ShapeEnv) is type and m.guard_or_false(True)"),
        (f"from {SHAPES} import ShapeEnv, guard_or_false", "type(ShapeEnv) is type and guard_or_false(True)"),
    ],
    ids=["whole", "by_name"],
)
def test_another_thread_imports_it_meanwhile(imports, says):
    run(f"""
        SHAPES = {SHAPES!r}
        found = []
        def other():
            try:
                scope = {{"sys": sys, "SHAPES": SHAPES}}
                exec({imports!r}, scope)
                found.append(eval({says!r}, scope))
            except BaseException as e:
                found.append(e)
        with light_shapes.shape_functions():
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        assert found == [True], found
        module = sys.modules[SHAPES]
        assert type(module) is type(sys) and torch.fx.experimental.symbolic_shapes is module
        assert compiled(torch.randn(1, 2, 5, 5))[2].shape == (1, 2, 5, 2) and sys.modules[SHAPES] is module
    """)
