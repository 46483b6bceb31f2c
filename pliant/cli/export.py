"""`pliant export`: a model from the command line to any format, run at several sizes against eager.

    pliant export model.py:Net() "float32[batch=2,3,h=32,w=32]" --to onnx,stablehlo --check 1,2,7
    pliant export package.module:model --inputs package.module:example --to pliant -o out/model

An input is a dtype with sizes: numbers, or names with an example (`batch=2`), which become dims; `int64[batch,n=7]<99` draws ids below 99,
`mask=bool[batch,n]` is a keyword, a plain number is one. `--inputs` names a function that gives `(args, kwargs)`.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import importlib.util
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn
from rich.table import Table

from pliant.errors import PliantError
from pliant.export import export, load
from pliant.export.naming import Parameters
from pliant.export.program import door
from pliant.export.signature import Caller, SignatureError
from pliant.jit.dims import Dim

SPEC = re.compile(r"(?:(?P<key>[A-Za-z_]\w*)=)?(?P<dtype>[a-z]+\d*)\[(?P<sizes>[^\]]*)\](?:<(?P<below>\d+))?")
NUMBER = re.compile(r"(?:(?P<key>[A-Za-z_]\w*)=)?(?P<value>-?\d+(?:\.\d+)?|true|false)")
SIZE = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:=(?P<example>\d+))?|(?P<number>\d+)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="file.py:name or package.module:name of a module or function; name() is called first")
    parser.add_argument("example", nargs="*", help='inputs, such as "float32[batch=2,64]" "mask=bool[batch,n=7]" 3')
    parser.add_argument("--inputs", help="file.py:name or package.module:name of a function that gives (args, kwargs)")
    parser.add_argument("--to", default="pliant", help=f"formats, of {', '.join(FORMATS)}")
    parser.add_argument("-o", "--output", type=Path, help="where to write: the path without its ending (default: the model's name)")
    parser.add_argument("--form", default="core", choices=("core", "aten", "training"))
    parser.add_argument("--check", nargs="?", const="1,2,7,33", help="run at these sizes of every named dim and compare with eager")
    parser.add_argument("--eval", action="store_true", help="call eval() on the module first")
    parser.add_argument("--show", action="store_true", help="print the program")


def run(args: argparse.Namespace) -> int:
    """Export, write and check. The exit status is 1 if a format could not be written, or answers otherwise than eager."""
    formats = [f for f in args.to.split(",") if f]
    unknown = [f for f in formats if f not in FORMATS]
    if unknown:
        raise PliantError(f"there is no format {', '.join(unknown)}: use {', '.join(FORMATS)}")
    model = found(args.model)
    if args.eval and isinstance(model, torch.nn.Module):
        model.eval()
    inputs = Inputs(args.example) if args.example or not args.inputs else None
    given, named = inputs.made({}) if inputs is not None else found(args.inputs)()
    output = args.output or Path(type(model).__name__ if isinstance(model, torch.nn.Module) else getattr(model, "__name__", "program"))
    sizes = [int(s) for s in args.check.split(",")] if args.check else []
    console = Console()
    rows: list[tuple[str, ...]] = []
    failed = False
    columns = (SpinnerColumn(), "{task.description}", *Progress.get_default_columns()[1:2], TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("capturing", total=1 + len(formats))
        began = time.perf_counter()
        program = export(model, given, named, dynamic=inputs.dynamic(model, given) if inputs is not None else None, form=args.form)
        rows.append(("capture", f"{len(program.ops)} operations", f"{time.perf_counter() - began:.2f} s", ""))
        progress.advance(task)
        for name in formats:
            progress.update(task, description=name)
            began = time.perf_counter()
            try:
                path, answer = FORMATS[name](program, output)
                seconds, size = time.perf_counter() - began, path.stat().st_size
                said = checked(model, answer, program, inputs, (given, named), sizes) if args.check else ""
                failed |= "not eager" in said
                rows.append((name, f"{path} ({size / 1e6:.2f} MB)", f"{seconds:.2f} s", said))
            except (PliantError, ImportError) as e:
                failed = True
                rows.append((name, f"[red]{type(e).__name__}[/]: {e}", "", ""))
            progress.advance(task)
    table = Table(title=f"{program.name}: {signature(program)}", title_justify="left")
    for column in ("", "what", "time", "check"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for note in program.notes:
        console.print(f"note: {note}, which the program does not", markup=False)
    if args.show:
        console.print(str(program), markup=False, highlight=False)
    return int(failed)


# -- what is exported ---------------------------------------------------------------------------------------------------------
def found(where: str) -> Any:
    """The object that `file.py:name` or `package.module:name` says; with `()` behind it, what calling it gives."""
    place, colon, name = where.rpartition(":")
    if not colon:
        raise PliantError(f"{where!r} names no object: write file.py:name or package.module:name")
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(place).stem, place)
            if spec is None or spec.loader is None or not Path(place).exists():
                raise PliantError(f"there is no file {place}")
            module = importlib.util.module_from_spec(spec)
            sys.modules.setdefault(spec.name, module)
            spec.loader.exec_module(module)
        else:
            sys.path.insert(0, "")
            module = importlib.import_module(place)
    except ModuleNotFoundError as e:
        raise PliantError(f"{place} cannot be imported: {e}") from e
    value: Any = module
    for word in name.removesuffix("()").split("."):
        if not hasattr(value, word):
            raise PliantError(f"{place} has no {name.removesuffix('()')}")
        value = getattr(value, word)
    return value() if name.endswith("()") else value


class Inputs:
    """Inputs as the command line spells them. `names`: the named dims and their example sizes."""

    def __init__(self, texts: list[str]) -> None:
        self.rows: list[tuple[str | None, Any]] = []
        self.names: dict[str, int] = {}
        for text in texts:
            self.rows.append(self.row(text))
        missing = [n for n, size in self.names.items() if not size]
        if missing:
            raise PliantError(f"the dim {missing[0]} has no example size: write {missing[0]}=2 where it is first used")

    def row(self, text: str) -> tuple[str | None, Any]:
        spec, number = SPEC.fullmatch(text), NUMBER.fullmatch(text)
        if number is not None:
            word = number["value"]
            return number["key"], word == "true" if word in ("true", "false") else float(word) if "." in word else int(word)
        dtype = getattr(torch, spec["dtype"], None) if spec is not None else None
        if spec is None or not isinstance(dtype, torch.dtype):
            raise PliantError(f"{text!r} is no input: write float32[batch=2,64], int64[batch,n=7]<99, key=bool[batch], or a number")
        return spec["key"], (dtype, [self.size(s.strip(), text) for s in spec["sizes"].split(",") if s.strip()], int(spec["below"] or 10))

    def size(self, word: str, text: str) -> int | str:
        parts = SIZE.fullmatch(word)
        if parts is None:
            raise PliantError(f"{word!r} in {text!r} is no size: a number, a name, or name=example")
        if parts["number"]:
            return int(word)
        self.names.setdefault(parts["name"], 0)
        if parts["example"]:
            self.names[parts["name"]] = int(parts["example"])
        return parts["name"]

    def made(self, sizes: dict[str, int]) -> tuple[tuple, dict]:
        """Random inputs; named dims have their example's size, or that of `sizes`."""
        generator = torch.Generator().manual_seed(0)
        args, kwargs = [], {}
        for key, what in self.rows:
            value = what if not isinstance(what, tuple) else self.tensor(what, self.names | sizes, generator)
            if key is None:
                args.append(value)
            else:
                kwargs[key] = value
        return tuple(args), kwargs

    def tensor(self, what: tuple, sizes: dict[str, int], generator: torch.Generator) -> torch.Tensor:
        dtype, shape, below = what
        shape = [sizes[s] if isinstance(s, str) else s for s in shape]
        if dtype.is_floating_point or dtype.is_complex:
            return torch.randn(shape, generator=generator, dtype=torch.float32).to(dtype)
        return torch.randint(0, 2 if dtype is torch.bool else below, shape, generator=generator).to(dtype)

    def dynamic(self, model: Any, given: tuple) -> dict[str, Any]:
        """The dims of each input as `pliant.export` takes them."""
        parameters = Parameters(model, given, {})
        dims = {n: Dim(n) for n in self.names}
        out: dict[str, Any] = {}
        at = 0
        for key, what in self.rows:
            name = key
            if key is None:
                name = parameters.positional[at] if at < len(parameters.positional) else None
                at += 1
            if name is not None and isinstance(what, tuple) and any(isinstance(s, str) for s in what[1]):
                out[name] = {d: dims[s] for d, s in enumerate(what[1]) if isinstance(s, str)}
        return out


