"""`python -m benchmarks.export_zoo [family ...]`: which of other people's models export, and what their programs answer.

Each model of `benchmarks.zoo` is exported from its first call; the program, and each format that is asked for, answers all calls (batch 1
and other sizes among them) and is compared with eager. An export that pins what the calls change is "pinned", and does not count.
`--formats program,file,torch,onnx,stablehlo`. A family runs in a process of its own, started again after a model that does not come back.

python -m benchmarks.export_zoo encoders --only Bert --formats program,onnx --json results.json
"""

from __future__ import annotations

import argparse
import copy
import inspect
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

import pliant
from benchmarks import zoo
from benchmarks.crawl import Mismatch, same_tensor
from pliant.cli import export as cli
from pliant.export.signature import SignatureError
from pliant.lower import liveness

LIMIT_S = 180.0
STARTS_S = 30.0
"""What a process may take until its first model."""
RELATIVE = 1e-4
SEED = 1


def seeded(model: Any, args: tuple, kwargs: dict) -> Any:
    """Eager's answer, with the random numbers that a program is given, too."""
    torch.manual_seed(SEED)
    return model(*args, **kwargs)


def compare(got: list[Any], want: list[Any]) -> float:
    worst = 0.0
    if len(got) != len(want):
        raise Mismatch(f"{len(got)} outputs, eager has {len(want)}")
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if isinstance(w, torch.Tensor):
            g = torch.as_tensor(g)
            if g.shape != w.shape or g.dtype != w.dtype:
                raise Mismatch(f"output {i}: {g.dtype} {tuple(g.shape)}, eager has {w.dtype} {tuple(w.shape)}")
            try:
                worst = max(worst, same_tensor(g.contiguous(), w.detach().contiguous(), f"output {i}"))
            except Mismatch as e:
                off = (
                    float((g.double() - w.double()).abs().max() / w.double().abs().max().clamp_min(1e-6)) if w.is_floating_point() else 1.0
                )
                if not off <= RELATIVE:
                    raise Mismatch(f"{e} ({off:.1e})") from e
                worst = max(worst, off)
        elif g != w:
            raise Mismatch(f"output {i}: {g!r}, eager has {w!r}")
    return worst


def users(p: Any, outs: dict[str, Any]) -> list[Any]:
    return [outs[o.name] for o in p.user_outputs]


# -- formats: program -> a function from flat inputs to flat outputs --------------------------------------------------------------
def as_program(p: Any, work: Path) -> Callable[[dict[str, Any]], list[Any]]:
    return lambda values: users(p, p.run(values))


def as_file(p: Any, work: Path) -> Callable[[dict[str, Any]], list[Any]]:
    path = work / "m.pliant"
    p.save(path)
    q = pliant.load(path, libraries=("transformers",))  # whose experts are an operator of theirs
    if str(q) != str(p):
        raise Mismatch("the loaded program is another one")
    return lambda values: users(q, q.run(values))


def as_others(name: str) -> Callable[[Any, Path], Callable[[dict[str, Any]], list[Any]]]:
    """What `pliant export` writes and runs."""
    return lambda p, work: cli.FORMATS[name](p, work / "m")[1]


FORMATS: dict[str, Callable[[Any, Path], Callable[[dict[str, Any]], list[Any]]]] = {
    "program": as_program, "file": as_file, **{name: as_others(name) for name in ("torch", "onnx", "stablehlo")},
}  # fmt: skip


# -- PyTorch's exporters beside: model, call -> (a function from a call to its outputs, (open dims, dims)) -------------------------
def as_open(model: Any, args: tuple, kwargs: dict) -> dict[str, Any]:
    """`dynamic_shapes=` that leaves all dims to torch.export."""
    given = inspect.signature(model.forward).bind(*args, **kwargs).arguments

    def dims(x: Any) -> Any:
        return dict.fromkeys(range(x.dim()), torch.export.Dim.AUTO) if isinstance(x, torch.Tensor) else None

    return {name: pytree.tree_map(dims, v) for name, v in given.items()}


