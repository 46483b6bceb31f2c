"""Memory of arrays that NumPy makes of others that are not row-major: the strides are NumPy's, or the graph breaks."""

from __future__ import annotations

import random

import numpy as np
import pytest

import pliant

OF_AXES = "sum mean prod max min std var any all median nansum nanmean count_nonzero average cumsum cumprod argmax diff flip".split()
FUNCTIONS = {
    **{name: lambda a, axis, name=name: getattr(np, name)(a, axis=axis) for name in OF_AXES},
    "sum, kept": lambda a, axis: np.sum(a, axis=axis, keepdims=True),
    "mean, kept": lambda a, axis: a.mean(axis, keepdims=True),
    "sort": lambda a, axis: np.sort(a, axis=axis),
    "argsort": lambda a, axis: np.argsort(a, axis=axis),
    "argsort, stable": lambda a, axis: a.argsort(axis, kind="stable"),
    "roll": lambda a, axis: np.roll(a, 1, axis=axis),
    "roll of all": lambda a, axis: np.roll(a, 1),
    "quantile": lambda a, axis: np.quantile(a, 0.5, axis=axis),
    "fft": lambda a, axis: np.fft.fft(a, axis=axis),
    "rfft": lambda a, axis: np.fft.rfft(a, axis=axis),
    "take": lambda a, axis: np.take(a, [0, 1], axis=axis),
    "repeat": lambda a, axis: np.repeat(a, 2, axis=axis),
    "concatenate": lambda a, axis: np.concatenate([a, a], axis=axis),
    "concatenate, of two orders": lambda a, axis: np.concatenate([a, np.ascontiguousarray(a)], axis=axis),
    "stack": lambda a, axis: np.stack([a, a], axis=axis),
    "hstack": lambda a, axis: np.hstack([a, a]),
    "vstack": lambda a, axis: np.vstack([a, a]),
    "dstack": lambda a, axis: np.dstack([a, a]),
    "column_stack": lambda a, axis: np.column_stack([a, a]),
    "vstack of rows": lambda a, axis: np.vstack(a[0]),
    "zeros_like": lambda a, axis: np.zeros_like(a),
    "zeros_like in rows": lambda a, axis: np.zeros_like(a, order="C"),
    "ones_like in rows, by place": lambda a, axis: np.ones_like(a, None, "C"),
    "full_like": lambda a, axis: np.full_like(a, 3),
    "copy": lambda a, axis: np.copy(a),
    "copy in rows": lambda a, axis: np.copy(a, order="C"),
    "copy()": lambda a, axis: a.copy(),
    "__copy__": lambda a, axis: a.__copy__(),
    "array": lambda a, axis: np.array(a),
    "astype": lambda a, axis: a.astype("f4"),
    "asarray in rows": lambda a, axis: np.asarray(a, order="C"),
    "pad": lambda a, axis: np.pad(a, 1),
    "tile": lambda a, axis: np.tile(a, 2),
    "round": lambda a, axis: np.round(a, 1),
    "clip": lambda a, axis: np.clip(a, 1, 5),
    "where": lambda a, axis: np.where(a > 2, a, 0),
    "triu": lambda a, axis: np.triu(a),
    "matmul": lambda a, axis: a @ a.swapaxes(-1, -2),
    "dot": lambda a, axis: np.dot(a, a.T) if a.ndim == 2 else a,
    "dot()": lambda a, axis: a.dot(np.ones((a.shape[-1], 2))),
    "inner": lambda a, axis: np.inner(a, a),
    "tensordot": lambda a, axis: np.tensordot(a, a, axes=([0], [0])),
    "outer": lambda a, axis: np.outer(a, a),
    "cov": lambda a, axis: np.cov(a) if a.ndim == 2 else a,
    "take_along_axis": lambda a, axis: np.take_along_axis(a, np.argsort(a, axis=-1), axis=-1),
    "norm": lambda a, axis: np.linalg.norm(a, axis=axis),
    "ufunc": lambda a, axis: np.negative(a) + 1,
    "of two orders": lambda a, axis: a + np.ascontiguousarray(a),
    "of two orders, from the right": lambda a, axis: np.ascontiguousarray(a) * a,
    "a row beside": lambda a, axis: a + a[0],
    "a column beside": lambda a, axis: a[..., :1] - a,
    "nonzero": lambda a, axis: np.nonzero(a)[0],
}


def permuted(sizes: tuple[int, ...], order: random.Random, dtype: str) -> np.ndarray:
    """Numbers in an array whose axes lie in memory in another order."""
    axes = list(range(len(sizes)))
    order.shuffle(axes)
    a = np.arange(int(np.prod(sizes))).reshape([sizes[i] for i in axes])
    return a.transpose(np.argsort(axes)).astype(dtype)


