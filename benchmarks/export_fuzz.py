"""`python -m benchmarks.export_fuzz`: random programs through every format of an export, at other sizes than the example's.

python -m benchmarks.export_fuzz --count 200 --json fuzz.json     # a second run goes on where the first one stopped
python -m benchmarks.export_fuzz --show 17                        # one program, and what became of it
python -m benchmarks.export_fuzz --table fuzz.json                # the figures as a table

Programs are pure functions: tensors of changing sizes, an int, a float, a list and a dict of tensors go in and come out; branches and loops
on data, on numbers and on sizes are inside. The walk over the tables below is that of `tests/differential/generate.py`. Each program is
exported from its first call, saved, loaded, saved again (the texts must be equal), and asked for all calls in each format. What draws
random numbers is compared in the number of dims only where the format draws others. An answer that is not eager's is compared with what
eager gives where its operations round otherwise (`Rounding`): a program that asks whether a sum that is 2 up to rounding is above 2 has two
answers.
"""

from __future__ import annotations

import argparse
import collections
import copy
import json
import linecache
import logging
import re
import signal
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import pliant
from benchmarks.crawl import Mismatch
from benchmarks.export_zoo import FORMATS, RELATIVE, SEED, compare
from benchmarks.fuzz import Slow, too_slow
from pliant.errors import PliantError
from pliant.export import torch_export
from pliant.export.flows import all_ops
from pliant.export.signature import SignatureError
from pliant.lower import liveness
from tests.differential.generate import Diced, Sizes, Variable, Writer, tensor
from tests.differential.grammar import blocks, rows

CALLS = ((3, 4, 2, 0.5), (5, 2, 3, -1.25), (2, 3, 0, 2.0), (7, 6, 5, 0.25), (1, 1, 1, 0.0))
"""Rows, columns and the numbers of each call; the first is the example's."""
LIMIT_S = 40.0
"""What a program may take, of processor time."""
DRAWS = {"onnx", "stablehlo"}  # what draws other numbers than PyTorch
SIZE = 10  # statements in a program, at most

