"""`python -m benchmarks.suites [table ...]`: PyTorch's own tables of samples through the whole of pliant.

`modules`: every `nn.Module` of `common_modules.module_db`; `ops`: every operator of `common_methods_invocations.op_db`; `masked`: these, of
rows or columns that a mask picks (all, none, one, all but one), so that only the run knows how many there are; `higher`: its higher-order
operators, `autograd.Function`s and custom operators; `optimizers`: `optim_db`, each with all of its arguments, plain, foreach
and fused; `programs`: those that show what `torch.export` does and does not. Each is compiled strictly and called with its samples,
one compiled function for all of them; values, types, strides' order and gradients must be eager's.

python -m benchmarks.suites ops --only nn.functional --samples 8 --json ops.json
"""

from __future__ import annotations

import argparse
import collections
import copy
import json
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.utils import _pytree as pytree

import pliant
from benchmarks.crawl import Mismatch, place, same, tensors
from pliant import events
from pliant.cli import workers

CASE_S = 60  # seconds for one row of a table
Sample = tuple[tuple, dict[str, Any]]


class Slow(Exception):
    """A case took too long."""


# ------------------------------------------------------------------------------------------------------------------ the tables
def module_cases(samples: int) -> Iterator[tuple[str, Callable[[], Iterator[tuple[Any, Any, list[Sample]]]]]]:
    """(name, its (eager module, compiled module, samples)); one of them for each way of constructing it."""
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        for training in (False, True):

            def pairs(info: Any = info, training: bool = training) -> Iterator[tuple[Any, Any, list[Sample]]]:
                inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)
                for given in inputs[: samples * 2]:
                    if given.forward_input is None:
                        continue
                    torch.manual_seed(0)
                    module = info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs).train(training)
                    forward = given.forward_input
                    compiled = pliant.compile(copy.deepcopy(module), strict=True, background=False)
                    yield module, compiled, [(tuple(forward.args), dict(forward.kwargs))]

            yield f"{info.name}{' training' if training else ''}", pairs


def op_cases(samples: int) -> Iterator[tuple[str, Callable[[], Iterator[tuple[Any, Any, list[Sample]]]]]]:
    """(name, its (eager function, compiled function, samples)); the operator is called by a function, as a program calls it."""
    from torch.testing._internal.common_methods_invocations import op_db

    return of_operators(op_db, samples)


def higher_cases(samples: int) -> Iterator[tuple[str, Callable[[], Iterator[tuple[Any, Any, list[Sample]]]]]]:
    from torch.testing._internal import autograd_function_db, custom_op_db, hop_db

    return of_operators([*hop_db.hop_db, *autograd_function_db.autograd_function_db, *custom_op_db.custom_op_db], samples)