# -- formats: (program, path without ending) -> (the file, a function from flat inputs to the user's outputs) ----------------------
Answer = Callable[[dict[str, Any]], list[Any]]


def to_pliant(p: Any, output: Path) -> tuple[Path, Answer]:
    path = output.with_name(output.name + ".pliant")
    p.save(path)
    q = load(path)
    return path, lambda values: [q.run(values)[o.name] for o in q.user_outputs]


def to_torch(p: Any, output: Path) -> tuple[Path, Answer]:
    path = output.with_name(output.name + ".pt2")
    exported = p.to_torch_export()
    if any(not i.is_tensor and i.value.kind is float for i in p.user_inputs):
        raise PliantError("torch.export.save writes no program that takes floats: pass them as tensors; to_torch_export() itself has them")
    torch.export.save(exported, path)
    module = exported.module()
    torch_export = door("torch_export")

    def answer(values: dict[str, Any]) -> list[Any]:
        args, kwargs = torch_export.arguments(p, values)
        return torch_export.user_outputs(p, module(*args, **kwargs))

    return path, answer


def to_onnx(p: Any, output: Path) -> tuple[Path, Answer]:
    onnxruntime = importlib.import_module("onnxruntime")
    path = output.with_name(output.name + ".onnx")
    p.to_onnx(path)
    session = onnxruntime.InferenceSession(str(path))
    names = {i.name for i in session.get_inputs()}

    def answer(values: dict[str, Any]) -> list[Any]:
        given = {k: v.detach().numpy() if isinstance(v, torch.Tensor) else numpy.array(v) for k, v in values.items() if k in names}
        return [torch.as_tensor(x) for x in session.run([o.name for o in p.user_outputs], given)]

    return path, answer


