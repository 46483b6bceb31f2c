"""`python -m benchmarks.features`: the programs of `tests/programs/test_torch_features*.py` under pliant and under `torch.compile`.

For each program: graph breaks of its first call, and the graphs that all its calls take (their sizes change). `torch.compile` has
`backend="eager"`, as its breaks do not depend on what runs the graphs. A program in which it fails is counted apart.

python -m benchmarks.features --page docs/features.md
python -m benchmarks.features --doubtful     # only programs that their tests do not hold to be one graph
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib
import io
import json
import os
import pathlib
import subprocess
import sys
import warnings
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
THEMES = {
    "test_torch_features": "subclasses, settings, making tensors, libraries' operators",
    "test_torch_features_operators": "higher-order and custom operators, checkpoints, `autograd.Function`",
    "test_torch_features_transforms": "transforms of `torch.func`, gradients inside",
    "test_torch_features_tensors": "functions and methods of tensors, every argument form",
    "test_torch_features_python": "Python around tensors",
    "test_torch_features_library": "the standard library around tensors, tapes inside of `autograd.Function`",
    "test_torch_features_nn": "modules, losses, parametrizations, hooks of modules",
    "test_torch_features_autograd": "hooks, saved tensors, forward mode, random numbers, distributions",
    "test_torch_features_more": "further programs, of every kind",
    "test_torch_features_outside": "state of the outside that programs read and write",
    "test_torch_features_language": "generators, exceptions and contexts",
    "test_torch_features_classes": "classes of programs and of the library",
    "test_torch_features_objects": "identity, effects, gradients, protocols of objects",
    "test_torch_features_arguments": "objects as arguments, the library around tensors",
    "test_torch_features_higher": "generators of random numbers, hooks, storages, weak references, subclasses once more",
    "test_torch_features_numeric": "`special`, `linalg`, `fft`, `signal`, `masked`, `sparse`, `nested`, once more",
    "test_torch_features_api": "in-place forms, copies of views, pools of three dims, lazy modules, transforms of distributions, schedules",
    "test_torch_features_options": "options of modules, losses, optimizers and functions",
    "test_torch_features_utilities": "helpers around models, distributions, custom operators, transforms, once more",
}
PROGRAM_S = 120


# ------------------------------------------------------------------------------------------------------------- one theme
def inside(module: str, skip: int, doubtful: bool) -> None:
    """In a worker: a line of JSON for each program from number `skip` on, or for those of them that may break."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    registry = importlib.import_module("tests.programs.registry")
    importlib.import_module(f"tests.programs.{module}")
    for number, case in enumerate(registry.REGISTRY[f"tests.programs.{module}"]):
        if number >= skip and not (doubtful and case.options.get("breaks") == 0):
            print(json.dumps({"number": number, "name": case.name}), file=sys.stderr, flush=True)
            row = {"number": number, "name": case.name, "pliant": under(case, with_pliant), "torch": under(case, with_torch)}
            row["torch"]["other"] = not row["torch"]["raised"] and answers_otherwise(case)
            print(json.dumps(row), flush=True)


def program_of(case: Any) -> Any:
    made = case.fn() if case.world else copy.deepcopy(case.fn)
    return made[0] if isinstance(made, tuple) else made


def under(case: Any, run: Any) -> dict[str, Any]:
    """What became of one program: breaks of its first call, graphs of all, what was raised."""
    import torch

    fn = program_of(case)
    calls = [copy.deepcopy(a if type(a) is tuple else (a,)) for a in case.arg_sets]
    calls = [c for c in calls if isinstance(c, tuple)]
    torch.manual_seed(0)
    with contextlib.redirect_stdout(io.StringIO()):
        return run(fn, calls)


def called(fn: Any, args: tuple) -> str:
    try:
        fn(*args)
    except Exception as e:
        return type(e).__name__
    return ""


def with_pliant(fn: Any, calls: list[tuple]) -> dict[str, Any]:
    import pliant
    from pliant import events

    pliant.reset()
    seen = pliant.stats()
    compiled, out = pliant.compile(fn, background=False), {"breaks": 0, "graphs": 0, "codes": [], "raised": ""}
    for i, args in enumerate(calls):
        out["raised"] = called(compiled, args) or out["raised"]
        now = pliant.stats()
        if i == 0:
            out["breaks"] = now["graph_breaks"] - seen["graph_breaks"]
            out["codes"] = [e.fields["code"] for e in events.events("graph_break")[-out["breaks"] :]] if out["breaks"] else []
        out["graphs"] = now["captures"] - seen["captures"]
    return out


