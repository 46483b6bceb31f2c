"""Operands whose sizes do not fit, of operators whose shape functions in PyTorch pass them: eager raises, whoever reads the result."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tests.helpers import compiled

aten = torch.ops.aten
ROWS = torch.tensor([0, 1])

#: By name: the function, sizes of its operands that fit, and some that do not.
MISFITS = {
    "addmm": (torch.addmm, [(2, 4), (2, 3), (3, 4)], [(1, 2, 4), (2, 3), (3, 4)]),
    "addmv": (torch.addmv, [(2,), (2, 3), (3,)], [(1, 2), (2, 3), (3,)]),
    "index_reduce_": (lambda x, s: x.clone().index_reduce_(0, ROWS, s, "prod"), [(4, 3), (2, 3)], [(4, 3), (5, 3)]),
    "index_reduce_ of others": (lambda x, s: x.clone().index_reduce_(0, ROWS, s, "amax"), [(4, 3), (2, 3)], [(4, 3), (2, 4)]),
    "index_add_ by columns": (lambda x, s: x.clone().index_add_(1, ROWS, s), [(4, 3), (4, 2)], [(4, 3), (5, 2)]),
    "select_scatter": (lambda x, s: x.select_scatter(s, 0, 1), [(4, 3), (3,)], [(4, 3), (4,)]),
    "select_scatter of a column": (lambda x, s: x.select_scatter(s, 1, 1), [(4, 3), (4,)], [(4, 1), (4,)]),
    "slice_scatter": (lambda x, s: x.slice_scatter(s, 0, 1, 3), [(4, 3), (2, 3)], [(2, 3), (2, 3)]),
    "diagonal_scatter": (lambda x, s: x.diagonal_scatter(s), [(4, 3), (3,)], [(4, 3), (4,)]),
    "diagonal_scatter of a vector": (lambda x, s: x.diagonal_scatter(s), [(4, 3), (3,)], [(4,), (3,)]),
    "_softmax_backward_data": (lambda g, y: aten._softmax_backward_data(g, y, 0, torch.float32), [(4, 3), (4, 3)], [(4, 3), (4, 2)]),
    "native_group_norm": (lambda x, w: torch.native_group_norm(x, w, None, 2, 4, 3, 2, 1e-5), [(2, 4, 3), (4,)], [(2, 4, 5), (4,)]),
    "soft_margin_loss": (F.soft_margin_loss, [(4, 3), (3,)], [(3,), (4, 3)]),
    "bucketize": (torch.bucketize, [(4, 3), (3,)], [(4, 3), (1, 3)]),
    "ormqr": (torch.ormqr, [(4, 4), (4,), (4, 4)], [(4, 4), (2,), (4, 4)]),
    "as_strided_copy": (lambda x: torch.as_strided_copy(x, (2, 2), (1, 2)), [(4,)], [(3,)]),
    "conv1d's channels": (F.conv1d, [(1, 3, 5), (2, 3, 2), (2,)], [(1, 2, 5), (2, 3, 2), (2,)]),
    "conv2d's bias": (F.conv2d, [(1, 3, 5, 4), (2, 3, 2, 2), (2,)], [(1, 3, 5, 4), (2, 3, 2, 2), (3,)]),
    "conv2d's bias, a number": (F.conv2d, [(1, 3, 5, 4), (2, 3, 2, 2), (2,)], [(1, 3, 5, 4), (2, 3, 2, 2), ()]),
    "conv1d's features": (F.conv1d, [(1, 3, 5), (2, 3, 2), (2,)], [(1, 3, 5), (0, 3, 2), (0,)]),
    "conv1d's groups": (lambda x, w: F.conv1d(x, w, groups=2), [(1, 4, 5), (4, 2, 2)], [(1, 4, 5), (3, 2, 2)]),
    "conv3d's window": (F.conv3d, [(1, 3, 5, 4, 4), (2, 3, 2, 2, 2)], [(1, 3, 5, 4, 1), (2, 3, 2, 2, 2)]),
    "conv_transpose1d's channels": (F.conv_transpose1d, [(1, 3, 5), (3, 2, 2), (2,)], [(1, 4, 5), (3, 2, 2), (2,)]),
    "conv_transpose2d's bias": (F.conv_transpose2d, [(3, 5, 4), (3, 2, 2, 2), (2,)], [(3, 5, 4), (3, 2, 2, 2), (1, 2)]),
    "conv_transpose2d's window": (lambda x, w: F.conv_transpose2d(x, w, None, 1, 2), [(1, 3, 5, 4), (3, 2, 3, 3)],
        [(1, 3, 5, 1), (3, 2, 3, 3)]),
    "conv_transpose1d's output padding": (lambda x, w: F.conv_transpose1d(x, w, None, 1, 0, x.shape[0]), [(0, 3, 5), (3, 2, 2)],
        [(2, 3, 5), (3, 2, 2)]),
}  # fmt: skip


def said(fn, *args):
    try:
        return fn(*args)
    except (RuntimeError, IndexError) as e:
        return type(e), str(e)


@pytest.mark.parametrize("name", MISFITS)
def test_nobody_reads_the_result(name):
    of, right, wrong = MISFITS[name]

    def unread(x, *operands):
        of(*operands)
        return x * 2

    def tried(x, *operands):
        try:
            of(*operands)
        except (RuntimeError, IndexError):
            return x * 3
        return x * 2

    for fn in (unread, tried):
        c, raised = compiled(fn), []
        for sizes in (right, wrong, right, wrong):
            given = [torch.ones(2), *[torch.rand(s) for s in sizes]]
            eager, ours = said(fn, *given), said(c, *given)
            assert type(eager) is type(ours)
            if isinstance(eager, tuple):
                assert eager == ours
                raised.append(fn)
            else:
                assert torch.equal(eager, ours)
        assert bool(raised) is (fn is unread)
