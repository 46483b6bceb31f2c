"""`python -m benchmarks.numpy_programs`: pre- and post-processing and metrics as people write them in NumPy, around a model or without one.

Each program is called eight times with other sizes and values, twice over, in one fresh process per system. What is counted: captures and
graph breaks in the first round, captures in the second (nothing is new there), and answers that are not eager's, dtypes and types included.
torch.compile runs with its backend "eager": what is counted is its capture, and machine code would take it ten minutes more.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from pliant.cli import systems, workers
from pliant.cli.workers import report

CALLS = 8


@dataclass(frozen=True)
class Program:
    name: str
    fn: Callable[..., Any]
    make: Callable[[Any, int], tuple]  # (random generator, size) -> arguments


PROGRAMS: list[Program] = []


def program(make: Callable[[Any, int], tuple]) -> Callable[[Callable], Callable]:
    def register(fn: Callable) -> Callable:
        PROGRAMS.append(Program(fn.__name__, fn, make))
        return fn

    return register


def vector(r: Any, n: int) -> tuple:
    return (r.normal(size=n),)


def matrix(r: Any, n: int) -> tuple:
    return (r.normal(size=(n, 5)).astype(np.float32),)


def image(r: Any, n: int) -> tuple:
    return (r.integers(0, 256, (n, n + 3, 3)).astype(np.uint8),)


def classes(r: Any, n: int) -> tuple:
    return r.integers(0, 4, n), r.integers(0, 4, n)


def scored(r: Any, n: int) -> tuple:
    return r.normal(size=n), r.integers(0, 2, n) | (np.arange(n) == 0)


def boxes(r: Any, n: int) -> tuple:
    b = r.uniform(0, 50, (n, 4)).astype(np.float32)
    b[:, 2:] += b[:, :2]
    return b, r.uniform(size=n).astype(np.float32)


def ragged(r: Any, n: int) -> tuple:
    return ([r.integers(0, 9, k) for k in (n, 3, n // 2 + 1)],)


def signal(r: Any, n: int) -> tuple:
    return (r.normal(size=16 * n).astype(np.float32),)


# -- before a model ---------------------------------------------------------------------------------------------------------
@program(image)
def normalise(img):
    x = (img.astype(np.float32) / 255.0 - np.array([0.485, 0.456, 0.406], dtype=np.float32)) / np.array([0.229, 0.224, 0.225],
        dtype=np.float32)
    return torch.from_numpy(x.transpose(2, 0, 1)).unsqueeze(0)


@program(image)
def bgr_to_rgb(img):
    return torch.from_numpy(np.ascontiguousarray(img[:, :, ::-1].transpose(2, 0, 1))).float() / 255


@program(image)
def center_crop(img):
    h, w = img.shape[:2]
    s = min(h, w) // 2 * 2
    top, left = (h - s) // 2, (w - s) // 2
    return img[top : top + s, left : left + s].copy()


@program(image)
def letterbox(img):
    h, w = img.shape[:2]
    side = max(h, w)
    out = np.full((side, side, 3), 114, dtype=img.dtype)
    out[:h, :w] = img
    return torch.from_numpy(out.transpose(2, 0, 1).copy())


@program(image)
def grayscale(img):
    return np.round(img @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)


@program(image)
def histogram_equalisation(img):
    h = np.bincount(img.ravel(), minlength=256)
    c = h.cumsum()
    c = (c - c.min()) * 255 / (c.max() - c.min())
    return c[img].astype(np.uint8)


@program(image)
def contrast(img):
    lo, hi = np.percentile(img.astype(np.float64), [2, 98])
    return np.clip((img - lo) / (hi - lo + 1e-6), 0, 1).astype(np.float32)


@program(image)
def cutout(img):
    out = img.copy()
    n = img.shape[0] // 3
    out[n : 2 * n, n : 2 * n] = 0
    return out


@program(image)
def mirrored(img):
    return np.concatenate([img, img[:, ::-1]], axis=1)


@program(ragged)
def pad_batch(seqs):
    n = max(len(s) for s in seqs)
    out = np.zeros((len(seqs), n), dtype=np.int64)
    mask = np.zeros((len(seqs), n), dtype=bool)
    for i, s in enumerate(seqs):
        out[i, : len(s)] = s
        mask[i, : len(s)] = True
    return torch.from_numpy(out), torch.from_numpy(mask)


@program(ragged)
def pad_and_stack(seqs):
    n = max(len(s) for s in seqs)
    return np.stack([np.pad(s, (0, n - len(s))) for s in seqs])


@program(ragged)
def flatten_offsets(seqs):
    return np.concatenate(seqs), np.cumsum([0] + [len(s) for s in seqs])


@program(lambda r, n: (torch.arange(3.0 * n).reshape(n, 3), r.permutation(n) + 1))
def sort_by_length(x, lengths):
    order = np.argsort(-lengths, kind="stable")
    back = np.argsort(order, kind="stable")
    y = x[order] * torch.from_numpy(lengths[order])[:, None]
    return y[back]


@program(matrix)
def standard_scaler(a):
    mean, std = a.mean(axis=0), a.std(axis=0)
    std[std == 0] = 1
    return (a - mean) / std


@program(matrix)
def min_max_scaler(a):
    lo, hi = a.min(axis=0), a.max(axis=0)
    return (a - lo) / np.where(hi > lo, hi - lo, 1)


@program(matrix)
def robust_scaler(a):
    q = np.percentile(a.astype(np.float64), [25, 50, 75], axis=0)
    return (a - q[1]) / (q[2] - q[0] + 1e-9)


@program(lambda r, n: (np.where(r.uniform(size=(n, 4)) > 0.8, np.nan, r.normal(size=(n, 4))),))
def impute(a):
    mean = np.nanmean(a, axis=0)
    return np.where(np.isnan(a), np.nan_to_num(mean), a)


@program(lambda r, n: (r.integers(0, 5, n), 5))
def one_hot(t, n):
    out = np.zeros((t.size, n), dtype=np.float32)
    out[np.arange(t.size), t] = 1
    return torch.from_numpy(out)


@program(lambda r, n: (r.integers(0, 5, n), 5))
def one_hot_by_eye(t, n):
    return np.eye(n, dtype=np.float32)[t]


@program(lambda r, n: (n, 8))
def positions(n, d):
    p = np.arange(n)[:, None] / np.power(10000.0, 2 * (np.arange(d) // 2) / d)
    p[:, 0::2] = np.sin(p[:, 0::2])
    p[:, 1::2] = np.cos(p[:, 1::2])
    return torch.from_numpy(p).float()


@program(signal)
def spectrogram(x):
    n, hop = 16, 8
    count = 1 + (len(x) - n) // hop
    frames = x[np.arange(n)[None, :] + hop * np.arange(count)[:, None]]
    return np.abs(np.fft.rfft(frames * np.hanning(n), axis=-1))


@program(signal)
def log_energy(x):
    f = x[: len(x) // 16 * 16].reshape(-1, 16)
    return np.log(np.maximum((f**2).sum(axis=1), 1e-10))


@program(signal)
def pre_emphasis(x):
    return np.append(x[0], x[1:] - np.float32(0.97) * x[:-1])


@program(signal)
def moving_average(x):
    c = np.concatenate([np.zeros(1, dtype=x.dtype), np.cumsum(x)])
    return (c[5:] - c[:-5]) / 5


@program(signal)
def quantise(x):
    mu = 255
    y = np.sign(x) * np.log1p(mu * np.abs(x)) / np.log1p(mu)
    return ((np.clip(y, -1, 1) + 1) / 2 * mu + 0.5).astype(np.int64)


# -- after a model ------------------------------------------------------------------------------------------------------------
@program(lambda r, n: (torch.from_numpy(r.normal(size=(n, 6)).astype(np.float32)),))
def top_classes(logits):
    z = logits.numpy()
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    order = np.argsort(p, axis=-1)[:, ::-1][:, :3]
    return order, np.take_along_axis(p, order, axis=-1), p.argmax(axis=-1)


@program(lambda r, n: (torch.from_numpy(r.normal(size=(n, 6)).astype(np.float32)), 3))
def top_k(logits, k):
    s = logits.numpy()[0]
    i = np.argpartition(-s, k)[:k]
    i = i[np.argsort(-s[i])]
    return i, s[i]


@program(boxes)
def non_maximum_suppression(b, scores):
    x1, y1, x2, y2 = b[:, 0], b[:, 1], b[:, 2], b[:, 3]
    areas = (x2 - x1 + 1) * (y2 - y1 + 1)
    order = scores.argsort()[::-1]
    keep = []
    while order.size > 0:
        i = order[0]
        keep.append(i)
        w = np.maximum(0.0, np.minimum(x2[i], x2[order[1:]]) - np.maximum(x1[i], x1[order[1:]]) + 1)
        h = np.maximum(0.0, np.minimum(y2[i], y2[order[1:]]) - np.maximum(y1[i], y1[order[1:]]) + 1)
        share = w * h / (areas[i] + areas[order[1:]] - w * h)
        order = order[np.where(share <= 0.3)[0] + 1]
    return keep


@program(boxes)
def intersection_over_union(b, scores):
    top = np.maximum(b[:, None, :2], b[None, :, :2])
    low = np.minimum(b[:, None, 2:], b[None, :, 2:])
    size = np.clip(low - top, 0, None)
    both = size[..., 0] * size[..., 1]
    area = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    return both / (area[:, None] + area[None] - both)


@program(boxes)
def rescale_boxes(b, scores):
    out = b.copy()
    out[:, [0, 2]] = (out[:, [0, 2]] - 3) / 0.5
    out[:, [1, 3]] = (out[:, [1, 3]] - 1) / 0.5
    return np.clip(out, 0, 60), out[scores > 0.5]


@program(boxes)
def center_form(b, scores):
    return np.stack([(b[:, 0] + b[:, 2]) / 2, (b[:, 1] + b[:, 3]) / 2, b[:, 2] - b[:, 0], b[:, 3] - b[:, 1]], axis=1)


@program(lambda r, n: (torch.from_numpy(r.normal(size=(1, n, n + 2)).astype(np.float32)),))
def mask_to_box(logits):
    m = (1 / (1 + np.exp(-logits.numpy()[0]))) > 0.5
    ys, xs = np.where(m)
    return m.astype(np.uint8) * 255, ys.min(), ys.max(), xs.min(), xs.max()


@program(lambda r, n: (torch.from_numpy(r.normal(size=(4, n, n)).astype(np.float32)),))
def segmentation(logits):
    labels = logits.numpy().argmax(axis=0)
    palette = np.array([[0, 0, 0], [255, 0, 0], [0, 255, 0], [0, 0, 255]], dtype=np.uint8)
    return palette[labels], np.bincount(labels.ravel(), minlength=4)


@program(lambda r, n: (torch.from_numpy(r.normal(size=(2, n, n)).astype(np.float32)),))
def heat_map_peaks(maps):
    a = maps.numpy()
    flat = a.reshape(a.shape[0], -1)
    i = flat.argmax(axis=1)
    return np.stack([i % a.shape[2], i // a.shape[2]], axis=1), flat.max(axis=1)


@program(lambda r, n: (torch.from_numpy(r.normal(size=(n, 8)).astype(np.float32)), torch.from_numpy(r.normal(size=(3,
        8)).astype(np.float32))))
def nearest(embeddings, queries):
    a, q = embeddings.numpy(), queries.numpy()
    a = a / np.linalg.norm(a, axis=1, keepdims=True)
    q = q / np.linalg.norm(q, axis=1, keepdims=True)
    s = q @ a.T
    return s.argmax(axis=1), s.max(axis=1)


@program(lambda r, n: ([f"text {k}" for k in range(n)], r.permutation(n)))
def in_order(texts, lengths):
    order = np.argsort(lengths)
    return [texts[i] for i in order][:3], order


# -- metrics --------------------------------------------------------------------------------------------------------------------
@program(classes)
def accuracy(p, t):
    return np.mean(p == t), np.sum(p != t)


@program(classes)
def confusion_matrix(p, t):
    return np.bincount(4 * t + p, minlength=16).reshape(4, 4)


@program(classes)
def confusion_by_counting(p, t):
    m = np.zeros((4, 4), dtype=int)
    np.add.at(m, (t, p), 1)
    return m


@program(classes)
def precision_and_recall(p, t):
    precision, recall = [], []
    for c in range(4):
        tp = np.sum((p == c) & (t == c))
        fp = np.sum((p == c) & (t != c))
        fn = np.sum((p != c) & (t == c))
        precision.append(tp / (tp + fp) if tp + fp > 0 else 0.0)
        recall.append(tp / (tp + fn) if tp + fn > 0 else 0.0)
    return np.mean(precision), np.mean(recall)


@program(classes)
def macro_f1(p, t):
    m = np.bincount(4 * t + p, minlength=16).reshape(4, 4)
    tp = np.diag(m)
    with np.errstate(divide="ignore", invalid="ignore"):
        f = 2 * tp / (m.sum(axis=0) + m.sum(axis=1))
    return np.nan_to_num(f).mean()


@program(classes)
def kappa(p, t):
    m = np.bincount(4 * t + p, minlength=16).reshape(4, 4) / len(p)
    expected = m.sum(axis=0) @ m.sum(axis=1)
    return (np.trace(m) - expected) / (1 - expected + 1e-12)


@program(scored)
def roc_auc(s, y):
    order = np.argsort(-s, kind="stable")
    y = y[order]
    tp, fp = np.cumsum(y), np.cumsum(1 - y)
    tpr, fpr = tp / max(tp[-1], 1), fp / np.maximum(fp[-1], 1)
    return np.trapezoid(tpr, fpr)


@program(scored)
def average_precision(s, y):
    y = y[np.argsort(-s, kind="stable")]
    precision = np.cumsum(y) / np.arange(1, len(y) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    return (precision * y).sum() / y.sum()


@program(scored)
def expected_calibration_error(s, y):
    p = 1 / (1 + np.exp(-s))
    bins = np.digitize(p, np.linspace(0, 1, 6)[1:-1])
    n = np.bincount(bins, minlength=5)
    gap = np.abs(np.bincount(bins, weights=p, minlength=5) - np.bincount(bins, weights=y, minlength=5))
    return gap.sum() / n.sum()


@program(lambda r, n: (r.normal(size=n), r.normal(size=n)))
def regression_errors(p, t):
    e = p - t
    r2 = 1 - (e**2).sum() / ((t - t.mean()) ** 2).sum()
    return np.abs(e).mean(), np.sqrt((e**2).mean()), r2, np.median(np.abs(e)), np.corrcoef(np.stack([p, t]))[0, 1]


@program(lambda r, n: (r.normal(size=n), r.normal(size=n)))
def rank_correlation(a, b):
    ra, rb = [np.argsort(np.argsort(x, kind="stable"), kind="stable").astype(np.float64) for x in (a, b)]
    ra, rb = ra - ra.mean(), rb - rb.mean()
    return (ra * rb).sum() / np.sqrt((ra**2).sum() * (rb**2).sum())


@program(lambda r, n: (r.integers(0, 2, (n, n)).astype(bool), r.integers(0, 2, (n, n)).astype(bool)))
def dice(a, b):
    both = np.logical_and(a, b).sum()
    return 2 * both / (a.sum() + b.sum() + 1e-9), both / (np.logical_or(a, b).sum() + 1e-9)


@program(lambda r, n: (r.integers(0, 256, (n, n)).astype(np.uint8), r.integers(0, 256, (n, n)).astype(np.uint8)))
def peak_signal_to_noise(a, b):
    mse = np.mean((a.astype(np.float64) - b.astype(np.float64)) ** 2)
    return 20 * np.log10(255.0 / np.sqrt(mse + 1e-12))


@program(lambda r, n: (r.integers(0, 9, n), r.normal(size=n)))
def group_means(keys, values):
    names, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return names, np.bincount(inverse, weights=values) / counts


@program(matrix)
def principal_directions(a):
    c = np.cov((a - a.mean(axis=0)).T)
    return c, np.linalg.det(c + np.eye(5)), np.linalg.solve(c + np.eye(5), np.ones(5))


@program(matrix)
def least_squares(a):
    x, y = a[:, :3].astype(np.float64), a[:, 3].astype(np.float64)
    return np.linalg.inv(x.T @ x + 0.1 * np.eye(3)) @ x.T @ y


# -- running and comparing ------------------------------------------------------------------------------------------------------
def same(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and bool(torch.allclose(a, b, 1e-4, 1e-5,
        equal_nan=True))
    if isinstance(a, (np.ndarray, np.generic)):
        return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and np.allclose(a, b, 1e-4, 1e-5, equal_nan=True)
    return type(a) is type(b) and a == b


def work(name: str) -> None:
    """Every program in this process; reports one "program" each."""
    warnings.simplefilter("ignore")
    system = systems.load(name)
    for p in PROGRAMS:
        system.reset()
        start = system.counts()
        compiled = system.compile(p.fn, **({"backend": "eager"} if name.startswith("torch") else {}))
        wrong, error, rounds = 0, "", []
        for _ in range(2):
            for i in range(CALLS):
                want = p.fn(*p.make(np.random.default_rng(i), 6 + 2 * i))
                try:
                    wrong += not same(want, compiled(*p.make(np.random.default_rng(i), 6 + 2 * i)))
                except Exception as e:  # what eager does not raise
                    error = f"{type(e).__name__}: {e}".splitlines()[0][:80]
            rounds.append(system.counts() - start)
        first, second = rounds
        report("program", program=p.name, system=name, captures=first.captures, breaks=first.graph_breaks,
        again=second.captures - first.captures,
            dropped=second.dropped, wrong=wrong, error=error)  # fmt: skip


def show(results: list[dict[str, Any]], console: Console) -> None:
    names = list(dict.fromkeys(r["system"] for r in results))
    table = Table(title=f"programs with NumPy, {CALLS} calls each: captures / graph breaks / captures when they come again / wrong")
    table.add_column("program")
    for n in names:
        table.add_column(systems.TITLES[n], justify="right")
    for p in PROGRAMS:
        cells = []
        for n in names:
            r = next((r for r in results if r["program"] == p.name and r["system"] == n), None)
            cells.append("-" if r is None else r["error"] or f"{r['captures']} / {r['breaks']} / {r['again']} / {r['wrong']}")
        table.add_row(p.name, *cells)
    totals = [[r for r in results if r["system"] == n] for n in names]
    table.add_row("all", *[" / ".join(str(sum(r[k] for r in rs)) for k in ("captures", "breaks", "again", "wrong")) for rs in totals])
    table.add_row("in one graph", *[str(sum(not r["breaks"] and not r["error"] and not r["wrong"] for r in rs)) for rs in totals])
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default="pliant", help="names, separated by commas: " + ", ".join(systems.TITLES))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--json", help="where to write the figures")
    args = parser.parse_args()
    if args.worker:
        work(args.worker)
        return
    results: list[dict[str, Any]] = []
    for name in args.systems.split(","):
        results += workers.told(name, "benchmarks.numpy_programs", ["--worker", name], "program", 1800)
    show(results, Console())
    if args.json:
        with open(args.json, "w") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