def exported(model: Any, args: tuple, kwargs: dict) -> Any:
    return torch.export.export(model, args, kwargs, dynamic_shapes=as_open(model, args, kwargs), strict=False)


def open_dims(sizes: list[Any]) -> tuple[int, int]:
    return sum(not isinstance(s, int) for s in sizes), len(sizes)


def through_torch_export(model: Any, args: tuple, kwargs: dict, work: Path) -> tuple[Callable[..., Any], tuple[int, int]]:
    ep = exported(model, args, kwargs)
    users = set(ep.graph_signature.user_inputs)
    values = [n.meta["val"] for n in ep.graph.nodes if n.op == "placeholder" and n.name in users]
    return ep.module(), open_dims([s for v in values if isinstance(v, torch.Tensor) for s in v.shape])


def through_torch_onnx(model: Any, args: tuple, kwargs: dict, work: Path) -> tuple[Callable[..., Any], tuple[int, int]]:
    import onnxruntime

    torch.onnx.export(
        model, args, work / "rival.onnx", kwargs=kwargs, dynamo=True, verbose=False, dynamic_shapes=as_open(model, args, kwargs)
    )
    session = onnxruntime.InferenceSession(str(work / "rival.onnx"))

    def run(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
        tensors = [x.numpy() for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        return [torch.as_tensor(x) for x in session.run(None, {i.name: t for i, t in zip(session.get_inputs(), tensors, strict=True)})]

    return run, open_dims([s for i in session.get_inputs() for s in i.shape])


def known_caches() -> None:
    """Tells PyTorch of transformers' caches, in and out of models, as transformers itself advises; it does not know them by itself."""
    from transformers.cache_utils import EncoderDecoderCache
    from transformers.integrations.executorch import register_dynamic_cache_export_support

    register_dynamic_cache_export_support()
    if EncoderDecoderCache not in pytree.SUPPORTED_NODES:
        pytree.register_pytree_node(
            EncoderDecoderCache, lambda c: ([c.self_attention_cache, c.cross_attention_cache], None),
            lambda both, _: EncoderDecoderCache(*both), serialized_type_name="transformers.EncoderDecoderCache",
        )  # fmt: skip


RIVALS = {"torch.export": through_torch_export, "torch.onnx": through_torch_onnx}


def beside(name: str, model: Any, calls: list[Any], want: list[Any], work: Path, example: int) -> dict[str, Any]:
    """What became of the model in one of PyTorch's exporters."""
    out: dict[str, Any] = {}
    try:
        known_caches()
        began = time.perf_counter()
        with torch.no_grad():
            run, out["open"] = RIVALS[name](copy.deepcopy(model), *copy.deepcopy(calls[example]), work)
            out["seconds"] = time.perf_counter() - began
            worst = 0.0
            for (args, kwargs), w in zip(calls, want, strict=True):
                torch.manual_seed(SEED)
                got = run(*copy.deepcopy(args), **copy.deepcopy(kwargs))
                worst = max(worst, compare(*([x for x in pytree.tree_leaves(v) if isinstance(x, torch.Tensor)] for v in (got, w))))
        return out | {"status": "right", "off": worst}
    except Exception as e:
        return out | {"status": "wrong" if isinstance(e, Mismatch) else "error", "note": f"{type(e).__name__}: {e}"[:600]}


def examine(row: Any, formats: list[str], rivals: list[str], work: Path, example: int = 0) -> dict[str, Any]:
    """What became of one model: `export` ("right" or why not), and for each format and rival the same."""
    out: dict[str, Any] = {"name": row.name}
    try:
        model = row.make()
        calls = row.calls(model)
        if row.generate is not None:
            return out | {"export": "skipped"}
        with torch.no_grad():
            seeded(model, *copy.deepcopy(calls[0]))  # a model in use: what it remembers of its first call, it knows
            want = [seeded(copy.deepcopy(model), copy.deepcopy(a), copy.deepcopy(k)) for a, k in calls]
    except Exception as e:
        return out | {"export": "no eager", "note": f"{type(e).__name__}: {e}"}
    out |= {name: beside(name, model, calls, want, work, example) for name in rivals}
    if not formats and rivals:
        return out | {"export": "not tried"}
    began = time.perf_counter()
    try:
        p = pliant.export(model, *copy.deepcopy(calls[example]))
    except Exception as e:
        return out | {"export": "error", "note": f"{type(e).__name__}: {e}", "trace": traceback.format_exc()}
    out |= {
        "export": "right",
        "seconds": time.perf_counter() - began,
        "ops": len(p.ops),
        "open": open_dims([s for i in p.user_inputs if i.is_tensor for s in i.value.sizes]),
        "relations": [f"{r.expr} {r.site}" for r in p.relations],
    }
    for name in formats:
        began = time.perf_counter()
        try:
            run = FORMATS[name](p, work)
            worst = 0.0
            for (args, kwargs), w in zip(calls, want, strict=True):
                args, kwargs = copy.deepcopy((args, kwargs))
                given = p.inputs_of(*args, **kwargs)
                if name in ("program", "file"):
                    given = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in given.items()}
                torch.manual_seed(SEED)
                with torch.no_grad():
                    worst = max(worst, compare(run(given), p.outputs_of(w)))
            out[name] = {"status": "right", "off": worst, "seconds": time.perf_counter() - began}
        except Exception as e:
            kind = "wrong" if isinstance(e, Mismatch) else "error"
            if kind == "wrong" and name == "onnx" and any(liveness.draws(op.target) for op in p.ops):
                out[name] = {"status": "random", "note": "it draws random numbers, which in ONNX are others than PyTorch's"}
                continue
            out[name] = {"status": kind, "note": f"{type(e).__name__}: {e}"[:600], "trace": traceback.format_exc()[-3000:]}
            if isinstance(e, SignatureError):  # it pins what the calls change: none of its formats counts
                return out | {"export": "pinned"}
    return out


def inside(family: str, names: list[str], formats: list[str], rivals: list[str], work: Path, example: int) -> None:
    """In a worker: the models of that name, a line of JSON each."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    rows = {m.name: m for m in zoo.load(family)}
    for name in names:
        print("RESULT " + json.dumps(examine(rows[name], formats, rivals, work, example)), flush=True)


def family(
    name: str, found: list[dict[str, Any]], only: list[str], formats: list[str], rivals: list[str], work: Path, example: int, limit: float,
    keep: Callable[[], None],
) -> None:  # fmt: skip
    """Examines the models of a family that are not yet among `found`, where each result goes; `keep` is called after each."""
    known = {row["name"] for row in found}
    names = [m.name for m in zoo.load(name) if m.name not in known and (not only or any(o in m.name for o in only))]
    while names:
        command = [sys.executable, "-m", "benchmarks.export_zoo", "--inside", name, "--names", json.dumps(names)]
        command += ["--formats", ",".join(formats), "--rivals", ",".join(rivals)]
        worker = subprocess.Popen(
            [*command, "--work", str(work), "--example", str(example)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert worker.stdout is not None
        timer = threading.Timer(limit + STARTS_S, worker.kill)
        timer.start()
        for line in worker.stdout:
            if line.startswith("RESULT "):
                row = json.loads(line[7:])
                found.append(row)
                keep()
                report(row, [*formats, *rivals])
                names.remove(row["name"])
                timer.cancel()
                timer = threading.Timer(limit, worker.kill)
                timer.start()
        timer.cancel()
        worker.wait()
        if names:
            row = {"name": names.pop(0), "export": "error", "note": f"the process ended with {worker.returncode}, or took {limit:.0f} s"}
            if not formats and rivals:
                failed = {"status": "error", "note": row["note"]}
                row = {"name": row["name"], "export": "not tried", **dict.fromkeys(rivals, failed)}
            found.append(row)
            keep()
            report(row, [*formats, *rivals])


def report(row: dict[str, Any], formats: list[str]) -> None:
    words = [f"{row['name']:34} export {row['export']:9}"]
    words += [f"{f} {row[f]['status']}" for f in formats if f in row]
    notes = [row.get("note", "")] + [row[f].get("note", "") for f in formats if f in row]
    print("  ".join(words), *[n.splitlines()[0][:300] for n in notes if n], sep="\n      ", flush=True)


def table(files: list[Path]) -> str:
    """The results as a page: figures, then what every model came to, with the reason where it is not "right"."""
    families: dict[str, dict[str, dict[str, Any]]] = {}
    for file in files:
        for name, found in json.loads(file.read_text()).items():
            for r in found:
                before = families.setdefault(name, {}).get(r["name"], {})
                families[name][r["name"]] = before | ({k: v for k, v in r.items() if k != "export"} if r["export"] == "not tried" else r)
    rows = [(f, r) for f, found in families.items() for r in found.values() if r.get("export") not in (None, "no eager", "skipped")]
    formats = [f for f in FORMATS if any(f in r for _, r in rows)]
    rivals = [f for f in RIVALS if any(f in r for _, r in rows)]
    out = ["# Exports of other people's models", "", "Generated: `python -m benchmarks.export_zoo --json r.json;"]
    out[-1] += " python -m benchmarks.export_zoo --table r.json > docs/export-zoo.md`. Each model is exported from one call"
    out[-1] += " and answers calls of other sizes."
    out += ["", "| | right | of | dims that stayed open | seconds to export, median |", "|---|---|---|---|---|"]
    out.append(summary("pliant.export", [r | {"status": r["export"]} for _, r in rows]))
    out += [summary(f, [r.get(f, {}) for _, r in rows if f in r or f in FORMATS]) for f in (*formats, *rivals)]
    heads = ["model", "family", "export", *formats, *rivals]
    out += ["", f"| {' | '.join(heads)} | why not |", "|---|---|---|" + "---|" * (len(heads) - 2)]
    for family_, r in rows:
        cells = [r["export"], *[r.get(f, {}).get("status", "") for f in (*formats, *rivals)]]
        notes = dict.fromkeys(reason(n) for n in [r.get("note", ""), *[r.get(f, {}).get("note", "") for f in formats]] if n)
        out.append(f"| {r['name']} | {family_} | {' | '.join(cells)} | {'; '.join(notes)} |")
    return "\n".join(out) + "\n"


RIVALS_TEXT = """
Generated: `python -m benchmarks.export_zoo --formats '' --rivals torch.export --limit 60 --json a.json`, the same with
torch.onnx, `--limit 90` and b.json, then
`python -m benchmarks.export_zoo --rivals-table a.json b.json > docs/export-rivals.md`. All dims are `Dim.AUTO`,
and transformers' caches are registered as it advises; each model is exported from the call that pliant is given
([export-zoo.md](export-zoo.md)), and answers the same calls of other sizes. Times were taken on a busy machine.
"""


def rivals_page(files: list[Path]) -> str:
    """What PyTorch's exporters came to: figures, then each model."""
    found: dict[str, dict[str, Any]] = {}
    for file in files:
        for rows in json.loads(file.read_text()).values():
            for r in rows:
                if any(name in r for name in RIVALS):
                    found.setdefault(r["name"], {}).update(r)
    names = [n for n in RIVALS if any(n in r for r in found.values())]
    out = ["# The same models through PyTorch's exporters", "", " ".join(RIVALS_TEXT.split())]
    out += ["", "| | right | of | dims that stayed open | seconds to export, median |", "|---|---|---|---|---|"]
    out += [summary(n, [r[n] for r in found.values() if n in r]) for n in names]
    out += ["", f"| model | {' | '.join(names)} | why not |", "|---|" + "---|" * (len(names) + 1)]
    for name, r in found.items():
        cells = [r.get(n, {}).get("status", "") for n in names]
        notes = [f"{n}: {reason(essence(note))[:160]}" for n in names if (note := r.get(n, {}).get("note", ""))]
        out.append(f"| {name} | {' | '.join(cells)} | {'; '.join(notes)} |")
    return "\n".join(out) + "\n"


def essence(note: str) -> str:
    """The exception that an exporter's report is about."""
    inner = re.search(r"<class '([\w.]+)'>: (.*)", note)
    return f"{inner[1].rpartition('.')[2]}: {inner[2]}" if inner else note


def summary(name: str, found: list[dict[str, Any]]) -> str:
    """A row of figures: of all that were tried."""
    right = sum(r.get("status") == "right" for r in found)
    dims = [r["open"] for r in found if "open" in r and r.get("status") != "pinned"]
    seconds = sorted(r["seconds"] for r in found if "open" in r and "seconds" in r)
    opened = f"{sum(o for o, _ in dims)} of {sum(n for _, n in dims)}" if dims else ""
    took = f"{seconds[len(seconds) // 2]:.2f}" if seconds else ""
    return f"| {name} | {right} | {len(found)} | {opened} | {took} |"


def reason(note: str) -> str:
    """The essence of an error, without folders."""
    text = note.partition("\n")[0].removeprefix("GraphBreakError: ")
    text = re.sub(r"/\S*/site-packages/|/\S*/lib/python[\d.]+/", "", text)
    return re.sub(r"\|", r"\\|", text)[:400]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--only", default="")
    parser.add_argument("--formats", default="program,file")
    parser.add_argument("--rivals", default="", help=f"PyTorch's exporters beside, of {', '.join(RIVALS)}")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", type=Path, default=None)
    parser.add_argument("--example", type=int, default=0, help="which of the model's calls is exported")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds a model may take")
    parser.add_argument("--goes-on", action="store_true", help="leave out the models that are in the JSON file")
    parser.add_argument("--inside")
    parser.add_argument("--names")
    parser.add_argument("--table", type=Path, nargs="+", help="print the page of these results, and do nothing else")
    parser.add_argument("--rivals-table", type=Path, nargs="+", help="print the page about PyTorch's exporters, and do nothing else")
    args = parser.parse_args()
    if args.rivals_table:
        print(rivals_page(args.rivals_table), end="")
        return
    if args.table:
        print(table(args.table), end="")
        return
    formats, rivals = ([f for f in names.split(",") if f] for names in (args.formats, args.rivals))
    if args.inside:
        inside(args.inside, json.loads(args.names), formats, rivals, args.work, args.example)
        return
    results: dict[str, list[dict[str, Any]]] = {}
    if args.goes_on and args.json.exists():
        results = json.loads(args.json.read_text())

    def keep() -> None:
        if args.json:
            args.json.write_text(json.dumps(results, indent=1))

    with tempfile.TemporaryDirectory() as work:
        for name in args.families or zoo.FAMILIES:
            try:
                found, only = results.setdefault(name, []), [o for o in args.only.split(",") if o]
                family(name, found, only, formats, rivals, Path(work), args.example, args.limit, keep)
            except ImportError as e:
                print(f"{name}: {e}")
            keep()
    rows = [r for rs in results.values() for r in rs if r["export"] not in ("no eager", "skipped")]
    print(f"{len(rows)} models; exported {sum(r['export'] == 'right' for r in rows)}", end="")
    for f in (*formats, *rivals):
        print(f"; {f} {sum(r.get(f, {}).get('status') == 'right' for r in rows)}", end="")
    print()


if __name__ == "__main__":
    main()