def of_operators(table: list[Any], samples: int) -> Iterator[tuple[str, Callable[[], Iterator[tuple[Any, Any, list[Sample]]]]]]:
    for op in table:

        def pairs(op: Any = op) -> Iterator[tuple[Any, Any, list[Sample]]]:
            dtypes = op.supported_dtypes("cpu")
            wanted = (torch.float32, torch.float64, torch.complex64, torch.int64, torch.bool, *dtypes)
            dtype = next((d for d in wanted if d in dtypes and op.name != "chalf"), None)
            if dtype is None:
                return  # none on the CPU, or none that can be compared
            gradients = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
            torch.manual_seed(0)
            given = list(op.sample_inputs("cpu", dtype, requires_grad=gradients))
            given = given[:: max(1, len(given) // samples)][:samples]

            def program(*args: Any, **kwargs: Any) -> Any:
                return op.op(*args, **kwargs)

            yield program, pliant.compile(program, strict=True, background=False), [((s.input, *s.args), dict(s.kwargs)) for s in given]

        yield f"{op.name}{'.' + op.variant_test_name if op.variant_test_name else ''}", pairs


def masked_cases(samples: int) -> Iterator[tuple[str, Callable[[], Iterator[tuple[Any, Any, list[Sample]]]]]]:
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        for dim, what in ((0, "rows"), (-1, "columns")):

            def pairs(op: Any = op, dim: int = dim) -> Iterator[tuple[Any, Any, list[Sample]]]:
                if torch.float64 not in op.supported_dtypes("cpu"):
                    return
                torch.manual_seed(0)
                for given in islice(op.sample_inputs("cpu", torch.float64, requires_grad=op.supports_autograd), samples):
                    leaves, spec = pytree.tree_flatten((given.input, given.args, given.kwargs))
                    lengths = [dense_length(x, dim) for x in leaves]
                    n = next((n for n in lengths if n > 1), 0)
                    at = [i for i, length in enumerate(lengths) if length == n] if n else []

                    def picked(mask: torch.Tensor, *leaves: Any, at: list[int] = at, spec: Any = spec) -> Any:
                        kept = list(leaves)
                        for i in at:
                            kept[i] = leaves[i][mask] if dim == 0 else leaves[i][..., mask]
                        x, args, kwargs = pytree.tree_unflatten(kept, spec)
                        return op.op(x, *args, **kwargs)

                    places = torch.arange(n)
                    masks = (places >= 0, places < 0, places == 0, places != 0, places >= 0) if n else ()
                    compiled = pliant.compile(picked, strict=True, background=False)
                    yield picked, compiled, [((mask, *leaves), {}) for mask in masks]

            yield f"{op.name}{'.' + op.variant_test_name if op.variant_test_name else ''} {what}", pairs


def dense_length(x: Any, dim: int) -> int:
    return x.shape[dim] if isinstance(x, torch.Tensor) and x.layout is torch.strided and x.dim() > -dim else 0


def optimizer_cases(samples: int) -> Iterator[tuple[str, Callable[[], Iterator[tuple[Any, Any, list[Sample]]]]]]:
    """Four steps with other gradients and another learning rate; the answer is what became of the parameters and of the state."""
    from torch.testing._internal.common_optimizers import optim_db

    def steps(info: Any, arguments: dict[str, Any], compiled: bool) -> Callable[[], Any]:
        def run() -> Any:
            made = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
            torch.manual_seed(2)
            parameters = [torch.nn.Parameter(torch.randn(n, n + 1)) for n in (2, 3, 5)]
            optimizer = info.optim_cls(parameters, **made)

            def step() -> None:
                optimizer.step((lambda: sum((p * p).sum() for p in parameters)) if info.step_requires_closure else None)

            stepping = pliant.compile(step, strict=True, background=False) if compiled else step
            for i in range(4):
                for p in parameters:
                    p.grad = (p.detach() * (i + 1)).sin()
                for group in optimizer.param_groups:
                    if not isinstance(group.get("lr"), torch.Tensor):
                        group["lr"] = group["lr"] * 0.7
                stepping()
            return [p.detach() for p in parameters], [v for p in parameters for v in optimizer.state[p].values()]

        return run

    for info in optim_db:
        for given in info.optim_inputs_func("cpu"):
            for way in ({}, *({k: True} for k in ("foreach", "fused") if k in info.supported_impls)):
                if way and (set(way) & set(given.kwargs) or given.kwargs.get("differentiable")):
                    continue

                def pairs(info: Any = info, arguments: dict[str, Any] = given.kwargs | way) -> Iterator[tuple[Any, Any, list[Sample]]]:
                    yield steps(info, arguments, False), steps(info, arguments, True), [((), {})]

                yield f"{info.optim_cls.__name__}.{given.desc or 'default'}{'.' + next(iter(way)) if way else ''}", pairs


def program_cases(samples: int) -> Iterator[tuple[str, Callable[[], Iterator[tuple[Any, Any, list[Sample]]]]]]:
    from torch._export.db.examples import all_examples

    for name, case in all_examples().items():

        def pairs(case: Any = case) -> Iterator[tuple[Any, Any, list[Sample]]]:
            compiled = pliant.compile(copy.deepcopy(case.model), strict=True, background=False)
            given = [(case.example_args, case.example_kwargs)]
            yield case.model, compiled, given + ([(case.extra_args, case.example_kwargs)] if case.extra_args else [])

        yield name, pairs


TABLES = {
    "modules": module_cases, "ops": op_cases, "masked": masked_cases, "higher": higher_cases, "optimizers": optimizer_cases,
    "programs": program_cases,
}  # fmt: skip


# -------------------------------------------------------------------------------------------------------------------- one case
def fresh(value: Any) -> Any:
    """A copy of the arguments: leaves where the originals are."""
    return pytree.tree_map(lambda x: x.detach().clone().requires_grad_(x.requires_grad) if type(x) is torch.Tensor else x, value)


def run(fn: Any, sample: Sample) -> tuple[Any, Any]:
    """The answer, and the gradients of a fixed function of it with respect to arguments and parameters; or the exception raised."""
    args, kwargs = fresh(sample)
    torch.manual_seed(1)
    parameters = dict(fn.named_parameters()) if isinstance(fn, torch.nn.Module) else {}
    try:
        value = fn(*args, **kwargs)
        outs = [t for t in tensors(value) if t.requires_grad and t.numel()]
        leaves = [t for t in pytree.tree_leaves((args, kwargs)) if type(t) is torch.Tensor and t.requires_grad and t.is_leaf]
        leaves += parameters.values()
        if not outs or not leaves:
            return value, None
        seeds = [torch.arange(t.numel()).cos().reshape(t.shape).to(t.dtype) for t in outs]
        none_is_zero = getattr(fn, "__name__", "") == "picked"  # of no rows eager's formulas often have no part at all
        return value, torch.autograd.grad(outs, leaves, seeds, allow_unused=True, materialize_grads=none_is_zero)
    except (NotImplementedError, RuntimeError, ValueError, TypeError, IndexError, AssertionError) as e:
        if "pliant" in type(e).__module__:
            raise
        return e, None


def examine(name: str, pairs: Callable[[], Iterator[tuple[Any, Any, list[Sample]]]]) -> dict[str, Any]:
    """What became of one row of a table."""
    out: dict[str, Any] = {"name": name, "status": "right", "note": "", "samples": 0}
    pliant.reset()
    stop = signal.signal(signal.SIGALRM, too_slow)
    signal.alarm(CASE_S)
    try:
        for eager, compiled, samples in pairs():
            for i, sample in enumerate(samples):
                workers.report("eager", name=name)
                want = run(eager, sample)
                workers.report("compiled", name=name)
                got = run(compiled, sample)
                if isinstance(want[0], Exception):
                    if type(got[0]) is not type(want[0]):
                        raise Mismatch(f"sample {i}: eager raises {want[0]!r}, compiled gave {str(got[0])[:200]!r}")
                    continue
                if isinstance(got[0], Exception):
                    raise Mismatch(f"sample {i}: {got[0]!r}") from got[0]
                if name not in UNINITIALIZED:
                    try:
                        same(got[0], want[0], f"sample {i}")
                        same(contiguous(got[1]), contiguous(want[1]), f"sample {i}, gradients")
                    except Mismatch as e:
                        if "off by" not in str(e) or not is_rounding(eager, sample, got, want):
                            raise
                out["samples"] += 1
    except Mismatch as e:
        out |= {"status": "wrong", "note": str(e), "trace": traceback.format_exc()}
    except Slow:
        out |= {"status": "slow"}
    except Exception as e:
        out |= {"status": "error", "note": f"{type(e).__name__}: {e}", "trace": traceback.format_exc()}
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, stop)
    stats = pliant.stats()
    if out["status"] == "right" and stats.get("user_errors"):
        out |= {"note": f"{stats['user_errors']} captures found an exception of the program"}
    found = [(e.fields["code"], e.fields["reason"].splitlines()[0], place(e)) for e in events.events("graph_break")]
    breaks = collections.Counter(f"{code} {reason} @ {where}" for code, reason, where in found)
    return out | {k: stats[k] for k in ("captures", "recompiles", "graph_breaks", "fallbacks")} | {"breaks": breaks}


UNINITIALIZED = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}


