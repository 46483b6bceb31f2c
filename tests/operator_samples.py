"""PyTorch's own operators with their samples (`op_db`), drawn one by one: their test runner's bookkeeping of each sample is left out."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch

pytest.importorskip("expecttest", reason="PyTorch's operator samples need it")
from torch.testing._internal import common_utils  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db as op_db  # noqa: E402

common_utils.extract_test_fn = lambda: None  # it reads the source of every frame below, to find a `TestCase` that is not there


def samples(op: Any, dtype: torch.dtype, count: int, requires_grad: bool = False) -> list[Any]:
    """The first samples of an operator on the CPU, at most `count`."""
    return list(islice(op.sample_inputs("cpu", dtype, requires_grad=requires_grad), count))
