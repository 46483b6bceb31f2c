"""Random programs whose graphs raise half way: effects, operations that raise on bad data, in all places; eager against compiled.

    python -m tests.differential.late_errors FIRST COUNT [backend]

Each operation that may raise has data of its own in `a`. A program is called with good data, then with data that is bad for one of the
operations after the other. Compared are results, the exception with its words and lines, what was printed, the state of all objects and
of the random generator. Words that differ alone are counted apart: where the frame cannot run anew, kernels and assertions have words of
their own.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import math
import random
import sys
import traceback
from typing import Any

import torch

import pliant

FINE = [1, 2, 3, 1]
RAISING: dict[str, tuple[str, Any, Any]] = {
    "index": ("h = h[{i}]", FINE, [1, 9, 0, 1]),
    "select": ("h = h.index_select(0, {i})", FINE, [1, 0, 9, 1]),
    "gather": ("h = h.gather(0, {i})", FINE, [1, 9, 0, 1]),
    "take": ("h = torch.take(h, {i})", FINE, [1, 9, 0, 1]),
    "embedding": ("h = h + F.embedding({i}, a.w)[:, 0]", FINE, [1, 9, 0, 1]),
    "divide": ("h = h + (a.q // {i})", FINE, [1, 0, 3, 1]),
    "remainder": ("h = h + (a.q % {i})", FINE, [1, 0, 3, 1]),
    "check": ("torch._check({i}.sum().item() < 100)", FINE, [1, 100, 3, 1]),
    "assert": ("assert {i}.sum().item() < 100, 'too much'", FINE, [1, 100, 3, 1]),
    "raise": ("if {i}.sum() > 100: raise KeyError('much')", FINE, [1, 100, 3, 1]),
    "size": ("h = h + torch.ones({i}.min().item()).sum()", FINE, [1, -5, 3, 1]),
    "number": ("h = h + 12 // {i}.min().item()", FINE, [1, 0, 3, 1]),
    "scattered": ("h = h.masked_scatter({i} > 1, a.w.view(-1)[:2])", FINE, [3, 4, 3, 3]),
    "reshape": ("h = h + h[{i} > 1].reshape(2, -1).sum()", FINE, [3, 3, 3, 1]),
    "inverse": ("h = h + torch.linalg.inv(torch.diag({i}.float())).sum()", FINE, [1, 0, 3, 1]),
    "one_hot": ("h = h + F.one_hot({i}, 4).sum(0)", FINE, [1, 9, 3, 1]),
    "bincount": ("h = h + torch.bincount({i}, minlength=4)[:4]", FINE, [1, -1, 3, 1]),
    "loss": ("h = h + F.nll_loss(h.view(1, 4).log_softmax(1), {i}[:1])", FINE, [9, 0, 3, 1]),
    "scatter": ("h = h.scatter(0, {i}, 2.0)", FINE, [1, 9, 3, 1]),
    "index_add": ("h = h.index_add(0, {i}, h)", FINE, [1, 9, 3, 1]),
    "index_put": ("x[{i}] = 1.5", FINE, [1, 9, 3, 1]),
    "index_add_": ("x.index_add_(0, {i}, h)", FINE, [1, 9, 3, 1]),
    "repeat": ("h = h + h.repeat_interleave({i}.clamp(max=3)).sum()", FINE, [1, -2, 3, 1]),
    "put": ("x.put_({i}, h)", FINE, [1, 9, 3, 1]),
    "scatter_": ("x.scatter_(0, {i}, h, reduce='add')", FINE, [1, 9, 3, 1]),
    "copied": ("x.index_copy_(0, {i}, h)", FINE, [1, 9, 3, 1]),
    "filled": ("st.buf.index_fill_(0, {i}, 2.0)", FINE, [1, 9, 3, 1]),
    "divide_": ("a.q //= {i}", FINE, [1, 0, 3, 1]),
    "remainder_": ("a.q.remainder_({i})", FINE, [1, 0, 3, 1]),
    "custom": ("h = h + torch.ops.late_programs.checked({i})", FINE, [1, 100, 3, 1]),
    "custom_": ("torch.ops.late_programs.added(x, {i})", FINE, [1, 100, 3, 1]),
    "split": ("h = h + h.split({i}[:2].tolist() + [1])[0].sum()", FINE, [1, 9, 3, 1]),
}
"""Name -> (statement, good data, bad data)."""

EFFECTS = (
    "print('p{n}')", "print('p{n}', round(h.sum().item(), 2))", "print(h.shape, {n})", "log.append(h)", "log.append({n})",
    "log.append((h * {n}, 'm'))", "log.extend([h, {n}])", "st.field = h", "st.field = {n}", "st.count += 1", "d['k{n}'] = h",
    "d['k'] = d.get('k', 0) + {n}", "NAME = {n}",
    "NAME = h + {n}", "x.add_({n})", "x.mul_(0.5)", "GT.add_(1)", "st.buf.add_(h)", "st.buf[1:3] = h[:2]", "h = h + torch.rand(4)",
    "h = h.clone(); h.add_(1)", "log.append(x[1:])", "st.seen.add({n})", "log.insert(0, {n})", "log.pop()", "d.pop('gone', None)",
    "log.append([h])", "st.last = log[-1]", "h.mul_(1.5)", "log.append(st.buf)", "del st.field; st.field = 1", "st.items = [h, h + 1]",
    "log.append(h.sum().item())", "x.copy_(h)", "st.fn = lambda: h", "print(len(log))", "log.append(next(st.it))",
    "log.append(h.view(2, 2))",
)  # fmt: skip
PURE = ("h = h * 2 + {n}", "h = h.relu() + 1", "h = h.sin()", "h = h + x", "h = h - GT", "h = torch.cat([h[1:], h[:1]])")

PRELUDE = """
import contextlib
import torch
import torch.nn.functional as F
import pliant
NAME = 0
GT = torch.ones(4)

