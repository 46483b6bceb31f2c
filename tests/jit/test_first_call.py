"""What a process loads for its first compiled call (neither TorchDynamo nor sympy, which take half a second and more), and how it ends."""

from __future__ import annotations

import ast
import os
import pathlib
import re
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import torch
import pliant

heavy = ("torch._dynamo", "torch._inductor", "sympy", "torch.fx.experimental.symbolic_shapes")
assert not [m for m in heavy if m in sys.modules], "PyTorch itself loads them: this test has lost its sense"
backend = sys.argv[1]

def told(what):
    found = [m for m in heavy if m in sys.modules]
    assert not found, f"{what} loads {found}"

with torch.no_grad():
    pliant.compile(lambda x: (x.transpose(0, 1) @ x + 1).softmax(-1), backend=backend, strict=True)(torch.ones(4, 4))
told("inference")
layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.GELU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
net = pliant.compile(torch.nn.Sequential(*layers, torch.nn.Linear(8, 5)), backend=backend, strict=True)
torch.nn.functional.cross_entropy(net(torch.randn(3, 3, 8, 8)), torch.tensor([0, 1, 2])).backward()
told("training")
pliant.compile(lambda x: (x[x > 0].sum(), torch.zeros(int((x > 0).sum().item()))), backend=backend, strict=True)(torch.randn(9))
told("data-dependent sizes")
block = pliant.compile(torch.nn.TransformerEncoderLayer(16, 2, batch_first=True), backend=backend, strict=True)
block(torch.randn(2, 5, 16)).sum().backward()
told("a transformer block")
assert pliant.stats()["captures"] >= 4
"""


@pytest.mark.parametrize("backend", ["aten", "native"])
def test_nothing_heavy_is_loaded(backend):
    done = subprocess.run([sys.executable, "-c", PROGRAM, backend], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


IMPORT = """
import gc
import inspect
import sys
import traceback
import torch
import torch.distributed._functional_collectives  # which looks itself

found = []
inspect.getmodule = lambda *args: found.append(traceback.format_stack())  # it reads the name of each module's file
collections = []
gc.callbacks.append(lambda phase, info: collections.append(info["generation"]))
if sys.argv[1] == "off":
    gc.disable()
import pliant

assert not found, found[0]
assert max(collections, default=0) == 0, "the import looks through what others have made"
assert gc.isenabled() is (sys.argv[1] == "on")
young = len(gc.get_objects(generation=0)) + len(gc.get_objects(generation=1))
assert young < 10000, f"the next collections look through {young} objects that the import has made"
pliant.compile(lambda x: x + 1, backend="aten", background=False)(torch.ones(3))
assert "llvmlite" not in sys.modules, "without machine code nothing that makes it is loaded"
pliant.compile(lambda x: x + 1, backend="native", background=False)
assert "llvmlite" in sys.modules, "what makes code is loaded before the first call"
"""


@pytest.mark.parametrize("collector", ["on", "off"])
def test_the_import_leaves_alone_what_is_there(collector):
    done = subprocess.run([sys.executable, "-c", IMPORT, collector], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


LATER = """
import sys
import torch
import pliant

assert not [m for m in sys.modules if m in ("torch.distributed._functional_collectives", "torch.nn.attention.flex_attention", "optree")]
assert not [m for m in sys.modules if m.startswith("pliant.jit.verify.")]
pliant.compile(lambda x: x + 1, backend="aten", background=False)(torch.ones(3))  # before the program imports what is replaced

from torch.distributed import _functional_collectives as functional
from torch.nn.attention.flex_attention import flex_attention

def program(q):
    return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + i - j)

fn = pliant.compile(program, backend="aten", background=False, fullgraph=True)
for n in (5, 7):
    q = torch.randn(2, 3, n, 8)
    at = torch.arange(n)
    torch.testing.assert_close(fn(q), (q @ q.mT / 8**0.5 + at[:, None] - at).softmax(-1) @ q)
assert pliant.stats()["graph_breaks"] == 0

from pliant.interpret.calls import LOOKASIDES
assert functional._resolve_group in LOOKASIDES and functional.permute_tensor in LOOKASIDES
assert pliant.compile(lambda x: x + 1, backend="aten", background=False, verify=1.0)(torch.ones(3)).tolist() == [2.0] * 3
"""


def test_what_few_programs_need_is_imported_when_they_do():
    done = subprocess.run([sys.executable, "-c", LATER], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_the_readmes_first_program_says_what_the_readme_says_and_ends_well(tmp_path):
    """Default settings: a thread compiles, entries go to disk. The exit code also tells of what is torn down behind Python's end."""
    readme = pathlib.Path(__file__).parents[2] / "README.md"
    found = re.search(r"## A first program\s+```python\n(.*?)```", readme.read_text(), re.DOTALL)
    assert found is not None
    env = {name: value for name, value in os.environ.items() if not name.startswith("PLIANT_")} | {"PLIANT_CACHE_DIR": str(tmp_path)}
    for expected in ({"captures": 1, "recompiles": 0, "graph_breaks": 0, "from_disk": 0}, {"captures": 0, "from_disk": 1}):
        done = subprocess.run([sys.executable, "-c", found[1]], capture_output=True, text=True, timeout=240, env=env)
        assert done.returncode == 0, done.stderr
        assert expected.items() <= ast.literal_eval(done.stdout).items()
