"""A program that has left its process: inputs and outputs by name, operations of one form, weights.

A `Program` is what `pliant.export` makes and `pliant.load` reads; the exporters (`to_onnx`, ...) print it in another format. It is a list
of ATen operations (`graph/record.py: Op`) over traced tensors, whose sizes are expressions over the symbols of `scope`; nothing in it
refers to the Python program that it came from.
"""

from __future__ import annotations

import builtins
import pkgutil
from dataclasses import dataclass, field
from typing import Any

import torch

from pliant.errors import PliantError
from pliant.export import trees
from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor

FORMS = ("torch", "aten", "core", "training")
"""What a program may consist of: calls of the torch API, before autograd ("torch"); ATen operations as they were recorded, in-place ones
too ("aten"); functional ones of the core set ("core"); these with loss and gradients ("training")."""

USER, PARAMETER, BUFFER, CONSTANT = "user", "parameter", "buffer", "constant"
"""Kinds of inputs. The last three are the state of the program: their values are in `Program.state`, by name."""

MUTATION, GRADIENT = "mutation", "gradient"
"""Kinds of outputs, besides "user": the value that an input or a buffer has afterwards; the gradient of a parameter or input."""

Step = tuple[str, Any]
"""From a parameter to a value inside of it: ("index", 0), ("key", "ids"), ("attr", "_values")."""


def door(name: str) -> Any:
    """A function of this room by its place: formats are imported when somebody asks for one."""
    return pkgutil.resolve_name(f"pliant.export.{name}")


@dataclass(slots=True, eq=False)
class Input:
    """A tensor or a number that the program takes. `value` stands for it in the operations: a traced tensor, or a symbol (an int, float
    or bool). `path`: the parameter of the exported function, and the steps from there; empty for state."""

    name: str
    kind: str
    value: Any
    path: tuple[Any, ...] = ()
    written: bool = False  # the program writes it: an output of kind "mutation" says what it has become

    @property
    def is_tensor(self) -> bool:
        return type(self.value) is TracedTensor


@dataclass(slots=True, eq=False)
class Output:
    """A tensor or a number that the program gives. `of`: the input, by name, whose new value or gradient it is. `path`: where a new value
    goes that is held by an object among the arguments."""

    name: str
    kind: str
    value: Any  # a traced tensor, a symbolic number, or a constant number
    of: str = ""
    path: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Relation:
    """What must hold of the sizes and numbers of a call, and the line of the program that needs it (as text, perhaps empty)."""

    expr: Any
    site: str = ""
    why: str = ""
    error: str = ""  # of an assertion: what the program raises, where that is no RuntimeError

    @property
    def raises(self) -> type[Exception]:
        return error_named(self.error)

    @property
    def told(self) -> str:
        """What a format says that has one exception for all: the program's own words, and its exception."""
        return f"{self.error}: {self.why}" if self.error and self.why else self.error or self.why


def error_name(error: type[Exception]) -> str:
    """The nearest of Python's own exceptions that takes words; "" for RuntimeError."""
    for c in error.__mro__:
        if c.__name__ != "RuntimeError" and c in WORDY:
            return c.__name__
        if c is RuntimeError:
            break
    return ""


def error_named(name: str) -> type[Exception]:
    """ValueError for a name that is not one of these."""
    found: Any = getattr(builtins, name or "RuntimeError", None)
    if found not in WORDY:
        raise ValueError(f"{name} is no exception of Python's that takes words")
    return found


def takes_words(error: type[Exception]) -> bool:
    try:
        return error("").args == ("",)
    except TypeError:
        return False


WORDY: frozenset[Any] = frozenset(
    c for c in vars(builtins).values() if isinstance(c, type) and issubclass(c, Exception) and takes_words(c) and not issubclass(c, Warning)
)
"""Python's own exceptions that are made of a text."""


@dataclass(frozen=True, slots=True)
class Check:
    """What the program relied on of an argument beside its sizes: `kind` is a row of `signature.CHECKS`."""

    path: tuple[Any, ...]
    kind: str
    value: Any


@dataclass(frozen=True, slots=True)
class Put:
    """A constant that a call puts into an object among its arguments, behind the output `after` (empty: before any)."""

    path: tuple[Any, ...]
    value: Any
    after: str = ""