def steps(a: np.ndarray) -> list[int]:
    return [s for n, s in zip(a.shape, a.strides, strict=True) if n > 1]  # those of one element are a known difference


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_made_lies_as_numpys_does(name):
    fn = FUNCTIONS[name]
    for number, sizes in enumerate([(3, 4), (2, 3, 4), (4, 2, 3), (2, 4, 3, 3)]):
        seed = f"{name} {number}"
        axis = number % 2 if number < 3 else -1
        compiled = pliant.compile(lambda a, axis=axis: fn(a, axis))
        for more in (0, 0, 1):
            a = permuted(tuple(n + more for n in sizes), random.Random(seed), ("f8", "f4", "i8", "f8")[number])
            mine, theirs = compiled(a), fn(a, axis)
            assert type(mine) is type(theirs)
            assert mine.dtype == theirs.dtype
            assert steps(mine) == steps(theirs), (a.shape, a.strides, axis)
            assert np.allclose(mine, theirs)
        pliant.reset()


REFUSED = {
    "sort, asked twice": lambda a: np.sort(a, kind="stable", stable=True),
    "argsort, asked twice": lambda a: np.argsort(a, kind="mergesort", stable=True),
    "reshape without a shape": lambda a: a.reshape(),
    "copy in an unknown order": lambda a: a.copy(2),
    "__copy__ of something": lambda a: a.__copy__(1),
    "__deepcopy__ without a memory": lambda a: a.__deepcopy__(),
    "fill with an array": lambda a: a.fill(a),
    "take nothing": lambda a: np.take(a, None),
    "limits of an array": lambda a: np.finfo(a),
    "limits of an array of integers": lambda a: np.iinfo(a.astype("i4")),
    "promotion of an array": lambda a: np.promote_types(a, 1),
    "no flag": lambda a: np.ones_like(a, subok=None),
    "no flag, of astype": lambda a: a.astype("f4", subok=None),
    "no copy of another dtype": lambda a: np.array(a, dtype="i2", copy=False),
    "an average of nothing": lambda a: np.average(a[:0], axis=-1) if a.ndim > 1 else np.average(a[:0]),
    "a product of vectors in place": lambda a: a[0].__imatmul__(a[0]),
    "swapaxes by name": lambda a: a.swapaxes(axis1=0, axis2=1),
}
GIVEN = {
    "count over no axes": lambda a: np.count_nonzero(a, axis=()),
    "quantile of integers, an integer": lambda a: np.quantile(a.astype("i4"), 1),
    "quantile of integers, one of NumPy's": lambda a: np.quantile(a.astype("i4"), np.int64(0), axis=0),
    "covariance of one row": lambda a: np.cov(a[:1]),
    "covariance of nothing": lambda a: np.cov(a[0, :0]),
    "union with a number": lambda a: np.union1d(a.astype("u1"), 1),
    "triangle of uint32": lambda a: np.triu(a.astype("u4")),
    "isin of uint16": lambda a: np.isin(a.astype("u2"), np.array([1, 2], "u2")),
    "places along an axis, of uint32": lambda a: np.take_along_axis(a.astype("u4"), np.argsort(a, axis=-1), axis=-1),
    "greatest of uint64": lambda a: np.maximum(a.astype("u8"), a.astype("u8")[::-1]).max(axis=0),
}


@pytest.mark.parametrize("name", {**REFUSED, **GIVEN})
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_numpy_refuses_and_what_it_answers(name):
    fn = {**REFUSED, **GIVEN}[name]

    def program(a):
        try:
            return fn(a)
        except Exception as e:
            return type(e).__name__

    compiled = pliant.compile(program)
    for rows in (2, 2, 3, 4):
        a = np.arange(rows * 3, dtype="f8").reshape(rows, 3)
        mine, theirs = compiled(a.copy()), program(a.copy())
        assert type(mine) is type(theirs), (mine, theirs)
        assert (name in REFUSED) == (type(theirs) is str)
        if type(theirs) is str:
            assert mine == theirs
        else:
            assert mine.dtype == theirs.dtype and mine.shape == theirs.shape and np.array_equal(mine, theirs, equal_nan=True)


def test_the_order_of_bytes_is_no_other_arrays():
    def fn(a):
        return a.sum(), a.dtype.str, a.dtype.byteorder

    compiled = pliant.compile(fn)
    for dtype in (">f4", "<f4", ">f4", "<f4"):
        a = np.array([3.5, 1.25], dtype)
        assert compiled(a) == fn(a)
