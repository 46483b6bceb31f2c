"""Whether a backward part is linear in the gradients that arrive, as autograd's own formulas are.

Where it is differentiated, gradients arrive at its results (again) and at its inputs by different ways, of which eager adds up some before
a hook or an `autograd.Function` sees them. That makes no difference if these are linear. What is not known to be linear is taken not to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pliant.graph.originals import ORIGINAL
from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness

FULL = {"scalar_tensor": 0, "full": 1}
ZEROS = frozenset("zeros zeros_like new_zeros zero zero_".split())
EMPTY = frozenset("empty empty_like empty_strided new_empty new_empty_strided".split())
SHAPE_ALONE = frozenset("zeros_like ones_like empty_like new_zeros new_ones new_empty new_full full_like new_empty_strided".split())
OF_THE_FIRST = frozenset(
    """neg clone _to_copy contiguous sum mean cumsum flip roll tril triu index gather index_select repeat div reshape _reshape_copy
    _unsafe_view _conj_physical conj_physical masked_select to nansum unsqueeze squeeze t transpose swapaxes swapdims diag_embed trace take
    col2im im2col pixel_shuffle pixel_unshuffle channel_shuffle rot90 _fft_c2c _fft_r2c _fft_c2r""".split()
)
"""Linear in their first argument, whatever the others are."""
PRODUCTS = frozenset("mul mm bmm matmul mv dot vdot outer ger convolution linear kron cross _trilinear".split())
"""Linear in each argument."""
SUMS = frozenset(
    """add sub cat stack where index_put _index_put_impl _unsafe_index_put index_add index_copy put scatter_add scatter select_scatter
    slice_scatter copy""".split()
)
"""Linear in all their arguments together."""
OF_THE_SECOND = frozenset("linalg_solve_triangular _linalg_solve_ex".split())
"""Linear in their second argument."""
NUMBERS = {"masked_fill": 2, "index_fill": 3, "constant_pad_nd": 2}
"""Where a number is filled in, which has to be 0, or a tensor."""


def linear(ops: Iterable[Op], tangents: Sequence[TracedTensor], grads: Sequence[Any]) -> bool:
    """Whether `grads`, which `ops` make, are known to be linear in `tangents`."""
    moving, memory = {t.vid for t in tangents}, {t.storage_id for t in tangents}
    unwritten: set[int] = set()

    def moves(v: Any) -> bool:
        return type(v) is TracedTensor and (v.vid in moving or v.storage_id in memory)

    for op in ops:
        name = op.target._schema.name.removeprefix("aten::")
        given = [*op.args, *op.kwargs.values()]
        if not any([moves(t) for t in liveness.op_inputs(op)]) or name in SHAPE_ALONE:
            if name in ZEROS or name in FULL and is_zero(given[FULL[name]]):  # which are linear in anything
                moving.update(t.vid for t in liveness.op_outputs(op))
                memory.update(t.storage_id for t in liveness.op_outputs(op))
            if name in EMPTY:
                unwritten.update(t.vid for t in liveness.op_outputs(op))
            continue
        if name == "copy_" and type(given[0]) is TracedTensor and given[0].vid in unwritten:
            given = given[1:]
        if not kept_linear(name.removesuffix("_"), op, given, moves):
            return False
        made = [t for t in liveness.op_outputs(op) if is_number(t)]
        moving.update(t.vid for t in made)
        memory.update(t.storage_id for t in (*made, *liveness.written(op)))
    return all([g is None or moves(g) for g in grads])


def is_number(t: TracedTensor) -> bool:
    """Not an index or a mask."""
    return ORIGINAL.is_floating_point(t) or ORIGINAL.is_complex(t)


def is_zero(v: Any) -> bool:
    return type(v) in (int, float) and v == 0


def kept_linear(name: str, op: Op, given: list[Any], moves: Callable[[Any], bool]) -> bool:
    """Whether an operation on what is linear gives what is linear."""
    first_alone = moves(given[0]) and not any([moves(t) for v in given[1:] for t in liveness.tensors_of([v])])
    if name in PRODUCTS:
        return sum([moves(v) for v in given]) == 1
    if name in SUMS:
        condition = moves(given[0]) and name == "where"
        values = [t for v in given[name == "where" :] for t in liveness.tensors_of([v]) if is_number(t)]
        scalar = name in ("add", "sub", "where", "scatter") and len([v for v in given if type(v) is TracedTensor]) < 2
        return not condition and not scalar and all(map(moves, values))
    if name in NUMBERS:
        filled = given[NUMBERS[name]] if NUMBERS[name] < len(given) else 0
        return moves(given[0]) and (is_zero(filled) or moves(filled))
    if name in OF_THE_SECOND:
        return moves(given[1]) and not moves(given[0])
    if name in OF_THE_FIRST or name.endswith(("_backward", "_backward_data")):
        return first_alone
    returns = op.target._schema.returns
    view = bool(returns) and all([r.alias_info is not None and not r.alias_info.is_write for r in returns])
    return first_alone and (view or name in ("detach", "alias"))
