"""Streams of questions: those of real captures, and the shape logic of models written out with every repetition.

A capture spares itself many questions (shape rules ask once for a whole operator); the written streams ask what PyTorch's own meta
functions ask, so the two bracket what an engine has to answer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.programs import PROGRAMS
from pliant import compile as pliant_compile
from pliant.symbolic import stream
from pliant.symbolic.stream import Step

#: Programs of `benchmarks.programs` whose captures are recorded.
RECORDED = ("bert", "llama", "resnet", "vit", "t5", "ragged")
CALLS = 3  # of each program: first captures, and what a second shape adds


def record(name: str) -> list[list[Step]]:
    """The streams of every capture that the first calls of a program need."""
    program = PROGRAMS[name]
    compiled = pliant_compile(program.make(), background=False)
    inputs = program.inputs()
    with stream.recording() as streams:
        for args in inputs[:CALLS]:
            program.call(compiled, args)
    return [s for s in streams if any(step[0] == "ask" for step in s)]


@dataclass
class Notes:
    """Records steps while computing with the hints, so that model code can branch."""

    steps: list[Step] = field(default_factory=list)
    made: int = 0

    def note(self, step: Step) -> int:
        self.steps.append(step)
        self.made += 1
        return self.made - 1

    def symbol(self, name: str, hint: int) -> Num:
        return Num(self, self.note(["symbol", name, "int", hint, 2, None, "backed", True]), hint)

    def place(self, x: Num | int) -> int:
        return x.place if isinstance(x, Num) else self.note(["const", x])


@dataclass(frozen=True)
class Num:
    """A recorded integer."""

    notes: Notes
    place: int
    hint: int

    def _apply(self, op: str, other: Num | int) -> Num:
        notes = self.notes
        return Num(notes, notes.note([op, [self.place, notes.place(other)]]), FUNCTIONS[op](self.hint, value(other)))

    def __add__(self, other):
        return self._apply("add", other)

    def __sub__(self, other):
        return self._apply("sub", other)

    def __mul__(self, other):
        return self._apply("mul", other)

    __rmul__ = __mul__
    __radd__ = __add__

    def __floordiv__(self, other):
        return self._apply("floordiv", other)

    def __mod__(self, other):
        return self._apply("mod", other)


NAMES = ("add", "sub", "mul", "floordiv", "mod", "eq", "ne", "lt", "le", "gt", "ge")
FUNCTIONS: dict[str, Callable] = {n: getattr(operator, n) for n in NAMES}


def value(x: Num | int) -> int:
    return x.hint if isinstance(x, Num) else x


def ask(op: str, a: Num | int, b: Num | int) -> bool:
    answer = FUNCTIONS[op](value(a), value(b))
    notes = a.notes if isinstance(a, Num) else b.notes if isinstance(b, Num) else None
    if notes is not None:
        notes.steps.append(["ask", "decide", op, [notes.place(a), notes.place(b)], answer])
    return answer


# the shape logic of tensor programs ------------------------------------------------------------------------------------------
Shape = list


def numel(shape: Shape) -> Num | int:
    n: Num | int = 1
    for s in shape:
        n = s * n
    return n


def strides(shape: Shape) -> Shape:
    out: Shape = []
    n: Num | int = 1
    for s in reversed(shape):
        out.insert(0, n)
        n = s * n
    return out


def contiguous(shape: Shape, stride: Shape) -> bool:
    expected: Num | int = 1
    for s, t in zip(reversed(shape), reversed(stride), strict=True):
        if not ask("eq", s, 1):
            if not ask("eq", t, expected):
                return False
            expected = s * expected
    return True


def view(shape: Shape, new: Shape) -> Shape:
    """Same number of elements; contiguous on both sides."""
    for s in new:
        ask("ge", s, 0)
    ask("eq", numel(shape), numel(new))
    contiguous(shape, strides(shape))
    contiguous(new, strides(new))
    return new


def broadcast(a: Shape, b: Shape) -> Shape:
    n = max(len(a), len(b))
    out: Shape = []
    for x, y in zip([1] * (n - len(a)) + a, [1] * (n - len(b)) + b, strict=True):
        if ask("eq", y, 1):
            out.append(x)
        elif ask("eq", x, 1):
            out.append(y)
        else:
            ask("eq", x, y)
            out.append(x)
    contiguous(out, strides(out))
    return out


def matmul(a: Shape, b: Shape) -> Shape:
    ask("eq", a[-1], b[-2])
    ask("eq", numel(a), 0)
    return [*a[:-1], b[-1]]


def linear(a: Shape, out_features: int) -> Shape:
    flat = view(a, [numel(a[:-1]), a[-1]])
    y = matmul(flat, [flat[-1], out_features])
    return view(y, [*a[:-1], out_features])


def heads(x: Shape, h: int, d: int) -> Shape:
    y = view(x, [x[0], x[1], h, d])
    return [y[0], y[2], y[1], y[3]]


def attention(x: Shape, memory: Shape, width: int, h: int) -> Shape:
    d = width // h
    q, k, v = (heads(linear(t, width), h, d) for t in (x, memory, memory))
    flat = [view(t, [t[0] * t[1], t[2], t[3]]) for t in (q, k, v)]
    scores = matmul(flat[0], [flat[1][0], flat[1][2], flat[1][1]])
    scores = view(scores, [x[0], h, x[1], memory[1]])
    scores = broadcast(scores, [x[0], 1, 1, memory[1]])
    mixed = matmul(view(scores, [x[0] * h, x[1], memory[1]]), flat[2])
    back = view(mixed, [x[0], h, x[1], d])
    return linear(view([back[0], back[2], back[1], back[3]], [x[0], x[1], h * d]), width)


def encoder(x: Shape, layers: int, width: int, h: int) -> Shape:
    for _ in range(layers):
        x = broadcast(x, attention(x, x, width, h))
        x = broadcast(x, linear(linear(x, 4 * width), width))
    return x


def bert() -> list[list[Step]]:
    s = Notes()
    b, n = s.symbol("b", 8), s.symbol("n", 48)
    x = broadcast([b, n, 384], [1, n, 384])
    matmul([encoder(x, 6, 384, 12)[0], 384], [384, 2])
    return [s.steps]


def llama_decode() -> list[list[Step]]:
    s = Notes()
    b, past = s.symbol("b", 4), s.symbol("past", 117)
    x: Shape = [b, 1, 512]
    for _ in range(8):
        total = past + 1
        ask("gt", total, past)
        ask("le", total, 4096)
        x = broadcast(x, attention(x, [b, total, 512], 512, 8))
        x = broadcast(x, linear(linear(x, 1376), 512))
    return [s.steps]


def conv(x: Shape, out: int, kernel: int, stride: int, pad: int) -> Shape:
    spatial = [(d + (2 * pad - kernel)) // stride + 1 for d in x[2:]]
    for d, new in zip(x[2:], spatial, strict=True):
        ask("ge", d + 2 * pad, kernel)
        ask("gt", new, 0)
    return [x[0], out, *spatial]


def resnet() -> list[list[Step]]:
    s = Notes()
    b, h, w = s.symbol("b", 4), s.symbol("h", 224), s.symbol("w", 192)
    x = conv([b, 3, h, w], 64, 7, 2, 3)
    x = conv(x, 64, 3, 2, 1)
    for stage, width in enumerate((64, 128, 256, 512)):
        for block in range(2):
            step = 2 if stage and not block else 1
            y = conv(conv(x, width, 3, step, 1), width, 3, 1, 1)
            short = conv(x, width, 1, step, 0) if step == 2 or stage == 0 else x
            x = broadcast(y, short)
    view(x, [b, 512, x[2] * x[3]])
    return [s.steps]


def vit() -> list[list[Step]]:
    s = Notes()
    b, h, w = s.symbol("b", 2), s.symbol("h", 224), s.symbol("w", 160)
    for d in (h, w):
        ask("eq", d % 16, 0)
    x = conv([b, 3, h, w], 384, 16, 16, 0)
    tokens = x[2] * x[3]
    y = view(x, [b, 384, tokens])
    encoder([y[0], y[2] + 1, 384], 6, 384, 6)
    return [s.steps]


WRITTEN: dict[str, Callable[[], list[list[Step]]]] = {"bert": bert, "llama decode": llama_decode, "resnet": resnet, "vit": vit}
