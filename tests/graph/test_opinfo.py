"""PyTorch's own operator samples through capture: metadata and values as eager's, sizes static and sizes symbolic."""

from __future__ import annotations

import os
import warnings
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_map

from pliant.graph.traced import Untraceable, is_limit
from pliant.symbolic import DataDependent
from tests.graph.harness import Captured, describe_all, replay
from tests.graph.verify import verify_trace
from tests.operator_samples import op_db
from tests.operator_samples import samples as samples_of

SAMPLES = int(os.environ.get("PLIANT_OPINFO_SAMPLES", "2"))

#: Operators of which no sample can be captured, with the reason. Others may refuse single samples, never all.
REFUSED = {
    "equal": "a branch on data",
    "cov": "a branch on data",
    "corrcoef": "a branch on data",
    "allclose": "a branch on data",
    "linalg.lstsq": "no shape function",
    "geqrf": "no shape function",
    "resize_": "changes memory",
    "resize_as_": "changes memory",
    "histogram": "no shape function",
    "histogramdd": "no shape function",
    "to_sparse": "sparse results",
    "nn.functional.gaussian_nll_loss": "a branch on data",
    "nn.functional.ctc_loss": "no shape function",
    "tensor_split": "reads the data of its indices",
}


def copied(values: Any) -> Any:
    return tree_map(lambda t: t.detach().clone(memory_format=torch.preserve_format) if isinstance(t, torch.Tensor) else t, values)


def samples(op: Any, dtype: torch.dtype) -> list[tuple[tuple, dict]]:
    """Dense samples that eager accepts."""
    out = []
    for s in samples_of(op, dtype, SAMPLES):
        call = (s.input, *s.args), s.kwargs
        if all(t.layout is torch.strided for t in tree_flatten(call)[0] if isinstance(t, torch.Tensor)):
            out.append(call)
    return out


def run_one(op: Any, args: tuple, kwargs: dict, dynamic: Any) -> bool:
    """Capture one sample, compare; False if it was refused."""
    try:
        args_copy, kwargs_copy = copied((args, kwargs))
        torch.manual_seed(42)
        want = op.op(*args_copy, **kwargs_copy)
    except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError):
        return True
    try:
        args_copy, kwargs_copy = copied((args, kwargs))
        c = Captured(op.op, args_copy, dynamic=dynamic, kwargs=kwargs_copy)
    except (Untraceable, DataDependent):
        return False
    except RuntimeError as e:
        if is_limit(e):
            return False
        raise
    env = dict(c.symbols)
    torch.manual_seed(42)
    with torch.no_grad():
        got = replay(c.trace, {t.vid: copied(r) for t, r in c.inputs}, env, c.out)
    assert describe_all(c.out, env) == describe_all(want, {}), f"{op.name} {args} {kwargs}\n{c.trace}"
    verify_trace(c.trace, outputs=c.out)
    if "empty" not in op.name:
        for x, y in zip(tree_flatten(got)[0], tree_flatten(want)[0]):
            if isinstance(y, torch.Tensor):
                torch.testing.assert_close(x, y.detach(), equal_nan=True)
    return True


@pytest.mark.parametrize("sizes", ["static", "symbolic"])
@pytest.mark.parametrize("op", [op for op in op_db if "jiterator" not in op.name], ids=lambda op: f"{op.name}.{op.variant_test_name}")
def test_operator(op: Any, sizes: str) -> None:
    dynamic = (lambda x, d, s: True) if sizes == "symbolic" else None
    told = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in (torch.float32, torch.int64):
            if dtype in op.supported_dtypes("cpu"):
                told += [run_one(op, args, kwargs, dynamic) for args, kwargs in samples(op, dtype)]
    assert not told or any(told) or op.name in REFUSED, "no sample could be captured"