# T: a tensor like x; R: a row of it; C: 0-d; A: 1-d of any length; M: a mask like x; J: an int64 tensor like x; I, F, B: numbers;
# L: a list of T; D: a dict of T. Holes are as in `tests/differential/grammar.py`.
EXPRESSIONS = {
    kind: rows(text)
    for kind, text in {
        "T": """
<T:var>
<T> + <T>
<T> - <T> * <F>
<T> * <R>
<T> / (<T>.abs() + 1)
torch.where(<M>, <T>, <T>)
torch.relu(<T>)
torch.sigmoid(<T>)
torch.nn.functional.gelu(<T>)
<T>.softmax(-1)
<T>.cumsum(0)
<T>.flip(1)
<T>.roll(1, 0)
<T>.clamp(-2, 2)
<T>.masked_fill(<M>, <F>)
<T> + <C>
<T> + <I>
torch.stack([<T>, <T>]).mean(0)
torch.cat([<T>, <T>], 1)[:, : x.shape[1]]
torch.cat([<T>, <T>])[x.shape[0] :]
<T>.t().contiguous().t()
<T>.reshape(-1).reshape(x.shape)
<T>.view(x.shape[1], -1).reshape(x.shape)
<T> @ <T>.t() @ <T>
torch.nn.functional.layer_norm(<T>, (x.shape[1],))
torch.arange(x.shape[0])[:, None] + <T>
torch.full(x.shape, <F>)
torch.zeros_like(<T>) + <R>
torch.nn.functional.pad(<T>, (1, 1))[:, 1:-1]
<T>.sort(0).values
<T>.gather(1, <J> % x.shape[1])
<T>.index_select(0, torch.arange(x.shape[0]).flip(0))
<T>.scatter(1, <J> % x.shape[1], 0.5)
torch.einsum('ij,kj->ik', <T>, <T>) @ <T>
<T>.triu()
<T>.unsqueeze(0).expand(2, -1, -1).sum(0)
<T>.to(torch.float64).float()
<J>.float() + <T>
<L>[0]
<L>[-1]
<D>['a']
sum(<L>)
(<T> if <B> else <T>)
torch.cond(<C> > <F>, lambda a: a.cos(), lambda a: a * 2 + 1, (<T>,))
torch.rand_like(<T>) + <T>
""",
        "R": "<T>.sum(0)\n<T>.mean(0)\n<T>.amax(0)\n<R> + <R>\n<T>[0]\n<T>[-1] * <F>\n<R>.flip(0)\n<T>.std(0, correction=0)",
        "C": "<T>.sum()\n<T>.mean()\n<R>.max()\n<A>.sum()\n<C> * <F>\n<T>[0, 0]\n<C> + <I>\n<T>.abs().max()\n<M>.sum() * 0.5",
        "A": "<T>.reshape(-1)\n<T>[<M>]\ntorch.cat([<A>, <R>])\n<A>[: <I> % 3 + 1]\ntorch.arange(<I> % 5 + 1) * 1.0\n<T>.nonzero()[:, 0]",
        "M": "<T> > <F>\n<T> <= <T>\n~<M>\n<M> & <M>\n<J> % 2 == 0",
        "J": "<T>.argsort(1)\n<T>.long()\n<M>.long() + <I>\ntorch.arange(x.shape[1]).expand(x.shape[0], -1)",
        "I": "n\nx.shape[0]\nx.shape[1]\n<I> + 1\n<I> * 2\n<I> % 4\n<I> // 2\nx.numel()\nmin(<I>, <I>)\nlen(<L>)\nabs(<I> - 3)",
        "F": "0.5\nk\n<F> + 1\n<F> * <F>\n<I> / 2\n-<F>\n1.5",
        "B": "n > 2\nk > 0\n<C> > <F>\nx.shape[0] > 4\n<M>.any()\nnot <B>\nx.shape[0] > x.shape[1]\n<M>.all()\n<C>.item() < 1",
        "L": "[<T>, <T>]\n[t * 2 for t in <L>]\n<L>[::-1]\n[*<L>, <T>][1:]",
        "D": "{'a': <T>, 'b': <T>}",
    }.items()
}  # fmt: skip
STATEMENTS = blocks("""
<new:T> = <T>

<new:T> = <T>

<new:C> = <C>

<new:A> = <A>

<new:L> = <L>

<new:I> = <I>

<new:M> = <M>

<new:D> = {'a': <T>, 'b': <T>}

<T:own> = <T>

if <B>:
    <block>

if <B>:
    <block>
else:
    <block>

<new:T> = <T> if <B> else <T>

for <loc:T> in <L>[:3]:
    <block>

for <loc:I> in range(3):
    <block>

<new:T> = <T>
while <=1>.abs().max() > 0.25:
    <=1> = <=1> * 0.5

<new:T> = <T>
<new:Z> = 0
while <=1>.abs().sum() > <F> and <=2> < 6:
    <=1> = torch.tanh(<=1>) * 0.5
    <=2> += 1

<new:A> = <A>
while <=1>.shape[0] < 40 and <=1>.sum() < 30:
    <=1> = torch.cat([<=1>, <=1>.abs()[:5] + 1])

<new:T> = <T>.clone()
<=1>[0] = <F>

<new:T> = <T>.clone()
<=1> += <T>
<=1>[:, 0].mul_(2)

<new:T> = <T>.clone()
<=1>[<M>] = 0.5
""")
INITIAL = {"x": "T", "y": "T", "n": "I", "k": "F", "items": "L", "table": "D"}


class Pure(Writer):
    """Writes a program from these tables."""

    def __init__(self, seed: int) -> None:
        super().__init__(Diced(f"export {seed}"), "pure", SIZE)
        self.statements = STATEMENTS
        self.expressions = EXPRESSIONS
        self.scopes = [[Variable(name, kind, 0) for name, kind in INITIAL.items()]]

    def expression(self, kind: str, depth: int) -> str:
        return "x.long()" if kind == "J" and depth <= 0 and not self.variables("J") else super().expression(kind, depth)

    def program(self) -> str:
        lines = [f"def fn({', '.join(INITIAL)}):"]
        for _ in range(self.pick.number(1, 6)):
            self.scopes.append([])
            lines += self.statement("    ", loop=False)
            self.scopes[0] += self.scopes.pop()
        made = list(dict.fromkeys(v.name for v in self.scopes[0] if v.name not in INITIAL))[-6:]
        lines.append(f"    return {{'made': [{', '.join(made)}], 'last': ({self.expression('T', 2)}, {self.expression('C', 2)})}}")
        return "\n".join(lines) + "\n"


def source(number: int) -> str:
    return Pure(number).program()


def function(number: int) -> Callable[..., Any]:
    text = source(number)
    name = f"<export {number}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space: dict[str, Any] = {"torch": torch}
    exec(compile(text, name, "exec"), space)
    return space["fn"]


def arguments(rows: int, cols: int, n: int, k: float) -> tuple:
    s = Sizes(rows, cols, n, True, 2, 0)
    return tensor(s, 0, False), tensor(s, 1, False), n, k, [tensor(s, 2, False), tensor(s, 3, False)], {
        "a": tensor(s, 10, False), "b": tensor(s, 11, False),
    }  # fmt: skip