def with_torch(fn: Any, calls: list[tuple]) -> dict[str, Any]:
    import torch
    import torch._dynamo.utils as dynamo

    torch._dynamo.reset()
    dynamo.counters.clear()
    compiled, out = torch.compile(fn, backend="eager"), {"breaks": 0, "graphs": 0, "raised": ""}
    for i, args in enumerate(calls):
        out["raised"] = called(compiled, args) or out["raised"]
        if i == 0:
            graphs = dynamo.counters["stats"]["unique_graphs"]
            out["breaks"] = max(sum(dynamo.counters["graph_break"].values()), graphs - 1, 0 if graphs else 1)
        out["graphs"] = dynamo.counters["stats"]["unique_graphs"]
    return out


# --------------------------------------------------------------------------------------------- whether `torch.compile` is right
def answers_otherwise(case: Any) -> bool:
    """Whether `torch.compile` answers, or raises, what eager does not: an answer that eager gives twice."""
    import torch

    torch._dynamo.reset()
    eager, again = answers(case, lambda fn: fn), answers(case, lambda fn: fn)
    return alike(eager, again) and not alike(eager, answers(case, lambda fn: torch.compile(fn, backend="eager")))


def answers(case: Any, compiled: Any) -> list[Any]:
    """What the calls of a program give, or the names of what they raise."""
    import torch

    fn, out = compiled(program_of(case)), []
    for i, args in enumerate(copy.deepcopy(a if type(a) is tuple else (a,)) for a in case.arg_sets):
        torch.manual_seed(i)
        if isinstance(args, tuple):
            with contextlib.redirect_stdout(io.StringIO()):
                try:
                    out.append(fn(*args))
                except Exception as e:
                    out.append(type(e).__name__)
    return out


def alike(a: Any, b: Any) -> bool:
    """Whether two answers have the same numbers in the same containers; of other objects, the same classes."""
    import torch

    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if (a.layout, a.dtype, a.device) != (b.layout, b.dtype, b.device) or a.is_nested != b.is_nested:
            return False
        if a.is_nested:
            return alike(list(a.unbind()), list(b.unbind()))
        a, b = (t.detach().to_dense() if t.layout is not torch.strided else t.detach() for t in (a, b))
        return a.shape == b.shape and torch.allclose(a.cfloat(), b.cfloat(), rtol=1e-3, atol=1e-4, equal_nan=True)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return len(a) == len(b) and alike(list(a.values()), list(b.values()))
    if type(a) in (int, float, str, bool) and type(b) is type(a):
        return bool(a == b) or type(a) is float and (a != a and b != b or abs(a - b) < 1e-4 * abs(a)) or type(a) is str and " at 0x" in a
    return type(a) is type(b)


# ------------------------------------------------------------------------------------------------------------ all themes
def measured(module: str, doubtful: bool = False) -> list[dict[str, Any]]:
    """The rows of a theme. A program that ends the process is told so, and the rest goes on in another one."""
    rows: list[dict[str, Any]] = []
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PLIANT_ENTRIES": "0"}
    while True:
        skip = rows[-1]["number"] + 1 if rows else 0
        command = [sys.executable, "-m", "benchmarks.features", "--inside", module, "--skip", str(skip)]
        command += ["--doubtful"] * doubtful
        said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PROGRAM_S * 60)
        rows += [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]
        if said.returncode == 0:
            return rows
        started = [json.loads(line) for line in said.stderr.splitlines() if line.startswith('{"number"')]
        if not started or (rows and started[-1]["number"] <= rows[-1]["number"]):
            raise RuntimeError(said.stderr[-3000:])
        ended = {"breaks": 0, "graphs": 0, "raised": f"the process ended with {said.returncode}", "codes": []}
        rows.append(started[-1] | {"pliant": ended, "torch": ended})


