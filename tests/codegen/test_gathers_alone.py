"""Operations that read by indices, one alone: kernels (`codegen/cpu/profitability.py`) with eager's answers, layouts and errors."""

from __future__ import annotations

import pytest
import torch

import pliant
from tests import helpers

CASES = {
    "rows": lambda x, i: x[i],
    "columns": lambda x, i: x[:, i],
    "pairs": lambda x, i: x[i, i],
    "turned": lambda x, i: x.t()[i],
    "mask": lambda x, i: x[x[:, 0] > 0],
    "index_select": lambda x, i: x.index_select(1, i),
    "gather": lambda x, i: x.gather(0, i[:, None].expand(-1, 3)),
    "embedding": lambda x, i: torch.nn.functional.embedding(i, x),
}
WHERE = ([0, 1, 2], [2, 2, 0], [1], [], [-1, 0, 1], [5, 0, 1])


def outcome(fn, *args):
    try:
        out = fn(*args)
    except Exception as e:
        return type(e), str(e)
    return out.dtype, out.stride(), out.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64])
@pytest.mark.parametrize("name", CASES)
def test_answers_and_errors_are_those_of_eager(name, dtype):
    fn = CASES[name]
    compiled = helpers.compiled(fn)
    x = torch.tensor([[1.0, 0.0, -2.0], [-1.0, 3.0, 0.0], [0.5, 0.0, 7.0]]).to(dtype)
    for kind in (torch.int64, torch.int32):
        for at in WHERE:
            i = torch.tensor(at, dtype=kind)
            if name == "gather" and kind is torch.int32:
                i = i[:1]
            assert outcome(compiled, x, i) == outcome(fn, x, i), (kind, at)
    assert pliant.stats()["fallbacks"] == 0