def eager(number: int, args: tuple) -> Any:
    torch.manual_seed(SEED)
    with torch.no_grad():
        return function(number)(*copy.deepcopy(args))


# -- what rounding decides ----------------------------------------------------------------------------------------------------------
EXACT = frozenset(
    """view _unsafe_view expand select slice t transpose permute unsqueeze squeeze as_strided alias detach clone copy_ copy cat stack split
    flip roll index index_put_ index_put index_select gather scatter masked_fill masked_fill_ where sort argsort max min amax amin abs neg
    relu clamp triu tril constant_pad_nd fill_ full zeros zeros_like ones arange full_like empty_like new_zeros _to_copy lift_fresh nonzero
    rand rand_like _local_scalar_dense unbind mul_""".split()
)
"""What gives numbers that it was given; `mul_` is by two, here."""
SUMS = frozenset("sum mean cumsum mm bmm addmm std native_layer_norm _softmax".split())
RUNS, NOISE, SPREAD = 8, 2.0**-22, 8.0


class Rounding(TorchDispatchMode):
    """Each result of an operation that rounds is off by a little: of what it is; of sums, of the largest that is added."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.dice = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in EXACT:
            return out
        given = [x for x in pytree.tree_leaves(args) if isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel()]
        for x in pytree.tree_leaves(out):
            if isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel() and x.stride() and 0 not in x.stride():
                size = x.abs() + max([float(v.abs().max()) for v in given], default=0.0) * (name in SUMS)
                x += size * NOISE * (torch.rand(x.shape, generator=self.dice, dtype=x.dtype) * 2 - 1)
        return out


def excused(number: int, args: tuple, got: list[Any], outputs_of: Callable[[Any], list[Any]]) -> bool:
    """Whether eager would give these results if its operations rounded otherwise."""
    got = [torch.as_tensor(g) if isinstance(g, torch.Tensor | np.ndarray) else g for g in got]
    runs = []
    for seed in range(RUNS):
        with Rounding(seed):
            runs.append(outputs_of(eager(number, args)))
    return any(near(got, r, [o for o in runs if kinds(o) == kinds(r)]) for r in runs)


def near(got: list[Any], want: list[Any], alike: list[list[Any]]) -> bool:
    if kinds(got) != kinds(want):
        return False
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if not isinstance(w, torch.Tensor):
            if g != w and not (isinstance(w, float) and abs(g - w) <= RELATIVE * abs(w) + SPREAD * max(abs(o[i] - w) for o in alike)):
                return False
        elif w.numel():
            spread = torch.stack([(o[i].double() - w.double()).abs() for o in alike]).amax()
            if not bool(((g.double() - w.double()).abs() <= RELATIVE * w.double().abs().max() + SPREAD * spread).all()):
                return False
    return True


def kinds(values: list[Any]) -> list[Any]:
    return [(v.dtype, v.shape) if isinstance(v, torch.Tensor) else type(v) for v in values]


def examine(number: int, formats: list[str], work: Path) -> dict[str, Any]:
    """What became of one program: `export`, and each format ("right", "refused", "wrong", with why)."""
    out: dict[str, Any] = {"number": number}
    calls, want = [], []
    for sizes in CALLS:
        args = arguments(*sizes)
        try:
            want.append(eager(number, args))
            calls.append(args)
        except Exception:
            if sizes is CALLS[0]:
                return out | {"export": "raises in eager"}
    try:
        with torch.no_grad():
            p = pliant.export(function(number), copy.deepcopy(calls[0]))
    except PliantError as e:
        return out | {"export": "refused", "why": reason(e)}
    except Exception as e:
        return out | {"export": "wrong", "why": f"{type(e).__name__}: {e}"[:300]}
    out["export"] = "right"
    drawn = any(liveness.draws(op.target) for q in (p, *p.variants) for op in all_ops(q.ops))
    for name in formats:
        out[name] = answers(number, p, name, calls, want, work, drawn and name in DRAWS)
    return out


def as_torch(p: Any, work: Path) -> Callable[[dict[str, Any]], list[Any]]:
    """Saved and loaded, unless it takes floats: `torch.export.save` writes no such program."""
    if all(i.is_tensor or i.value.kind is not float for i in p.user_inputs):
        return FORMATS["torch"](p, work)
    module = p.to_torch_export().module()

    def run(values: dict[str, Any]) -> list[Any]:
        args, kwargs = torch_export.arguments(p, values)
        return torch_export.user_outputs(p, module(*args, **kwargs))

    return run


def answers(number: int, p: Any, name: str, calls: list[tuple], want: list[Any], work: Path, drawn: bool) -> dict[str, str]:
    try:
        run = (as_torch if name == "torch" else FORMATS[name])(p, work)
        narrow, rounded = 0, False
        for args, w in zip(calls, want, strict=True):
            try:
                given = p.inputs_of(*copy.deepcopy(args))
                p.run(copy.deepcopy(given))
            except SignatureError as e:  # formats without assertions would answer, too
                narrow, why = narrow + 1, reason(e)
                continue
            torch.manual_seed(SEED)
            with torch.no_grad():
                got = run({k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in given.items()})
            wanted = p.outputs_of(w)
            if not drawn:
                try:
                    compare(got, like(got, wanted))
                except Mismatch:
                    if not excused(number, args, got, lambda w, got=got: like(got, p.outputs_of(w))):
                        raise
                    rounded = True
            elif [getattr(g, "ndim", 0) for g in got] != [getattr(x, "ndim", 0) for x in wanted]:
                return {"status": "wrong", "why": "results have other numbers of dims"}
        return {"status": "narrow", "why": why} if narrow else {"status": "rounded" if rounded else "right"}
    except PliantError as e:
        return {"status": "refused", "why": reason(e)}
    except Slow:
        raise
    except Exception as e:
        return {"status": "wrong", "why": f"{type(e).__name__}: {e}"[:400]}


def like(got: list[Any], wanted: list[Any]) -> list[Any]:
    """The numbers of eager as the tensors that a format gives for them."""
    return [
        x if isinstance(x, torch.Tensor) or not isinstance(g, torch.Tensor) else torch.as_tensor(x).to(g.dtype) for g, x in zip(got, wanted)
    ]


def reason(e: Exception) -> str:
    what = re.search(r"what: (.*)", str(e))
    return re.sub(r"\s+", " ", f"{type(e).__name__}: {what.group(1) if what else e}")[:300]


def table(found: list[dict[str, Any]]) -> str:
    """The figures, and the reasons of refusals."""
    rows = [r for r in found if r["export"] != "raises in eager"]
    out = ["| | right | right, rounded otherwise | at some sizes only | refused | wrong |", "|---|---|---|---|---|---|"]
    said: dict[str, collections.Counter] = {}
    for name in ("export", *FORMATS):
        cells = [r[name] if isinstance(r[name], dict) else {"status": r[name], "why": r.get("why", "")} for r in rows if name in r]
        if cells:
            n = collections.Counter(c["status"] for c in cells)
            others = [str(n[status] or "") for status in ("rounded", "narrow", "refused", "wrong")]
            out.append(f"| {name} | {n['right']} of {len(cells)} | {' | '.join(others)} |")
            said[name] = collections.Counter(kind(c["why"]) for c in cells if c["status"] in ("refused", "narrow"))
    out += ["", "| refused by | why | programs |", "|---|---|---|"]
    out += [f"| {name} | {why} | {n} |" for name, counts in said.items() for why, n in counts.most_common(12)]
    return "\n".join(out) + "\n"


def kind(why: str) -> str:
    """A reason without what is one program's own."""
    why = re.sub(r"\b[stu]\d+\b|%\d+", "u", why)
    why = re.sub(r"(, because of| at| \() ?\S*<program.*|<program \d+>:\d+", "", why)
    return re.sub(r"\|", r"\\|", re.sub(r"\d+", "n", why))[:140]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="programs that run in eager")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--show", type=int)
    parser.add_argument("--table", type=Path)
    args = parser.parse_args()
    if args.table:
        print(table(json.loads(args.table.read_text())), end="")
        return
    warnings.simplefilter("ignore")
    logging.getLogger("pliant").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    signal.signal(signal.SIGPROF, too_slow)
    formats = args.formats.split(",")
    found = json.loads(args.json.read_text()) if args.json and args.json.exists() else []
    number = max([r["number"] for r in found], default=args.first - 1) + 1
    if args.show is not None:
        print(source(args.show))
        number, args.count, found = args.show, 1, []
    with tempfile.TemporaryDirectory() as work:
        while sum(r["export"] != "raises in eager" for r in found) < args.count:
            signal.setitimer(signal.ITIMER_PROF, LIMIT_S, 1.0)
            try:
                row = examine(number, formats, Path(work))
            except Slow:
                row = {"number": number, "export": "refused", "why": f"it takes more than {LIMIT_S:.0f} s of processor time"}
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            found.append(row)
            number += 1
            wrong = row["export"] == "wrong" or any(isinstance(v, dict) and v["status"] == "wrong" for v in row.values())
            if args.show is not None or wrong:
                print(json.dumps(row, indent=1), flush=True)
            if args.json:
                args.json.write_text(json.dumps(found, indent=1))
    print(table(found), end="")


if __name__ == "__main__":
    main()
