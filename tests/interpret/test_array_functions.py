"""The tables of `interpret/arrays` against NumPy: dtypes, shapes, values at the edges; exact for ints and bools,
        within rounding for floats.

Each case is compiled once and called on several arrays; it must not break the graph unless it says so, must return what NumPy returns
(types, dtypes, shapes, values, whether it may be written to, whether it shares memory with an argument), and must leave arguments alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pliant
from pliant.interpret.arrays import ufuncs
from pliant.interpret.arrays.table import FUNCTIONS

INTS = ("int8", "int32", "int64", "uint8")
FLOATS = ("float32", "float64")
ALL = ("bool", *INTS, "float16", *FLOATS)
SHAPES = ((7,), (3, 4), (33,), (0,), (2, 0))
FILLED = ((7,), (3, 4), (33,), (2, 3, 4))
TOLERANCE = {2: 4e-3, 4: 4e-6, 8: 1e-12}


def values(dtype: str, shape: tuple[int, ...], seed: int, tame: bool = False) -> np.ndarray:
    """Values of a dtype, those at its edges among them; `tame`: small ones only."""
    rng, dt, n = np.random.default_rng(seed), np.dtype(dtype), int(np.prod(shape))
    if dt.kind == "b":
        return rng.integers(0, 2, n).astype(bool).reshape(shape)
    if dt.kind == "c":
        return (rng.normal(size=n) + 1j * rng.normal(size=n)).astype(dt).reshape(shape)
    if dt.kind in "iu":
        info = np.iinfo(dt)
        pool = [0, 1, 2, 3, 7, 5, 100] + ([] if tame else [info.max, info.min, info.max - 1]) + ([] if dt.kind == "u" else [-1, -7])
    else:
        pool = [0.0, 1.0, -1.0, 2.5, -3.5, 0.5, 100.0, 1e-3, 7.0, -2.0] + ([] if tame else [np.nan, np.inf, -np.inf, -0.0])
    return rng.choice(np.array(pool, dtype=dt), n).reshape(shape)


def differs(want: Any, got: Any) -> str:
    """What is not the same; "" if nothing."""
    if type(want) is not type(got):
        return f"type: {type(want)}, {type(got)}"
    if isinstance(want, (tuple, list)):
        return f"length {len(want)}, {len(got)}" if len(want) != len(got) else next(filter(None, map(differs, want, got)), "")
    if isinstance(want, torch.Tensor):
        want, got = want.numpy(), got.numpy()
    if not isinstance(want, (np.ndarray, np.generic)):
        return "" if want == got or want != want else f"{want!r}, {got!r}"
    if want.dtype != got.dtype or want.shape != got.shape:
        return f"{want.dtype}{want.shape}, {got.dtype}{got.shape}"
    if isinstance(want, np.ndarray) and want.flags.writeable != got.flags.writeable:
        return f"writeable: {want.flags.writeable}, {got.flags.writeable}"
    if want.dtype.kind in "biu":
        return "" if np.array_equal(want, got) else f"{want}, {got}"
    tol = TOLERANCE[want.dtype.itemsize // (2 if want.dtype.kind == "c" else 1)]
    return "" if np.allclose(want, got, rtol=tol, atol=tol, equal_nan=True) else f"{want}, {got}"


def memory(result: Any, args: tuple) -> list[bool]:
    arrays = [r for r in (result if isinstance(result, (tuple, list)) else (result,)) if isinstance(r, np.ndarray)]
    return [np.shares_memory(r, a) for r in arrays for a in args if isinstance(a, np.ndarray)]


def compare(fn: Callable, arg_sets: list[tuple], breaks: int = 0) -> None:
    """`fn`, compiled, on each set of arguments."""
    pliant.reset()
    compiled = pliant.compile(fn, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for args in arg_sets:
            before = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
            want = fn(*args)
            got = compiled(*args)
            assert not differs(want, got), f"{differs(want, got)} of {args}"
            assert memory(want, args) == memory(got, args), f"memory shared of {args}"
            assert not differs(before, list(args)), "an argument has changed"
    assert pliant.stats()["graph_breaks"] <= breaks, pliant.stats()


def has_loop(uf: np.ufunc, *dtypes: str) -> bool:
    try:
        ins = uf.resolve_dtypes((*map(np.dtype, dtypes), None))
        ufuncs.row_for(uf, ins[:-1])
    except (TypeError, ufuncs.Unsure):
        return False
    return True


@pytest.mark.parametrize("uf", [u for u in ufuncs.LOOPS if u.nin == 1], ids=lambda u: u.__name__)
def test_ufuncs_of_one(uf: np.ufunc) -> None:
    sets = [(values(dt, s, i),) for dt in (*ALL, "complex64") if has_loop(uf, dt) for i, s in enumerate(((7,), (3, 4), (0,)))]
    compare(lambda a: uf(a), sets)


MIXED = (("int32", "int64"), ("uint8", "int8"), ("float32", "int64"), ("float32", "float64"), ("bool", "int8"))


@pytest.mark.parametrize("uf", [u for u in ufuncs.LOOPS if u.nin == 2], ids=lambda u: u.__name__)
def test_ufuncs_of_two(uf: np.ufunc) -> None:
    if uf is np.power:
        pytest.skip("ints need exponents that are known")
    sets = []
    for p, q in [(dt, dt) for dt in (*ALL, "complex64")] + list(MIXED):
        if has_loop(uf, p, q):
            sets += [(values(p, s, i), values(q, s, i + 50)) for i, s in enumerate(((7,), (65,)))]
            sets.append((values(p, (4, 1), 9), values(q, (5,), 10)))
    compare(lambda a, b: uf(a, b), sets)


WEAK = (2, -3, 2.5, True, 0)


@pytest.mark.parametrize("uf", [np.add, np.subtract, np.multiply, np.divide, np.floor_divide, np.remainder, np.maximum, np.less, np.equal],
    ids=lambda u: u.__name__)  # fmt: skip
@pytest.mark.parametrize("weak", WEAK, ids=str)
def test_numbers_of_python_are_weak(uf: np.ufunc, weak: Any) -> None:
    for dt in ("bool", "int8", "int64", "uint8", "float16", "float32", "float64"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                uf(np.ones(3, dt), weak)
        except (TypeError, OverflowError):
            continue
        compare(lambda a: (uf(a, weak), uf(weak, a)), [(values(dt, (n,), n, tame=True),) for n in (3, 5)])


@pytest.mark.parametrize("strong", [np.int8(3), np.float32(2.5), np.float64(-1.5), np.uint8(200), np.bool_(True), np.int64(-4)], ids=repr)
def test_scalars_of_numpy_are_strong(strong: Any) -> None:
    for dt in ("bool", "int8", "int64", "uint8", "float32", "float64"):
        fn = lambda a, s: (a + s, s * a, a / s, a > s, np.minimum(a, s))
        compare(fn, [(values(dt, (n,), n, tame=True), strong) for n in (3, 5)])


REDUCTIONS: dict[str, Callable] = {
    "sum": np.sum, "prod": np.prod, "mean": np.mean, "var": np.var, "std": np.std, "max": np.max, "min": np.min, "argmax": np.argmax,
    "argmin": np.argmin, "any": np.any, "all": np.all, "cumsum": np.cumsum, "cumprod": np.cumprod, "sort": np.sort, "argsort": np.argsort,
    "nansum": np.nansum, "nanmax": np.nanmax, "nanmin": np.nanmin, "count_nonzero": np.count_nonzero, "ptp": np.ptp,
}  # fmt: skip
ROUNDED = {"mean", "var", "std", "prod", "cumprod"}  # between huge values, floats cancel as their order has it


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", ALL)
def test_reductions(name: str, dtype: str) -> None:
    fn = REDUCTIONS[name]
    if (name == "ptp" and dtype == "bool") or (dtype == "float16" and name in ("prod", "cumsum", "cumprod", "var", "std")):
        pytest.skip("not there, or only as good as the order of rounding")
    tame = name in ROUNDED
    compare(lambda a: fn(a), [(values(dtype, s, i, tame),) for i, s in enumerate(FILLED)])
    compare(lambda a: (fn(a, axis=0), fn(a, axis=-1)), [(values(dtype, s, i, tame),) for i, s in enumerate(((3, 4), (5, 2), (2, 3, 4)))])


def case(fn: Callable, *dtypes: str, shapes: tuple = FILLED, tame: bool = True, n: int = 1) -> Any:
    return pytest.param(fn, [tuple(values(dt, s, i + 9 * k, tame) for k in range(n)) for dt in dtypes or ("float32", "int64")
        for i, s in enumerate(shapes)])  # fmt: skip


TWO, THREE, ONE = ((3, 4), (5, 2)), ((2, 3, 4), (3, 4, 5)), ((7,), (33,), (12,))
SQUARE = ((3, 3), (5, 5))
CASES = {
    # reductions with keywords
    "sum_keepdims": case(lambda a: np.sum(a, axis=-1, keepdims=True), *ALL),
    "sum_dtype": case(lambda a: (a.sum(dtype=np.float64), np.sum(a, dtype="int64"))[0], *INTS),
    "sum_axes": case(lambda a: (a.sum(axis=(0, 2)), a.max(axis=(0, 1), keepdims=True)), shapes=THREE),
    "mean_of_16": case(lambda a: a.mean(), "float16"),
    "var_ddof": case(lambda a: (a.var(ddof=1), np.std(a, axis=0, ddof=1, keepdims=True)), shapes=TWO),
    "mean_empty": case(lambda a: a.mean(), "float64", shapes=((0,), (3,))),
    "sum_empty": case(lambda a: (a.sum(), a.any(), a.all(), a.prod()), *ALL, shapes=((0,), (0, 3))),
    "average": case(lambda a, b: (np.average(a), np.average(a, weights=np.abs(b) + 1), np.average(a, axis=0)), n=2),
    "cumsum_axis": case(lambda a: (np.cumsum(a, axis=0), a.cumsum(), np.cumprod(a, axis=-1)), *INTS, shapes=TWO),
    "reduce": case(lambda a: (np.add.reduce(a), np.maximum.reduce(a, axis=-1), np.logical_and.reduce(a, axis=None))),
    # shapes
    "reshape": case(lambda a: (a.reshape(-1), a.reshape(1, -1), np.reshape(a, (-1, 1)), a.ravel(), a.flatten()), *ALL),
    "transpose": case(lambda a: (a.T, a.transpose(1, 0), np.transpose(a), a.swapaxes(0, 1)), shapes=TWO),
    "transpose_3": case(lambda a: (a.T, a.transpose(2, 0, 1), np.transpose(a, (1, 0, 2)), np.moveaxis(a, 0, -1)), shapes=THREE),
    "expand": case(lambda a: (a[None], a[..., None], np.expand_dims(a, 0), np.expand_dims(a, (0, -1)), a[:, np.newaxis])),
    "squeeze": case(lambda a: (a[None].squeeze(), np.squeeze(a[None], axis=0), a[:, None].squeeze(1))),
    "broadcast": case(lambda a: np.broadcast_to(a, (2, *a.shape))),
    "atleast": case(lambda a: (np.atleast_1d(a), np.atleast_2d(a)), shapes=ONE),
    "view": case(lambda a: a.view(), *ALL),
    "contiguous": case(lambda a: (np.ascontiguousarray(a.T), np.ascontiguousarray(a)), shapes=TWO),
    # joining
    "concatenate": case(lambda a, b: (np.concatenate([a, b]), np.concatenate((a, b), axis=-1), np.concatenate([a, b], axis=None)), n=2),
    "concatenate_mixed": case(lambda a: (np.concatenate([a, a.astype(np.float64)]), np.stack([a, a > 1])), *ALL),
    "stack": case(lambda a, b: (np.stack([a, b]), np.stack((a, b), axis=-1), np.vstack([a, b]), np.hstack([a, b])), *ALL, n=2),
    "column_stack": case(lambda a, b: (np.column_stack([a, b]), np.append(a, b), np.append(a, 3)), n=2, shapes=ONE),
    "split": case(lambda a: (np.split(a, 3), np.array_split(a, [1, 4])), shapes=((9,), (12,))),
    "tile": case(lambda a: (np.tile(a, 2), np.tile(a, (2, 1)), np.repeat(a, 3), np.repeat(a, 2, axis=0))),
    "repeat_each": case(lambda a, b: np.repeat(a, np.abs(b) % 4), "int64", n=2, shapes=ONE),
    "flip": case(lambda a: (np.flip(a), np.flip(a, 0), a[::-1], a[::-2], a[::-1][:2], a[..., ::-1])),
    "flip_then": case(lambda a: (a[::-1] + 1, a[::-1].copy(), np.ascontiguousarray(a[::-1]), a[::-1].sum(), a[::-1][1])),
    "flip_transpose": case(lambda a: (a[:, :, ::-1].transpose(2, 0, 1), np.ascontiguousarray(a[::-1].T)), shapes=THREE),
    "flip_ud": case(lambda a: (np.flipud(a), np.fliplr(a)), shapes=TWO),
    "roll": case(lambda a: (np.roll(a, 1), np.roll(a, -2, axis=0))),
    "pad": case(lambda a: (np.pad(a, 2), np.pad(a, (1, 2)), np.pad(a, (0, 3), constant_values=7)), *ALL),
    "pad_each": case(lambda a: (np.pad(a, ((1, 0), (2, 3))), np.pad(a, ((0, 1), (0, 0)), mode="constant")), shapes=TWO),
    "pad_modes": case(lambda a: (np.pad(a, 2, mode="edge"), np.pad(a, (1, 3), mode="reflect")), shapes=ONE),
    # choices
    "where": case(lambda a, b: (np.where(a > b, a, b), np.where(a > 0, 1, 0), np.where(a > 0, a, 2), np.where(a, a, -1.5)), n=2),
    "where_one": case(lambda a: (np.where(a > 1), np.nonzero(a), np.flatnonzero(a), np.argwhere(a > 0)), *ALL),
    "clip": case(lambda a: (np.clip(a, 1, 5), a.clip(min=2), np.clip(a, None, 3), np.clip(a, a_min=0, a_max=None)), *INTS, *FLOATS),
    "clip_arrays": case(lambda a, b: (np.clip(a, np.minimum(a, b), np.maximum(a, b)), np.clip(a, 0.5, 2.5)), "float32", n=2),
    "take": case(lambda a: (np.take(a, [0, 2, 1]), a.take(np.array([1, 1])), np.take(a, 1), np.take(a, [0, -1], axis=0))),
    "take_along": case(lambda a: np.take_along_axis(a, np.argsort(a, axis=-1, kind="stable"), axis=-1)),
    "diag": case(lambda a: (np.diag(a), a.diagonal(), np.trace(a), np.tril(a), np.triu(a, 1)), shapes=SQUARE),
    "diag_1": case(lambda a: np.diag(a), shapes=ONE),
    "about": case(lambda a: (np.shape(a), np.ndim(a), np.size(a), len(a), a.shape, a.size, a.nbytes, a.dtype, a.itemsize, a.ndim), *ALL),
    # making
    "zeros": case(lambda a: (np.zeros(a.shape), np.ones(len(a), dtype=np.int32), np.zeros_like(a), np.ones_like(a, dtype=bool)), *ALL),
    "full": case(lambda a: (np.full(a.shape, 3), np.full(2, 2.5, dtype=np.float32), np.full_like(a, 1), np.full((2,), True)), *ALL),
    "arange": case(lambda a: (np.arange(len(a)), np.arange(1, len(a) + 3), np.arange(10, 0, -2), np.arange(0, 5, 2, dtype=np.int32))),
    "eye": case(lambda a: (np.eye(len(a)), np.identity(3), np.eye(3, 4, 1, dtype=np.float32), np.tri(3))),
    "linspace": case(lambda a: (np.linspace(0, 1, len(a)), np.linspace(-2.0, 3.0, 7), np.linspace(0, 1, 5, endpoint=False))),
    "meshgrid": case(lambda a: (*np.meshgrid(a, np.arange(3)), *np.meshgrid(a, a, indexing="ij")), shapes=ONE),
    "array": case(lambda a: (np.array(a), np.asarray(a), np.array([1, 2, 3]), np.array([[1.5, 2], [3, 4]]), np.array(a, dtype=np.float64))),
    "array_of": case(lambda a: (np.array([a[0], a[1]]), np.array([a, a]), np.asarray([1, len(a)]), np.array([1, 2.5, len(a)]))),
    "windows": case(lambda a: (np.hanning(8), np.hamming(len(a)), np.hanning(1)), shapes=ONE),
    "copy": case(lambda a: (a.copy(), np.copy(a)), *ALL),
    # conversions
    "astype": case(lambda a: (a.astype(np.float32), a.astype("float64"), a.astype(bool), a.astype(a.dtype), a.astype(np.float16)), *ALL),
    "astype_int": case(lambda a: (a.astype(np.int64), a.astype(np.int32), a.astype(np.int8), a.astype(int)), *ALL),
    "astype_uint": case(lambda a: (a.astype(np.uint8), a.astype(np.uint16), a.astype(np.uint32)), "int64", "uint8", "bool"),
    "round": case(lambda a: (np.rint(a), a.round(), a.round(2), np.floor(a), np.ceil(a), np.trunc(a)), *FLOATS),
    "item": case(lambda a: (a[0].item(), a.item(1), a.tolist(), float(a[0]), int(a[1]), a.max().item()), *INTS, *FLOATS, shapes=ONE),
    "nan_to_num": case(lambda a: (np.nan_to_num(a), np.isnan(a), np.isfinite(a), np.nan_to_num(a, nan=1.0, posinf=9.0)), *FLOATS,
        tame=False),
    # order
    "sort": case(lambda a: (np.sort(a), np.sort(a, axis=0), np.sort(a, axis=None)), *ALL, tame=False),
    "argsort_stable": case(lambda a: (np.argsort(a, kind="stable"), a.argsort(axis=0, kind="stable"), np.argsort(-a, kind="stable"))),
    "argsort": case(lambda a: (np.argsort(a), a.argsort(), np.argsort(a)[::-1], np.argsort(a)[::-1][:2]), *INTS, *FLOATS),
    "argpartition": case(lambda a: np.argpartition(a, 2), shapes=ONE),
    "lexsort": case(lambda a, b: np.lexsort((a, b)), n=2, shapes=ONE),
    "searchsorted": case(lambda a, b: (np.searchsorted(np.sort(a), b), np.searchsorted(np.sort(a), b, side="right")), n=2, shapes=ONE),
    "searchsorted_one": case(lambda a: (np.searchsorted(np.sort(a), 2), np.sort(a).searchsorted(1)), shapes=ONE),
    "unique": case(lambda a: np.unique(a), *ALL, tame=False),
    "unique_all": case(lambda a: np.unique(a, return_index=True, return_inverse=True, return_counts=True), *INTS, *FLOATS),
    "bincount": case(lambda a: (np.bincount(abs(a)), np.bincount(abs(a), minlength=150), np.bincount(abs(a), a * 0.5)), "int64",
        shapes=ONE),
    "isin": case(lambda a: (np.isin(a, [1, 2]), np.isin(a, a[:2], invert=True)), "int64", "int32"),
    "sets": case(lambda a, b: (np.union1d(a, b), np.setdiff1d(a, b), np.intersect1d(a, b)), "int64", n=2),
    "diff": case(lambda a: (np.diff(a), np.diff(a, n=2), np.diff(a, axis=0)), "bool", *INTS, *FLOATS),
    "percentile": case(lambda a: (np.percentile(a, 30), np.percentile(a, [0, 25, 50, 100]), np.quantile(a, 0.9, axis=0),
        np.median(a)), *FLOATS),
    "median": case(lambda a: (np.median(a), np.median(a, axis=0), np.median(a, axis=-1)), *INTS, *FLOATS),
    "median_nan": case(lambda a: (np.median(a), np.percentile(a, 40)), *FLOATS, tame=False),
    "isclose": case(lambda a, b: (np.isclose(a, b), np.isclose(a, a + 1e-9)), *FLOATS, n=2, tame=False),
    "equal": case(lambda a, b: (np.array_equal(a, b), np.array_equal(a, a), np.allclose(a, a), np.allclose(a, b)), n=2),
    # products
    "matmul": case(lambda a: (a @ a.T, np.matmul(a, a.T), np.dot(a, a.T), a.dot(a.T), np.inner(a, a)), "int64", "int32", *FLOATS,
        shapes=TWO),
    "dot": case(lambda a, b: (np.dot(a, b), a @ b, np.vdot(a, b), np.outer(a, b), np.inner(a, b), np.dot(a, 2)), "int64", *FLOATS,
        n=2, shapes=ONE),
    "einsum": case(lambda a: (np.einsum("ij,kj->ik", a, a), np.einsum("ij->j", a), np.tensordot(a, a, axes=2)), shapes=TWO),
    "norm": case(lambda a: (np.linalg.norm(a), np.linalg.norm(a, axis=-1), np.linalg.norm(a, axis=0, keepdims=True)), shapes=TWO),
    "norm_ord": case(lambda a: (np.linalg.norm(a, 1), np.linalg.norm(a, np.inf), np.linalg.norm(a, ord=2)), shapes=ONE),
    "fft": case(lambda a: (np.fft.fft(a), np.fft.rfft(a), np.fft.ifft(a), np.fft.rfft(a, n=8)), "float64", "float32", "int64", shapes=ONE),
    "windowed": case(lambda a: np.lib.stride_tricks.sliding_window_view(a, 3) * np.hanning(3), shapes=ONE),
    # samples and signals
    "digitize": case(lambda a: (np.digitize(a, [0, 2, 5]), np.digitize(a, np.array([5.0, 2.0]), right=True), np.digitize(2.5, [1, 3]))),
    "interp": case(lambda a: (np.interp(a, [0, 1, 7], [1.0, 5.0, 2.0]), np.interp(2.5, np.arange(4), a[:4])), shapes=ONE),
    "histogram": case(lambda a: (*np.histogram(a), *np.histogram(a, bins=4)), *FLOATS, "int64", shapes=ONE),
    "cov": case(lambda a: (np.cov(a), np.cov(a.T, ddof=0), np.cov(a, rowvar=False)), "float64", "int64", shapes=TWO),
    "corrcoef": case(lambda a: np.corrcoef(a + np.eye(4)), "float64", shapes=((4, 4),)),
    "convolve": case(lambda a: (np.convolve(a, [1, 2, 3]), np.convolve(a, a, "same"), np.convolve(a, [1, 2], "valid")), shapes=ONE),
    "trapezoid": case(lambda a, b: (np.trapezoid(a), np.trapezoid(a, b), np.trapezoid(a, dx=0.5)), *FLOATS, n=2, shapes=ONE),
    "select": case(lambda a: (np.select([a > 1, a > 0], [a, a * 2], -1), np.select([a > 3], [1]))),
    "unravel": case(lambda a: (np.unravel_index(np.argmax(a), a.shape), np.unravel_index(np.flatnonzero(a > 1), a.shape)), shapes=TWO),
    "accumulate": case(lambda a: (np.maximum.accumulate(a), np.minimum.accumulate(a[::-1])[::-1], np.add.accumulate(a)), *ALL[1:]),
    "outer": case(lambda a, b: (np.add.outer(a, b), np.multiply.outer(a, b), np.less.outer(a, b)), n=2, shapes=ONE),
    "linalg": case(lambda a: (np.linalg.inv(a + 9 * np.eye(3)), np.linalg.det(a + 1), np.linalg.solve(a + 9 * np.eye(3), a[0]),
        np.linalg.pinv(a)), "float64", shapes=((3, 3),)),
    # subscripts
    "basic": case(lambda a: (a[0], a[-1], a[1:], a[:-1], a[::2], a[1:3], a[...], a[0:0], a[5:1]), *ALL),
    "basic_2": case(lambda a: (a[0, 1], a[:, 1], a[1, :], a[:, 1:], a[..., 0], a[None, :, 1], a[-1, ::2]), shapes=TWO),
    "advanced": case(lambda a: (a[[0, -2, 1]], a[np.array([0, -1])], a[a > 0], a[np.array([[0, 1], [1, 0]])]), *ALL),
    "advanced_2": case(lambda a: (a[[0, 1], [1, 0]], a[:, [0, 1]], a[[0, 1], 1], a[1, [0, 1]], a[np.arange(2)[:, None], [0, 1]]),
        shapes=TWO),
    "advanced_3": case(lambda a: (a[0, :, [0, 1]], a[:, 0, [0, 1]], a[[0, 1], :, 1], a[[0], ..., [1]], a[:, [0, 1], None]), shapes=THREE),
    "masks": case(lambda a: (a[a > 1], a[a.sum(axis=-1) > 0], a[:, a.sum(axis=0) > 0]), shapes=TWO),
    "by_scalar": case(lambda a: (a[np.argmax(a)], a[a.argmin() :], a[np.int64(1)]), shapes=ONE),
    "rows": case(lambda a: [r.sum() for r in a], shapes=TWO),
    "iterate": case(lambda a: [x * 2 for x in a[:3]], *ALL, shapes=ONE),
}  # fmt: skip
BREAKS = {"by_scalar": 1, "item": 6, "fft": 1}  # a slice that begins where only the run knows; a list of changing length


WRITES: dict[str, Callable] = {
    "one": lambda a, v: a.__setitem__(0, v[0]), "slice": lambda a, v: a.__setitem__(slice(1, None), v[1:]),
    "back": lambda a, v: a.__setitem__(slice(None, None, -1), v), "mask": lambda a, v: a.__setitem__(a > 1, 3),
    "mask_values": lambda a, v: a.__setitem__(a > 1, v[a > 1]), "twice": lambda a, v: a.__setitem__([0, 1, 0], v[:3]),
    "positions": lambda a, v: a.__setitem__(np.argsort(v, kind="stable"), v), "number": lambda a, v: a.__setitem__([0, -1], 4),
    "add_at": lambda a, v: np.add.at(a, [0, 1, 0], v[:3]), "fill": lambda a, v: a.fill(2), "sort": lambda a, v: a.sort(),
    "list": lambda a, v: a.__setitem__(slice(0, 2), [1, 0]), "self": lambda a, v: a.__setitem__(slice(1, None), a[:-1]),
    "add": lambda a, v: a.__iadd__(v), "multiply": lambda a, v: a.__imul__(2), "out": lambda a, v: np.subtract(a, v, out=a),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "int8"])
def test_writes(name: str, dtype: str) -> None:
    pliant.reset()
    write = WRITES[name]
    compiled = pliant.compile(lambda a, v: (write(a, v), a)[1], strict=True)
    for n in (4, 7, 12):
        a, v = values(dtype, (n,), n, tame=True), values(dtype, (n,), n + 1, tame=True)
        b = a.copy()
        write(a, v)
        assert compiled(b, v) is b and np.array_equal(a, b), (a, b)
    assert not pliant.stats()["graph_breaks"]


@pytest.mark.parametrize("name", CASES)
def test_functions(name: str) -> None:
    fn, arg_sets = CASES[name].values
    compare(fn, arg_sets, BREAKS.get(name, 0))


def test_every_row_is_a_function_of_numpy() -> None:
    assert all(callable(f) for f in FUNCTIONS) and len(FUNCTIONS) > 200
