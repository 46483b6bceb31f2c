"""Random programs with loops whose number of rounds depends on data, as source text."""

from __future__ import annotations

import linecache
import random
from typing import Any

import torch

HEADER = """
import torch

class Box:
    def __init__(self):
        self.hits, self.last, self.items = 0, None, []

box = Box()

def step(t, k):
    if t.mean() > 0.7:
        return t * 0.5
    return t + k * 0.1

def settle(t):
    while t.abs().max() > 1.5:
        t = t * 0.6
    return t
"""

TENSORS = ("x", "y", "z")
EXPRESSIONS = (
    "{a} * 0.7 + {b}.mean()", "torch.sin({a}) + 0.3", "{a} - {b}.sum() * 0.1", "torch.where({a} > 0.2, {a} * 0.5, {a} + 0.4)",
    "{a}.clone()",
    "{a} + {i}", "{a} * {f}", "torch.relu({a}) - 0.1", "{a}.flip(0)", "step({a}, {i})", "{a} + torch.ones_like({a})", "{a}",
    "settle({a} * 3)", "({a} + {b}[0]) / 2", "{a}[{a}.shape[0] // 2 :]", "torch.cat([{a}, {b}[:1]])", "{a}[: max({a}.shape[0] - 1, 1)]",
    "{a}.cumsum(0) * 0.3", "{a} + torch.rand({a}.shape[0])", "{a}.detach()", "{a}.double().float()",
    "sum([{a} * 0.4 for _ in range(2)])", "(lambda t: t * 0.5 + {b}.mean())({a})",
)  # fmt: skip
TESTS = (
    "{a}.sum() < {c}", "{a}.abs().max() > {c}", "{a}.mean().item() < {c}", "not ({a} > {c}).all()", "{a}.sum() < {c} and {i} < 4",
    "{a}.max() < {c} or {b}.min() > {c}", "{i} < 3", "{a}.sum() * {f} < {c}", "({a} > {c}).sum().item() < 2", "{a}[0] < {c}",
    "torch.equal({a}, {b})", "not torch.allclose({a}, {a} * 1.001)",
)  # fmt: skip


RANGES = (
    "5", "3, 9, 2", "4, -3, -2", "x.shape[0]", "int(x.sum().abs()) % 5", "n, (y > 0.3).sum().item()", "(x > 0.5).sum().item(), -1, -2",
)  # fmt: skip
WRITES = (
    "n += {a} is {b}", "f = lambda: n", "n = [n + 1 for _ in range(1) if {a} is not None][0]",
    "{a} *= 0.7", "{a} += {b}.mean()", "{a}[0] = 0.1", "{a}.mul_(0.6)", "{a} = {a}.clone()", "{a} = {a}.clone()", "z = {a}", "u = {a}[1:]",
    "{a}[1:] = 0.2", "{a}.copy_({a}.flip(0))", "{a} = {b}.clone()", "{a}, {b} = {b}, {a}", "{a}.clamp_(max=1.2)", "{a}.sub_({b}.mean())",
    "box.last = {a}", "out.append({a})", "{a} = {a} * 1", "u = {a}", "n += {a} is {b}", "{a}[{a} > 0.9] = 0.3", "n += {a}._version > 2",
)  # fmt: skip
MASKS = ("x > 0.5", "y[: x.shape[0]] > 0.4", "x.abs() > s", ":3")
LISTS = (
    "out.append({a})", "out.append({a})", "out.append({a}.sum().item())", "out.append(n)", "out.append({a}[0])", "out += [{a}, {b}]",
    "out = out + [{a}]", "items.append(n)", "items.append((n, {a}))", "items.append(s)", "items = [*items, n]", "n = len(out)",
    "{a} = out[-1] * 1", "n = items[-1]", "{a} = torch.stack(out).sum(0)", "{a} = torch.cat(out)", "{a} = torch.tensor(items) + {b}[0]",
    "m = len(items) + 1", "out.pop()", "for t in out: {a} = {a} + t", "del out[0]", "{a} = out[0]", "{a} += out[-1]", "n += out[-1] is {a}",
    "print(len(out))", "out.reverse()", "out = []", "other = out", "other.append({b})", "{a} = out[n % 3]", "box.items.append({a})",
    "n += bool(out)", "n += sum(items)", "add = out.append", "add({a})", "s = max(items)", "out[-1] = {a}", "{a}, {b} = {b}, out[-1]",
    "items.append(out)", "items.extend([n, m])", "assert len(out) < 9", "n = {a} in out", "u = [out, out]", "out.append(None)",
)  # fmt: skip
"""What programs with lists do besides."""
LIST_TESTS = ("len(out) < 4", "out", "len(items) > 2", "len(items) and items[-1] > 3", "not items", "len(out) == len(items)")