def is_rounding(eager: Any, sample: Sample, got: Any, want: Any) -> bool:
    """Is `got` as near as eager's answer to that of float64? What should be 0, as gradients often are, is nothing but rounding in both."""
    exact = run(eager if not isinstance(eager, torch.nn.Module) else copy.deepcopy(eager).double(), widened(sample))
    sides = [pytree.tree_leaves(v) for v in (got, want, exact)]
    if len({len(leaves) for leaves in sides}) != 1:
        return False
    for g, w, e in zip(*sides, strict=True):
        if isinstance(w, torch.Tensor) and w.numel():
            if not w.dtype.is_floating_point:
                if not torch.equal(g, w):
                    return False
                continue
            if not (g.shape == w.shape == e.shape and g.dtype == w.dtype and bool(w.isfinite().all())):
                return False
            ours, theirs = ((x.detach().double() - e.detach()).abs().max() for x in (g, w))
            if ours > 3 * theirs + 1e-6 * e.detach().abs().max().clamp_min(1):
                return False
    return True


def widened(sample: Any) -> Any:
    def wide(x: Any) -> Any:
        return x.detach().double().requires_grad_(x.requires_grad) if type(x) is torch.Tensor and x.dtype.is_floating_point else x

    return pytree.tree_map(wide, sample)