def to_stablehlo(p: Any, output: Path) -> tuple[Path, Answer]:
    path = output.with_name(output.name + ".mlir")
    module = p.to_stablehlo()
    module.save(path)
    return path, lambda values: [module.run(values)[o.name] for o in p.user_outputs]


FORMATS: dict[str, Callable[[Any, Path], tuple[Path, Answer]]] = {
    "pliant": to_pliant, "torch": to_torch, "onnx": to_onnx, "stablehlo": to_stablehlo,
}  # fmt: skip


# -- checks --------------------------------------------------------------------------------------------------------------------
def checked(model: Any, answer: Answer, p: Any, inputs: Inputs | None, example: tuple, sizes: list[int]) -> str:
    """What running at several sizes came to, in words."""
    calls: list[tuple[str, tuple]] = [("example", example)]
    if inputs is not None and inputs.names:
        calls += [(f"{n}", inputs.made(dict.fromkeys(inputs.names, n))) for n in sizes]
    worst, refused = 0.0, []
    for name, (args, kwargs) in calls:
        theirs = copy.deepcopy((args, kwargs))
        try:
            with torch.no_grad():
                want = copy.deepcopy(model)(*theirs[0], **theirs[1])
        except Exception as e:
            refused.append(f"{name}: eager raises {type(e).__name__}")
            continue
        try:
            values = p.inputs_of(*args, **kwargs)
            off = apart(answer(values), p.outputs_of(want))
        except SignatureError as e:
            refused.append(f"{name}: {e}")
            continue
        if off > 1e-3:
            return f"[red]not eager's answer[/] at {name}: off by {off:.1e}"
        worst = max(worst, off)
    said = f"eager's answer at {len(calls) - len(refused)} sizes (off by {worst:.0e} at most)"
    return "\n".join([said, *refused])


def apart(got: list[Any], want: list[Any]) -> float:
    """The largest difference, as a part of the largest value; infinity where shapes or dtypes differ."""
    worst = 0.0
    for g, w in zip(got, want, strict=True):
        g, w = torch.as_tensor(g), torch.as_tensor(w).detach()
        if g.shape != w.shape or g.dtype != w.dtype:
            return float("inf")
        if w.numel():
            difference = (g.double() - w.double()).abs().nan_to_num(0.0).max() if not w.is_complex() else (g - w).abs().max()
            worst = max(worst, float(difference / w.abs().double().nan_to_num(0.0).max().clamp_min(1e-6)))
    return worst


def signature(p: Any) -> str:
    caller = Caller(p)
    takes = ", ".join(f"{i.name}: {caller.promise(i).removeprefix('a tensor ').removeprefix('a Python ')}" for i in p.user_inputs)
    return escape(f"({takes}) -> {', '.join(o.name for o in p.user_outputs)}")