class Maker:
    """One program from one seed. `lists`, `writes`: how often a statement is about a list, or writes to a tensor."""

    def __init__(self, seed: int, lists: float = 0.0, writes: float = 0.0) -> None:
        self.r = random.Random(seed)
        self.lists = lists
        self.writes = writes
        self.lines: list[str] = []
        self.loops = 0

    def text(self, template: str) -> str:
        r = self.r
        a, b, i, f = r.choice(TENSORS), r.choice(TENSORS), r.choice(("n", "m", "2")), r.choice(("s", "0.5"))
        return template.format(a=a, b=b, i=i, f=f, c=r.choice(("0.1", "0.8", "1.7")))

    def test(self) -> str:
        return self.r.choice(LIST_TESTS if self.lists and self.r.random() < self.lists else TESTS)

    def add(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def statement(self, depth: int, loop: str) -> None:
        r = self.r
        if self.lists and r.random() < self.lists:
            self.add(depth, self.text(r.choice(LISTS[:15] if r.random() < 0.6 else LISTS)))
            return
        if r.random() < self.writes:
            self.add(depth, self.text(r.choice(WRITES)))
            return
        p = r.random()
        if p < 0.5:
            self.add(depth, f"{r.choice(TENSORS)} = {self.text(r.choice(EXPRESSIONS))}")
        elif p < 0.62:
            self.add(depth, r.choice(("n += 1", "m = n * 2 + 1", "n, m = m, n + 1", "m = m * 3 + 1", "n = n - m")))
        elif p < 0.70:
            self.add(depth, r.choice(("s = s * 0.5 + 0.25", "s = x.sum().item()", "s = s - n * 0.1", "s = float(n)")))
        elif p < 0.82 and depth < 5:
            self.add(depth, f"if {self.text(self.test())}:")
            self.block(depth + 1, loop, 2)
            if r.random() < 0.5:
                self.add(depth, "else:")
                self.block(depth + 1, loop, 2)
        elif p < 0.88 and depth < 4 and self.loops < 3:
            self.loop(depth)
        elif p < 0.94:
            choices = ["late = x + n", "out = x + n", "x, y = y, x", "u = x * 2", "z = y"]
            if r.random() < 0.4:
                choices = [
                    "box.hits += 1", "out.append(x)", "print('round', n)", "box.last = n", "y += 1", "torch.manual_seed(3)", "y[0] = 3.0",
                    "z = x[5]", "items = [*items, n]", "assert n < 9", "n = bool(x.sum() > 0)", "x = x.view(-1, 1)", "del u",
                ]  # fmt: skip
            self.add(depth, r.choice(choices))
        elif loop:
            self.add(depth, f"if {self.text(r.choice(TESTS))}:")
            self.add(depth + 1, r.choice(("break", "continue", "break", "return x, n, s")))

    def block(self, depth: int, loop: str, most: int) -> None:
        for _ in range(self.r.randint(1, most)):
            before = len(self.lines)
            self.statement(depth, loop)
            if len(self.lines) == before:
                self.add(depth, "n += 1")

    def loop(self, depth: int) -> None:
        r = self.r
        self.loops += 1
        k = f"k{self.loops}"
        self.add(depth, f"{k} = 0")
        kind = r.random()
        test = self.text(r.choice(TESTS))
        if kind < 0.5:
            self.add(depth, f"while {k} < 7 and ({test}):" if r.random() < 0.5 else f"while ({test}) and {k} < 7:")
        elif kind < 0.8:
            self.add(depth, f"while {test}:")
        elif kind < 0.9:
            self.add(depth, "while True:")
        else:
            self.add(depth, f"for {k} in range({r.choice(RANGES)}):" if r.random() < 0.8 else f"for late in x[{r.choice(MASKS)}]:")
            self.add(depth + 1, f"if {self.text(r.choice(TESTS))}:")
            self.add(depth + 2, r.choice(("break", "continue")))
        self.add(depth + 1, f"{k} += 1")
        if kind >= 0.5:
            self.add(depth + 1, f"if {k} > {r.choice((2, 5))}:")
            self.add(depth + 2, "break")
        inner, wrapped = depth + 1, r.random()
        if wrapped < 0.08:
            self.add(inner, "with torch.no_grad():")
            inner += 1
        elif wrapped < 0.16:
            self.add(inner, "try:")
            inner += 1
        self.block(inner, k, 5)
        if 0.08 <= wrapped < 0.16:
            self.add(inner - 1, "except (IndexError, RuntimeError):")
            self.add(inner, r.choice(("n += 10", "break", "x = y * 1")))
        if r.random() < 0.2 and kind < 0.8:
            self.add(depth, "else:")
            self.block(depth + 1, "", 2)

    def program(self) -> str:
        self.add(0, "def program(x, y, n, s):")
        for line in ("z, m, u = x * 0.5, 1, None", "out, items = [], []"):
            self.add(1, line)
        if self.lists:
            self.add(1, self.r.choice(LIST_STARTS))
        for _ in range(self.r.randint(0, 2)):
            self.statement(1, "")
        self.loop(1)
        for _ in range(self.r.randint(0, 3)):
            self.statement(1, "")
        if self.lists and self.r.random() < 0.5:
            self.add(1, f"return {self.text(self.r.choice(LIST_ENDS))}")
            return HEADER + "\n".join(self.lines) + "\n"
        ends = ("x, y, z, n, m, s, out, items", "x + 1, n, s", "x, y, x is y, z is y, n", "z, u, m", "x, late")
        self.add(1, f"return {self.r.choice(ends)}")
        return HEADER + "\n".join(self.lines) + "\n"


LIST_STARTS = ("other = []", "other = []", "out = [x]", "items = [n]", "other = out", "out = [x, y]", "items = [n, s]")
LIST_ENDS = (
    "out", "out, items, n", "torch.stack(out), len(out)", "torch.cat(out), items", "torch.tensor(items), x", "x, out[-1]",
    "(out, out), len(items)", "{{'out': out, 'n': len(out)}}", "[*out, x], [*items]", "out + [x], n", "sum(items), x",
    "x, [t * 2 for t in out]", "out and out[0] is x, y",
)  # fmt: skip


def program(seed: int, lists: float = 0.0, writes: float = 0.0) -> tuple[Any, Any, str]:
    """(the function, the state that it changes, its source) of a seed."""
    source = Maker(seed, lists, writes).program()
    name = f"<loop program {seed} {lists} {writes}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace: dict[str, Any] = {"__name__": "loop_program"}
    exec(compile(source, name, "exec"), namespace)
    return namespace["program"], namespace["box"], source


def arguments(seed: int) -> list[tuple]:
    """Arguments of three calls."""
    g = torch.Generator().manual_seed(seed)
    r = random.Random(seed)
    calls = []
    for n in (r.randint(2, 6), r.randint(1, 8), r.randint(2, 9)):
        x = torch.rand(n, generator=g) * r.choice((0.2, 1.0, 3.0))
        y = x if r.random() < 0.08 else torch.rand(n, generator=g)
        calls.append((x, y, r.randint(0, 5), r.choice((0.5, 0.25))))
    return calls