def contiguous(gradients: Any) -> Any:
    """How gradients lie in memory is the autograd engine's business."""
    return None if gradients is None else [g.contiguous() if g is not None and g.layout is torch.strided else g for g in gradients]


def too_slow(*_: Any) -> None:
    raise Slow


# ---------------------------------------------------------------------------------------------------------------------- tables
def inside(table: str, samples: int, names: set[str]) -> None:
    """In a worker: the rows of those names, one after the other."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name, pairs in TABLES[table](samples):
        if name in names:
            workers.report("begin", name=name)
            workers.report("case", **examine(name, pairs))


def suite(table: str, samples: int, names: list[str]) -> list[dict[str, Any]]:
    """All rows; a worker that dies costs the row that it was at."""
    found: list[dict[str, Any]] = []
    while names:
        outcome = workers.run("benchmarks.suites", ["--inside", table, "--samples", str(samples), "--names", "|".join(names)])
        results = [{k: v for k, v in r.items() if k != "event"} for r in outcome.reports if r["event"] == "case"]
        found += results
        names = names[len(results) :]
        if names:
            status = "eager's" if outcome.reports and outcome.reports[-1]["event"] == "eager" else "died"
            found.append({"name": names[0], "status": status, "note": (outcome.error.splitlines() or [""])[-1], "trace": outcome.error})
            names = names[1:]
    return found


def group_of(name: str) -> str:
    head = name.split(".")[0]
    return ".".join(name.split(".")[:2]) if name.startswith("nn.") else head if "." in name else "torch"


def show(table: str, results: list[dict[str, Any]], console: Console) -> None:
    groups: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for r in results:
        counts = groups[group_of(r["name"]) if table in ("ops", "masked") else "training" if r["name"].endswith("training") else "eval"]
        counts[r["status"]] += 1
        counts["breaks"] += bool(r.get("graph_breaks"))
        counts["all"] += 1
    shown = Table(title=f"{table}: {sum(r['status'] == 'right' for r in results)} of {len(results)} right")
    columns = ("all", "right", "wrong", "error", "slow", "died", "eager's", "breaks")  # a process that dies in eager is not ours
    for heading in ("group", *columns):
        shown.add_column(heading, justify="left" if heading == "group" else "right")
    for name, counts in sorted(groups.items(), key=lambda g: -g[1]["all"]):
        shown.add_row(name, *[str(counts[c] or "") for c in columns])
    console.print(shown)
    for r in results:
        if r["status"] != "right":
            console.print(f"{r['status']:6} {r['name']}: {' '.join(r['note'].split())[:260]}", markup=False, soft_wrap=True)
    total: collections.Counter[str] = collections.Counter()
    for r in results:
        total.update(r.get("breaks", {}))
    for reason, n in total.most_common(40):
        console.print(f"  {n:3} graph breaks: {reason[:220]}", markup=False, soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)} (all)")
    parser.add_argument("--only", help="parts of names, comma separated")
    parser.add_argument("--samples", type=int, default=4, help="of one row")
    parser.add_argument("--trace", action="store_true", help="show tracebacks")
    parser.add_argument("--json")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--names", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        inside(args.inside, args.samples, set(args.names.split("|")))
        return
    console = Console(width=180)
    everything = {}
    for table in args.tables or TABLES:
        names = [name for name, _ in TABLES[table](args.samples)]
        if args.only:
            names = [n for n in names if any(part.lower() in n.lower() for part in args.only.split(","))]
        results = everything[table] = suite(table, args.samples, names)
        show(table, results, console)
        if args.trace:
            for r in results:
                print(r["name"], r.get("trace", ""))
        if args.json:
            with open(args.json, "w") as f:
                json.dump(everything, f, indent=1)


if __name__ == "__main__":
    main()