class Manager:
    def __init__(self, log): self.log = log
    def __enter__(self): self.log.append("in")
    def __exit__(self, *e): self.log.append(("out", e[0]))
"""


class Maker:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.n = 0
        self.kinds: list[str] = []
        self.functions: list[str] = []
        self.grad = self.rng.random() < 0.15

    def line(self) -> str:
        self.n += 1
        r = self.rng.random()
        if r < 0.2 and len(self.kinds) < 5:
            kind = self.rng.choice(list(RAISING))
            self.kinds.append(kind)
            return RAISING[kind][0].format(i=f"a.i{len(self.kinds) - 1}")
        return self.rng.choice(EFFECTS if r < 0.75 else PURE).format(n=self.n)

    def block(self, depth: int, count: int) -> list[str]:
        out: list[str] = []
        for _ in range(count):
            out += self.nested(depth) if depth and self.rng.random() < 0.2 else [self.line()]
        return out

    def nested(self, depth: int) -> list[str]:
        inner = [f"    {x}" for x in self.block(depth - 1, self.rng.randint(1, 4))]
        way = self.rng.randrange(11)
        if way == 0:
            return ["for k in range(2):", *inner]
        if way == 1:
            return ["with Manager(log):", *inner]
        if way == 2:
            return ["try:", *inner, "except OverflowError:", "    print('never')"]
        if way == 3:
            return ["try:", *inner, "finally:", f"    log.append('finally {self.n}')"]
        if way == 4:
            return ["with torch.no_grad():", *inner]
        if way == 5:
            return ["pliant.graph_break()", *[x[4:] for x in inner]]
        if way == 6:
            return ["try:", *inner, "except (IndexError, RuntimeError) as e:", "    print('caught', type(e).__name__)"]
        if way == 7:
            return [f"if x.sum() > {self.rng.choice((-100, 1000))}:", *inner]
        if way == 8:
            name = f"g{len(self.functions)}"
            head, rest = f"def {name}(h, x, a, log, d, st):", ["    yield h", "    log.append('rest')", ""]
            self.functions.append("\n".join([head, "    global NAME", *inner, *rest]))
            return [f"for h in {name}(h, x, a, log, d, st):", "    log.append('item')"]
        name = f"f{len(self.functions)}"
        self.functions.append("\n".join([f"def {name}(h, x, a, log, d, st):", "    global NAME", *inner, "    return h", ""]))
        return [f"h = {name}(h, x, a, log, d, st)"]

    def text(self) -> str:
        body = [f"    {x}" for x in self.block(2, self.rng.randint(4, 12))]
        main = "\n".join(["def main(h, x, a, log, d, st):", "    global NAME", "    h = h * 2", *body, "    return h", ""])
        return PRELUDE + "\n" + "\n".join([*self.functions, main])


def checked(i: Any) -> Any:
    if i.sum() > 100:
        raise ValueError("too much")
    return i * 2


def added(x: Any, i: Any) -> None:
    x.add_(1)
    if i.sum() > 100:
        raise KeyError("too much")


LIBRARY = torch.library.Library("late_programs", "DEF")
for schema, fn, meta in (
    ("checked(Tensor i) -> Tensor", checked, torch.empty_like),
    ("added(Tensor(a!) x, Tensor i) -> ()", added, lambda x, i: None),
):
    LIBRARY.define(schema)
    LIBRARY.impl(fn.__name__, fn, "CompositeExplicitAutograd")
    LIBRARY.impl(fn.__name__, meta, "Meta")


class Bag:
    pass


class Numbers(list):
    """Numbers that are equal if kernels, which add up in another order, may have made one of the other."""

    def __eq__(self, other: Any) -> bool:
        near = (a == b or math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-3) for a, b in zip(self, other, strict=True))
        return len(self) == len(other) and all(near)

    __hash__ = None  # type: ignore[assignment]


def world(text: str, name: str) -> dict[str, Any]:
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    g: dict[str, Any] = {"__name__": "late_error_program"}
    exec(compile(text, name, "exec"), g)
    return g


def arguments(kinds: list[str], bad: int, grad: bool, shift: int) -> tuple:
    a, st = Bag(), Bag()
    a.w, a.q = torch.arange(12.0).view(4, 3), torch.tensor([7, 8, 9, 10])
    for j, kind in enumerate(kinds):
        setattr(a, f"i{j}", torch.tensor(RAISING[kind][2 if j == bad else 1]))
    st.field, st.count, st.buf, st.seen, st.last, st.items = 0, shift, torch.zeros(4), {0}, None, []
    st.it = iter(range(100))
    h = torch.arange(4.0) + shift
    return h.requires_grad_() if grad else h, torch.ones(4), a, ["begin"], {"gone": 1}, st


def shown(v: Any, depth: int = 0) -> Any:
    if isinstance(v, torch.Tensor):
        return "tensor", str(v.dtype), tuple(v.shape), Numbers(v.detach().reshape(-1).tolist()), v.requires_grad
    if isinstance(v, (list, tuple)):
        return type(v).__name__, [shown(x, depth + 1) for x in v]
    if isinstance(v, dict):
        return {str(k): shown(x, depth + 1) for k, x in v.items()}
    if isinstance(v, set):
        return sorted(map(str, v))
    if isinstance(v, Bag):
        return {k: shown(x, depth + 1) for k, x in vars(v).items()}
    if type(v) is type(iter(range(1))):
        return v.__reduce__()[2] if len(v.__reduce__()) > 2 else repr(v.__reduce__()[1:])
    if callable(v) and not isinstance(v, type):
        return "function", shown(v()) if getattr(v, "__name__", "") == "<lambda>" else v.__name__
    if isinstance(v, float):
        return Numbers([v])
    return v if isinstance(v, (int, str, bool, type(None))) else repr(v)


def outcome(main: Any, g: dict[str, Any], args: tuple, name: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            out["result"] = shown(main(*args))
        except Exception as e:
            out["type"], out["words"] = type(e).__name__, str(e)
            out["line"] = [f.lineno for f in traceback.extract_tb(e.__traceback__) if f.filename == name][-1:]
    out["printed"] = said.getvalue()
    out["state"] = shown(args)
    out["globals"] = shown(g["NAME"]), shown(g["GT"])
    out["random"] = torch.rand(1).item()
    out["grad mode"] = torch.is_grad_enabled()
    return out


def run(seed: int, backend: str = "aten", words: bool = True, **options: Any) -> list[str]:
    """What is wrong with program number `seed`."""
    maker = Maker(seed)
    text = maker.text()
    want_world, got_world = world(text, f"<eager {seed}>"), world(text, f"<compiled {seed}>")
    main = pliant.compile(got_world["main"], backend=backend, **{"strict": True, "background": False, **options})
    wrong: list[str] = []
    calls = [-1, -1, *range(len(maker.kinds)), -1, *range(len(maker.kinds))]
    for k, bad in enumerate(calls):
        for w in (want_world, got_world):
            w["NAME"] = 0
            w["GT"].fill_(1)
        torch.manual_seed(k)
        want = outcome(want_world["main"], want_world, arguments(maker.kinds, bad, maker.grad, k % 2), f"<eager {seed}>")
        torch.manual_seed(k)
        got = outcome(main, got_world, arguments(maker.kinds, bad, maker.grad, k % 2), f"<compiled {seed}>")
        if not words:
            want.pop("words", None), got.pop("words", None)
        for key in want.keys() | got.keys():
            if want.get(key) != got.get(key):
                kind = maker.kinds[bad] if bad >= 0 else None
                wrong.append(f"call {k} (bad: {kind}), {key}:\n  eager    {want.get(key)}\n  compiled {got.get(key)}")
    pliant.reset()
    return wrong


def main() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    backend = sys.argv[3] if len(sys.argv) > 3 else "aten"
    bad = only_words = 0
    for seed in range(first, first + count):
        try:
            wrong = run(seed, backend)
        except Exception as e:
            wrong = [f"{type(e).__name__}: {e}"]
        if wrong and all(", words:" in w for w in wrong):
            only_words += 1
        elif wrong:
            bad += 1
            print(f"== {seed}: {len(wrong)}\n" + "\n".join(wrong[:3]), flush=True)
    print(f"{count} programs, {bad} wrong, {only_words} with other words")


if __name__ == "__main__":
    main()
