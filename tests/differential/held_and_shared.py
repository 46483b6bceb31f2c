"""Programs whose parameters lose and get gradients on the way, and programs of inputs that may lie in each other's memory.

`python -m tests.differential.held_and_shared 0 500` runs 500 programs, the three families by turns, each called eight times: flags of
parameters (`requires_grad_`) among forwards, backwards, `autograd.grad` and `detach`; numbers that are read from the memory of inputs
(`n[1].item()`, as sizes, too), between writes to what may be the same memory; and matrices that overlap, are one, or lie apart, which
are read and written, whole, by part, by mask and in loops on data. The comparison is that of `stateful.py`.
"""

from __future__ import annotations

import random

import torch

from tests.differential import numbered
from tests.differential.stateful import CALLS, SIZES, Program, examined

WORLD = """
import torch
WATCH = ("P",)
P = [torch.nn.Parameter(torch.linspace(-1, 1, 4) + i / 3) for i in range(3)]
"""
FLAGS = ("{p}.requires_grad_({flag})", "{p}.requires_grad = {flag}", "for q in P: q.requires_grad_({flag})")
USES = (
    "h = (h * {p}).tanh()", "h = h @ torch.diag({p}) + x", "R.append(h.sum())", "R.append((h.requires_grad, {p}.requires_grad))",
    "h = h.detach()", "with torch.no_grad(): h = h + {p}", "{p}.grad = None",
    "if h.requires_grad: h.pow(2).sum().backward(retain_graph=True)",
    "if h.requires_grad and {p}.requires_grad: R.append(torch.autograd.grad(h.sum(), [{p}], allow_unused=True, retain_graph=True))",
)  # fmt: skip
NUMBERS = (
    "n[0]", "n[1]", "n[i]", "m[0]", "m[1]", "n[-1]", "n.view(-1)[1]", "n[1:][0]", "m.flatten()[0]", "w[0]", "w[1]",
    "n.view(torch.int32)[0]", "n.float()[1]", "n.max()", "(n + 1)[0]",
)  # fmt: skip
OF_NUMBERS = (
    "k = {a}.item(); R.append(k * 2)", "R.append(int({a}) * 2)", "R.append(x[:{a}.item()].sum())",
    "k = int({a}); R.append((x[:k] * x[:k]).sum(0))", "n.add_(1)", "{w}[{j}] = 2", "{w}[{j}] += 1",
    "if {a}.item() > 2: R.append(x.sum() * 2)", "i = {j}",
    "try: R.append(x[:{a}.item()] + x[:{b}.item()])\n    except RuntimeError: R.append('other sizes')",
    "R.append(torch.zeros({a}.item() % 5 + 1) + {b}.item())", "w = n[:2]", "w = n.clone()",
)  # fmt: skip
PLACES = ("p", "q", "s", "p[0]", "q[1:]", "p[1:]", "p.t()", "q.flatten()", "p[:, 0]", "s[:2]")
OF_MATRICES = (
    "R.append(p.sum())", "R.append(q.mean(0))", "R.append(p * 2 + q[:p.shape[0], :p.shape[1]])", "R.append(q.relu().sum() + s.sum(0))",
    "R.append(q[q > 0].sum())", "R.append(p[0, 0].item())", "R.append(torch.cat([p, q]).sum(1))", "{t}.add_(1)", "{t}.mul_(2)",
    "{t}.neg_()", "{t}.copy_(s.sum())", "{t}.clamp_(min=0)", "{w}[{j}] += 1.5", "{w}[{j}] = s[0]", "{w}[{j}] *= q[0]",
    "q[q > 0.5] = 0.25", "p[p > 0.3] = -1.0", "if p.sum() > 0: R.append(q.sum())", "h = p * 2; {w}.add_(1); R.append(h + p)",
    "h = q[1:]; p.mul_(1.5); R.append(h * 1)", "for i in range(2): {w}[i] = s[1 - i] + 1",
    "i = 0\n    while q.sum() < 3 and i < 4:\n        {w} += 1\n        i += 1\n    R.append(i)",
)  # fmt: skip
BACKENDS = ("aten", "native")


def program(parameters: str, lines: list[str], result: str) -> str:
    return "\n".join([f"def program({parameters}):", *[f"    {line}" for line in ["R = []; i = 0", *lines]], f"    return {result}\n"])


def held_parameters(r: random.Random) -> Program:
    lines = ["h = x"]
    for _ in range(r.randrange(4, 12)):
        form = r.choice(FLAGS) if r.random() < 0.3 else r.choice(USES)
        lines.append(form.format(p=f"P[{r.randrange(3)}]", flag=r.random() < 0.5))
    lines += ["l = h.sum()", "if l.requires_grad: l.backward(retain_graph=True)"][: r.choice((1, 2))]
    source = program("x, n", lines, r.choice(("R, l, h", "l.detach(), len(R)", "R, l")))
    changes = [f"P[{r.randrange(3)}].requires_grad_({r.random() < 0.5})" if r.random() < 0.3 else None for _ in range(CALLS)]
    made = torch.arange(20, dtype=torch.float32).reshape(5, 4) / 10
    backward, backend = r.random() < 0.5, r.choice(BACKENDS)
    return Program(" | ".join(lines), WORLD, source, changes, lambda i, _: (made[: SIZES[i]].clone(), SIZES[i]), backward, backend)


def numbers_in_memory(r: random.Random) -> Program:
    lines = ["w = n[:2]"]
    for _ in range(r.randrange(3, 9)):
        a, b = r.choice(NUMBERS), r.choice(NUMBERS)
        lines.append(r.choice(OF_NUMBERS).format(a=a, b=b, w=r.choice("nmw"), j=r.randrange(2)))
    together = [r.random() < 0.4 for _ in range(CALLS)]

    def arguments(i: int, space: dict) -> tuple:
        memory = torch.randint(1, 6, (4,))
        return torch.arange(18.0).reshape(6, 3), memory[:2], memory[1:3] if together[i] else memory[:2].clone()

    source = program("x, n, m", lines, "R, n.clone(), m.clone()")
    return Program(f"{together}: {' | '.join(lines)}", WORLD, source, [None] * CALLS, arguments, False, r.choice(BACKENDS))


def overlapping_matrices(r: random.Random) -> Program:
    lines = [r.choice(OF_MATRICES).format(t=r.choice(PLACES), w=r.choice("pqs"), j=r.randrange(2)) for _ in range(r.randrange(3, 8))]
    forms = [r.randrange(5) for _ in range(CALLS)]

    def arguments(i: int, space: dict) -> tuple:
        a = torch.randn(6 + i % 2, 3)
        b = a.clone()
        apart = (a[:2], a[1:4], b[2:]), (a[:2], b[1:4], a[1:3])
        return (*apart, (a[:2], a[2:5], a[3:]), (a[:3], a[:3], b[:2]), (a[:, :2], a[:, 1:], a))[forms[i]]

    source = program("p, q, s", lines, "R, p.clone(), q.clone(), s.clone()")
    return Program(f"{forms}: {' | '.join(lines)}", WORLD, source, [None] * CALLS, arguments, False, r.choice(BACKENDS))


FAMILIES = (held_parameters, numbers_in_memory, overlapping_matrices)


def examine(number: int) -> str | None:
    """What program `number` does wrong, in words."""
    return examined(FAMILIES[number % len(FAMILIES)](random.Random(number)), number)


if __name__ == "__main__":
    numbered.main(examine, CALLS)