@dataclass(slots=True, eq=False)
class Program:
    """A whole program with its signature and weights.

    `inputs`: state first, then the user's, in the order of the parameters. `outputs`: the user's in the order of the result's leaves, then
    mutations, then gradients. `relations` are checked before anything runs, `asserts` while it runs (they may speak of numbers that come
    from data). `checks`: of arguments that are no tensors, and what was asked of tensors. `puts`: constants that
    go into objects among the arguments. `result`: the tree of the result, whose leaves are numbers of outputs or
    constants (`signature.py`). `state`: parameters, buffers and constants by name. `notes`: what the exported function did besides, and
    the program does not.
    """

    name: str
    form: str
    trace: Any
    inputs: list[Input]
    outputs: list[Output]
    ops: list[Op]
    relations: list[Relation]
    asserts: list[Relation]
    checks: list[Check]
    result: Any
    state: dict[str, torch.Tensor]
    parameters: list[str] = field(default_factory=list)  # those that may be given by position
    keywords: list[str] = field(default_factory=list)  # those that may not
    rest: str | None = None  # the parameter `*rest`
    defaults: dict[str, Any] = field(default_factory=dict)  # of parameters, where they are plain constants
    dims: dict[str, str] = field(default_factory=dict)  # symbol -> what people call it
    notes: list[str] = field(default_factory=list)
    puts: list[Put] = field(default_factory=list)
    module: Any = None  # form "torch": the graph module
    variants: list[Program] = field(default_factory=list, repr=False)  # the same function on other sides of its branches
    examples: dict[str, int] = field(default_factory=dict, repr=False)  # ids of the user's tensors of the exported call
    cache: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def scope(self) -> Any:
        return self.trace.scope

    @property
    def user_inputs(self) -> list[Input]:
        return [i for i in self.inputs if i.kind == USER]

    @property
    def user_outputs(self) -> list[Output]:
        return [o for o in self.outputs if o.kind == USER]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the exported function gives. `signature.SignatureError` for arguments that do not fit; nothing has run then."""
        return door("run:call")(self, args, kwargs)

    def run(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Outputs by name for inputs by name: the flat calling convention, that of all other formats."""
        return door("run:run")(self, inputs)

    def graph_module(self) -> Any:
        """Form "torch" only: the program as a `torch.fx.GraphModule` of ATen's composite operators, with the parameters of the exported
        module, for every size. torchao's graph-mode quantization (`prepare_qat_pt2e`, train, `convert_pt2e`) takes it, and what comes of
        that can be exported again. `program.module` is the same with calls of the torch API. PliantError for another form."""
        if self.module is None:
            raise PliantError(f'graph_module() is of programs of form="torch", not "{self.form}": pliant.export(..., form="torch")')
        return door("aten_calls:aten_calls")(self.module)

    def inputs_of(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The inputs of a call by name, as `run` and all other formats take them. `SignatureError` for arguments that do not fit."""
        return door("run:inputs_of")(self, args, kwargs)

    def outputs_of(self, result: Any) -> list[Any]:
        """The user's outputs, in order, of a result that the exported function gave. ValueError for one of another structure."""
        found = trees.outputs(self.result, result)
        return [found[i] for i in sorted(found)]

    def to_torch_export(self) -> Any:
        """The program as a `torch.export.ExportedProgram`, its dims open; see `export/torch_export.py`."""
        return door("torch_export:to_torch_export")(self)

    def to_onnx(self, path: Any, **options: Any) -> Any:
        """Write the program as an ONNX model that answers every size in one session; see `export/onnx`."""
        return door("onnx:to_onnx")(self, path, **options)

    def to_stablehlo(self, *, bounded: bool = False, composites: bool = False) -> Any:
        """The program as StableHLO: `.text()`, `.bytecode()`, `.save(path)`, `.run(inputs)` through XLA; see `export/stablehlo`."""
        return door("stablehlo:to_stablehlo")(self, bounded=bounded, composites=composites)

    def to_jax(self, **options: Any) -> Any:
        """The program as a function of jax arrays, for `jax.jit` and `jax.export`; see `stablehlo.to_jax`."""
        return door("stablehlo:to_jax")(self, **options)

    def save(self, path: Any) -> None:
        """Write the program to a file: text, weights, signature (docs/program-format.md). `pliant.load` reads it."""
        door("file:save")(self, path)

    def __str__(self) -> str:
        return door("text:program_text")(self)

    def compile(self, path: Any, *, levels: tuple[str, ...] | None = None) -> None:
        """Save the program with machine code beside it, which `pliant.load(path, machine_code=True)` and the C interface run at once.

        `levels`: kinds of processors, of "x86-64-v4", "x86-64-v3", "x86-64"; None: this processor's kind and the last, which all run.
        """
        door("aot:compile")(self, path, levels)

    def input(self, name: str) -> Input:
        """The input of this name. KeyError if there is none."""
        for i in self.inputs:
            if i.name == name:
                return i
        raise KeyError(name)
