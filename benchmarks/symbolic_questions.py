"""What a decision on a size costs: one stream of questions, asked of pliant's engine and of torch's ShapeEnv.

    python benchmarks/symbolic_questions.py [--repeat 5] [--json out.json]

A stream is what the shape logic of a model asks, written once: symbols, arithmetic and questions, every repetition included. It is replayed
on both engines at the level of their expressions (no SymInt on either side), and each step is timed on its own. Reported: median and
mean microseconds a question and an operation, the ratio, and how many questions each engine had to guard rather than prove.
"""

from __future__ import annotations

import argparse
import json
import operator
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pliant.symbolic import Scope, ops

#: ("symbol", name, hint) | ("apply", op, a, b) | ("ask", op, a, b, answer); an operand is an int, or a one-tuple with a step's index
Step = tuple


@dataclass
class Stream:
    """Records steps while computing with the hints, so that model code can branch."""

    steps: list[Step] = field(default_factory=list)

    def symbol(self, name: str, hint: int) -> Num:
        self.steps.append(("symbol", name, hint))
        return Num(self, len(self.steps) - 1, hint)


@dataclass(frozen=True)
class Num:
    """A recorded integer."""

    stream: Stream
    index: int
    hint: int

    def _apply(self, op: str, other: Num | int) -> Num:
        self.stream.steps.append(("apply", op, (self.index,), operand(other)))
        return Num(self.stream, len(self.stream.steps) - 1, FUNCTIONS[op](self.hint, value(other)))

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


def operand(x: Num | int) -> Any:
    return (x.index,) if isinstance(x, Num) else x


def value(x: Num | int) -> int:
    return x.hint if isinstance(x, Num) else x


def ask(op: str, a: Num | int, b: Num | int) -> bool:
    answer = FUNCTIONS[op](value(a), value(b))
    stream = a.stream if isinstance(a, Num) else b.stream if isinstance(b, Num) else None
    if stream is not None:
        stream.steps.append(("ask", op, operand(a), operand(b), answer))
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


def bert() -> Stream:
    s = Stream()
    b, n = s.symbol("b", 8), s.symbol("n", 48)
    x = broadcast([b, n, 384], [1, n, 384])
    matmul([encoder(x, 6, 384, 12)[0], 384], [384, 2])
    return s


def llama_decode() -> Stream:
    s = Stream()
    b, past = s.symbol("b", 4), s.symbol("past", 117)
    x: Shape = [b, 1, 512]
    for _ in range(8):
        total = past + 1
        ask("gt", total, past)
        ask("le", total, 4096)
        x = broadcast(x, attention(x, [b, total, 512], 512, 8))
        x = broadcast(x, linear(linear(x, 1376), 512))
    return s