def table(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    lines = [
        "| programs about | number | whole: pliant | whole: `torch.compile` | breaks: pliant | breaks: `torch.compile` | graphs: pliant "
        "| graphs: `torch.compile` |",
        "|---|---|---|---|---|---|---|---|",
    ]
    total = [0] * 7
    for module, rows in found.items():
        both = [r for r in rows if not r["torch"]["raised"] or r["pliant"]["raised"]]
        numbers = [len(rows)]
        for count in (lambda s: s["breaks"] == 0 and s["graphs"] > 0, lambda s: s["breaks"], lambda s: s["graphs"]):
            for side in ("pliant", "torch"):
                over = rows if count.__code__.co_consts and count({"breaks": 0, "graphs": 1}) is True else both
                numbers.append(sum(int(count(r[side])) for r in over if not r[side]["raised"] or over is both))
        lines.append(f"| {THEMES[module]} | " + " | ".join(map(str, numbers)) + " |")
        total = [a + b for a, b in zip(total, numbers)]
    return [*lines, "| all | " + " | ".join(map(str, total)) + " |"]


def of_torch(row: dict[str, Any]) -> str:
    """Its breaks. A frame that it gives up has one, however many it would have had; an answer that is not eager's has as many as it has."""
    said = "" if row["torch"]["graphs"] else ", no graph at all"
    return f"{row['torch']['breaks']}{said}{', another answer than eager' if row['torch'].get('other') else ''}"


def page(found: dict[str, list[dict[str, Any]]]) -> str:
    rows = [(module, r) for module, rows in found.items() for r in rows]
    more = [(m, r) for m, r in rows if r["pliant"]["breaks"] > r["torch"]["breaks"] and not r["torch"]["raised"]]
    right = [(m, r) for m, r in more if not r["torch"].get("other") and r["torch"]["graphs"]]
    others = [(m, r) for m, r in rows if r["torch"].get("other")]
    fails = [(m, r) for m, r in rows if r["torch"]["raised"] and not r["pliant"]["raised"]]
    broken = [(m, r) for m, r in rows if r["pliant"]["breaks"]]
    out = [
        "# PyTorch's features, program by program",
        "",
        "Made by `python -m benchmarks.features --page docs/features.md`. Each of the programs of `tests/programs/test_torch_features*.py`",
        "is called with three sizes or more; tests hold its values, gradients, aliasing and effects against eager's. Here its graph breaks",
        '(of the first call) and graphs (of all calls) are counted beside those of `torch.compile(backend="eager")`. Where only',
        "`torch.compile` raises, the program counts as not whole there, and its breaks and graphs are left out on both sides.",
        "",
        *table(found),
        "",
        f"Programs in which `torch.compile` raises and pliant does not: {len(fails)}.",
        f"Programs in which `torch.compile` answers otherwise than eager (gradients and writes not compared here): {len(others)}"
        + (": " + ", ".join(f"`{r['name']}`" for _, r in others) if others else "") + ".",
        f"Programs in which pliant breaks it more often, of those where `torch.compile` has a graph and eager's answer: {len(right)}.",
        f"Programs in which pliant breaks the graph more often than `torch.compile`: {len(more)}"
        + (": " + ", ".join(f"`{r['name']}` ({r['pliant']['breaks']} and {of_torch(r)})" for _, r in more) if more else "") + ".",
        "",
        "## Programs whose graph pliant breaks",
        "",
        "| program | breaks | codes | `torch.compile` |",
        "|---|---|---|---|",
        *[
            f"| `{r['name']}` | {r['pliant']['breaks']} | {', '.join(sorted(set(r['pliant'].get('codes', []))))} "
            f"| {r['torch']['raised'] or of_torch(r)} |"
            for _, r in broken
        ],
    ]  # fmt: skip
    return "\n".join(out) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.features")
    parser.add_argument("themes", nargs="*", default=list(THEMES))
    parser.add_argument("--page", help="write this file")
    parser.add_argument("--json", help="write the rows to this file; those of themes that are not asked for stay in it")
    parser.add_argument("--doubtful", action="store_true", help="only programs that their tests do not hold to be one graph")
    parser.add_argument("--inside")
    parser.add_argument("--skip", type=int, default=0)
    given = parser.parse_args()
    if given.inside:
        inside(given.inside, given.skip, given.doubtful)
        return
    kept = pathlib.Path(given.json) if given.json else None
    found = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    for module in given.themes:
        found[module] = measured(module, given.doubtful)
        if kept is not None:
            kept.write_text(json.dumps(found))
    text = page(found)
    if given.page:
        pathlib.Path(given.page).write_text(text)
    print(text)


if __name__ == "__main__":
    main()
