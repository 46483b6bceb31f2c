"""`out=`: results written to a tensor of the program's, of the right and of other sizes and dtypes."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest
import torch

from tests.helpers import check
from tests.programs.registry import t

FUNCTIONS = {
    "add": lambda x, y, out: torch.add(x, y, out=out),
    "add a number": lambda x, y, out: torch.add(x, 2, alpha=3, out=out),
    "mul in place": lambda x, y, out: torch.mul(x, y, out=x),
    "to a view": lambda x, y, out: torch.sub(x, y, out=out.t().t()),
    "abs": lambda x, y, out: torch.abs(x, out=out),
    "maximum": lambda x, y, out: torch.maximum(x, y[0], out=out),
    "gt": lambda x, y, out: torch.gt(x, y, out=torch.empty(x.shape, dtype=torch.bool)),
    "sum": lambda x, y, out: torch.sum(x, 0, out=out[0]),
    "mm": lambda x, y, out: torch.mm(x, y.t(), out=x.new_empty(x.shape[0], x.shape[0])),
    "cat": lambda x, y, out: torch.cat([x, y], out=x.new_empty(2 * x.shape[0], x.shape[1])),
    "to int": lambda x, y, out: torch.add(x, y, out=torch.empty(x.shape, dtype=torch.int64)),
    "to double": lambda x, y, out: torch.add(x, y, out=out.double()),
    "resized": lambda x, y, out: torch.add(x, y, out=torch.empty(0)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_out(name):
    fn = FUNCTIONS[name]

    def program(x, y, out):
        r = fn(x, y, out)
        return r + 1, out * 2, r is out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a tensor with elements that is resized
        check(program, *[(t(n, 3), t(n, 3) - 1, torch.zeros(n, 3)) for n in (2, 4, 2, 5)], (t(2, 3), t(2, 3), torch.zeros(4, 3)),
            must_compile=False)


APART = """
import sys, torch, pliant
seen = []

def items(x):
    try:
        yield x
    finally:
        seen.append("closed")

@pliant.compile(backend="aten", strict=True)
def program(x):
    for t in items(x):
        out = torch.empty(2, 3)
        {call}
        break
    seen.append("behind")
    return out

program(torch.ones(2, 3))
print(*seen, "torch._dynamo" in sys.modules)
"""


@pytest.mark.parametrize(
    ("call", "imported"), [("torch.add(x, x, out=out)", "False"), ("torch.special.erfcx(x, out=out.double())", "")], ids=["rule", "meta"]
)
def test_nothing_is_imported_that_keeps_frames(call, imported):
    """In a process of its own: PyTorch's Python code for such overloads imports TorchDynamo, and leaves cycles that hold frames."""
    run = subprocess.run([sys.executable, "-c", APART.format(call=call)], capture_output=True, text=True, check=True)
    assert run.stdout.startswith(f"closed behind {imported}"), run.stdout


@pytest.mark.parametrize("fn", [
    lambda x, a, b: torch.max(x, 1, out=(a, b)),
    lambda x, a, b: (torch.cat([x, x], out=a), torch.argmax(x, 0, out=b)),
    lambda x, a, b: torch.rand(x.shape, out=a),
    lambda x, a, b: torch.add(x, 1, out=b),  # an int tensor takes no floats
])
def test_out_without_elements(fn):
    def program(x):
        a, b = torch.empty(0), torch.empty(0, dtype=torch.int64)
        try:
            r = fn(x, a, b)
        except RuntimeError as e:
            return type(e)
        a.add_(1)
        return r, a, b, a.shape, x * 2

    check(program, *[(t(n, 4),) for n in (3, 5, 2)])