def conv(x: Shape, out: int, kernel: int, stride: int, pad: int) -> Shape:
    spatial = [(d + (2 * pad - kernel)) // stride + 1 for d in x[2:]]
    for d, new in zip(x[2:], spatial, strict=True):
        ask("ge", d + 2 * pad, kernel)
        ask("gt", new, 0)
    return [x[0], out, *spatial]


def resnet() -> Stream:
    s = Stream()
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
    return s


def vit() -> Stream:
    s = Stream()
    b, h, w = s.symbol("b", 2), s.symbol("h", 224), s.symbol("w", 160)
    for d in (h, w):
        ask("eq", d % 16, 0)
    x = conv([b, 3, h, w], 384, 16, 16, 0)
    tokens = x[2] * x[3]
    y = view(x, [b, 384, tokens])
    encoder([y[0], y[2] + 1, 384], 6, 384, 6)
    return s


STREAMS: dict[str, Callable[[], Stream]] = {"bert": bert, "llama decode": llama_decode, "resnet": resnet, "vit": vit}


# the two engines -----------------------------------------------------------------------------------------------------------
@dataclass
class Timing:
    ask_us: list[float] = field(default_factory=list)
    apply_us: list[float] = field(default_factory=list)
    wrong: int = 0
    guards: int = 0


def replay(stream: Stream, symbol: Callable, apply: Callable, decide: Callable) -> Timing:
    """Every step, timed on its own. A question is timed with the building of its comparison."""
    values: list[Any] = []
    timing = Timing()
    clock = time.perf_counter

    def get(x):
        return values[x[0]] if type(x) is tuple else x

    for step in stream.steps:
        if step[0] == "symbol":
            values.append(symbol(step[1], step[2]))
            continue
        a, b = get(step[2]), get(step[3])
        t = clock()
        r = apply(step[1], a, b)
        if step[0] == "ask":
            answer = decide(r)
            timing.ask_us.append((clock() - t) * 1e6)
            timing.wrong += answer != step[4]
            values.append(None)
        else:
            timing.apply_us.append((clock() - t) * 1e6)
            values.append(r)
    return timing


def on_pliant(stream: Stream) -> Timing:
    scope = Scope(record=False)
    doors = ops.DOORS
    timing = replay(
        stream,
        lambda name, hint: scope.backed(name, hint=hint, lo=2, size_like=True),
        lambda op, a, b: doors[op](a, b),
        scope.decide,
    )
    timing.guards = sum(g.why != "declared" for g in scope.all_guards)
    return timing


def on_shape_env(stream: Stream) -> Timing:
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

    env = ShapeEnv()

    def symbol(name: str, hint: int):
        source = ConstantSource(name)
        return env.create_symintnode(env.create_symbol(hint, source, DimDynamic.DYNAMIC, None), hint=hint, source=source).node

    def apply(op: str, a, b):
        if type(a) is int and type(b) is int:
            return FUNCTIONS[op](a, b)
        if type(a) is int:
            a = b.wrap_int(a)
        return getattr(a, op)(b if type(b) is not int else a.wrap_int(b))

    def decide(r) -> bool:
        return r if type(r) is bool else r.guard_bool("", 0)

    timing = replay(stream, symbol, apply, decide)
    timing.guards = len(env.guards)
    return timing


def row(name: str, repeat: int) -> dict:
    stream = STREAMS[name]()
    out: dict[str, Any] = {"stream": name, "questions": sum(s[0] == "ask" for s in stream.steps), "steps": len(stream.steps)}
    for label, engine in (("pliant", on_pliant), ("torch", on_shape_env)):
        runs = [engine(stream) for _ in range(repeat)]
        best = min(runs, key=lambda r: sum(r.ask_us))
        out[label] = {
            "ask_median_us": statistics.median(best.ask_us),
            "ask_mean_us": statistics.fmean(best.ask_us),
            "apply_median_us": statistics.median(best.apply_us),
            "apply_mean_us": statistics.fmean(best.apply_us),
            "guards": best.guards,
            "wrong": best.wrong,
        }
    out["ratio_median"] = out["torch"]["ask_median_us"] / out["pliant"]["ask_median_us"]
    out["ratio_mean"] = out["torch"]["ask_mean_us"] / out["pliant"]["ask_mean_us"]
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json")
    args = parser.parse_args()
    rows = [row(name, args.repeat) for name in STREAMS]
    header = f"{'stream':14} {'questions':>9} | {'pliant median / mean µs':>24} {'guards':>6} |"
    print(f"{header} {'ShapeEnv median / mean µs':>26} {'guards':>6} | ratio median / mean")
    for r in rows:
        p, t = r["pliant"], r["torch"]
        print(
            f"{r['stream']:14} {r['questions']:9} | {p['ask_median_us']:13.2f} / {p['ask_mean_us']:8.2f} {p['guards']:6} |"
            f" {t['ask_median_us']:15.2f} / {t['ask_mean_us']:8.2f} {t['guards']:6} | {r['ratio_median']:7.1f} / {r['ratio_mean']:.1f}"
        )
        if p["wrong"] or t["wrong"]:
            print(f"  wrong answers: pliant {p['wrong']}, ShapeEnv {t['wrong']}")
    if args.json:
        with open(args.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
