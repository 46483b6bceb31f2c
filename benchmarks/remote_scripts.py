"""Random programs of the controller: many statements, each of which may raise, over tensors that move from worker to worker.

Beside `remote_fuzz.one`, which is one function: here tensors live through a program of some ten statements, compiled functions are called
several times at ragged sizes, break on Python in the middle and go on, write to what others hold, are moved, put elsewhere, fetched and
sent again; gradients are taken across all that; and some statements raise, on the controller or on a worker, after which the rest goes on.
The same text runs in one process, on `Here`. Everything that is logged must agree, exceptions included.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any

import torch

import pliant
from benchmarks import remote_fuzz as fuzz
from pliant import remote

RAISED = "raised"


class Here:
    """One process."""

    def __init__(self, places: list[Any]) -> None:
        self.log: list[Any] = []

    def put(self, t: torch.Tensor, place: int) -> Any:
        return t.clone()

    def move(self, t: Any, rank: int) -> Any:
        return t.clone()

    place = put

    def compile(self, f: Any) -> Any:
        return f

    def fetch(self, t: Any) -> Any:
        return t.detach().clone()

    def sync(self) -> None:
        pass

    def note(self, *values: Any) -> None:
        for v in values:
            self.log.append(v.detach().clone() if isinstance(v, torch.Tensor) else v)

    def raised(self, e: Exception) -> None:
        if isinstance(e, remote.Refused) or "one generator, use Ray" in str(e):
            raise e
        self.log.append(RAISED)


class There(Here):
    """A mesh."""

    def __init__(self, mesh: Any, places: list[Any]) -> None:
        super().__init__(places)
        self.mesh, self.places = mesh, places

    def put(self, t: torch.Tensor, place: int) -> Any:
        return self.mesh.distribute(t.detach().clone(), self.fitting(t, place))

    def fitting(self, t: Any, place: int) -> Any:
        """The placement of this number, if the tensor has the dims that it cuts."""
        return [p if not isinstance(p, remote.Shard) or p.dim < t.dim() else remote.Replicate() for p in self.places[place]]

    def place(self, t: Any, place: int) -> Any:
        return self.mesh.distribute(t, self.fitting(t, place)).clone()

    def move(self, t: Any, rank: int) -> Any:
        if not isinstance(t, remote.RemoteTensor):  # of this process, as what `pad_sequence` fills
            t = self.mesh.distribute(t, remote.Replicate() if self.mesh.ndim == 1 else [remote.Replicate()] * self.mesh.ndim)
        return t.to_worker(rank % len(self.mesh)).clone()

    def compile(self, f: Any) -> Any:
        return pliant.compile(f, on=self.mesh)

    def fetch(self, t: Any) -> Any:
        return t.cpu().detach().clone()

    def raised(self, e: Exception) -> None:
        super().raised(e)
        if not isinstance(e, remote.Failed):
            with contextlib.suppress(remote.Failed):
                self.sync()

    def told(self) -> list[Any]:
        return [v.cpu() if isinstance(v, torch.Tensor) else v for v in self.log]

    def sync(self) -> None:
        self.mesh.synchronize()


BREAKS = ["    if {x}.double().sum() > 0.123:\n        {x} = {x} * 2 + 0.1", "    k = float({x}.double().mean())\n    {x} = {x} + k",
          "    api.note({x})", "    n = int(({x} > 0.2).sum())\n    {x} = {x} * n",
          "    for row in {x}.tolist()[:2]:\n        {x} = {x} + torch.tensor(row, dtype={x}.dtype)",
          "    if torch.isnan({x}).any():\n        return {x}.sum(), {x}", "    api.log.append(tuple({x}.shape))",
          "    while {x}.abs().max() > 1:\n        {x} = {x} / 2",
          "    try:\n        {x} = {x} @ {x}\n    except RuntimeError:\n        {x} = {x}.mT @ {x}"]  # fmt: skip
RAGGED = ["torch.nn.utils.rnn.pad_sequence([{x}[:1], {x}, {x}[1:]], True)", "torch.cat([{x}[i:] for i in range(min(3, len({x})))])",
          "torch.stack([row.sum() for row in {x}])", "torch.cat([{x}, {y}])", "sum(p.double().sum() for p in {x}.split(2))",
          "torch.cat(list({x}.split(3))[::-1])", "torch.cat([p * i for i, p in enumerate({x}.chunk(3))])",
          "{x}[: {x}.shape[0] // 2]", "{x}[{x}.shape[0] // 2 :]", "{x}.repeat(2, *[1] * ({x}.dim() - 1))"]  # fmt: skip
BAD = ["{x}[torch.tensor([0, 10_000])]", "{x} @ {x}[:, :-1]", "{x}.view(-1, 7919)", "{x} + torch.ones(7919)",
       "torch.nn.functional.embedding(({x} * 0 + 77).long(), {x})", "{x}.gather(0, ({x} * 0 - 9).long())",
       "torch.cat([{x}, {x}[..., :-1, None]])",
       "{x}.index_add(0, torch.tensor([4000]), {x}[:1])",
       "torch.nn.functional.cross_entropy({x}, ({x}[:, 0] * 0 + 500).long())"]  # fmt: skip


class Writer:
    """A program as text."""

    def __init__(self, rng: random.Random, places: int, workers: int) -> None:
        self.rng, self.places, self.workers = rng, places, workers
        self.errors = rng.random() < 0.6
        self.lines: list[tuple[str, list[str]]] = []  # text, names that are given a value
        self.names: list[str] = []
        self.serial = 0

    def text(self) -> str:
        rng = self.rng
        self.functions = [self.function(i) for i in range(rng.randint(1, 3))]
        for i in range(rng.randint(2, 3)):
            self.lines.append((f"a{i} = api.put(given[{i}], {rng.randrange(self.places)})", []))
            self.names.append(f"a{i}")
        for _ in range(rng.randint(5, 12)):
            self.statement()
        body = []
        for i, (line, new) in enumerate(self.lines):
            lines = [f"        {part}" for part in line.split("\n")]
            if self.errors:  # what fails has no name
                lines += ["        api.sync()", *[f"        {n} = {n}_" for n in new]]
            body += [f"    # {i}", "    try:", *lines, "    except Exception as e:", "        api.raised(e)"]
        for name in self.names:
            body += ["    try:", f"        api.note({name})", "    except NameError:", "        pass"]
        compiled = [f"    g{i} = api.compile(f{i})" for i in range(len(self.functions))]
        return "\n".join([*[f for f, _ in self.functions], "def script(api, given):", *compiled, *body])

    def function(self, i: int) -> tuple[str, int]:
        """A function that is compiled."""
        rng = self.rng
        n = rng.randint(1, 2)
        names = [f"x{k}" for k in range(n)]
        lines, made = [], list(names)
        for k in range(rng.randint(1, 5)):
            x = rng.choice(made[-3:])
            if rng.random() < 0.3:
                new = f"b{k}"
                lines += [f"    {new} = {x} * 1", rng.choice(BREAKS).format(x=new)]
            else:
                new = f"v{k}"
                lines.append(f"    {new} = {self.expression(x, rng.choice(made))}")
            made.append(new)
        if rng.random() < 0.3:
            lines.append(f"    {rng.choice(fuzz.WRITES).format(x='x0', y='x0', d=0)}")
        lines.append(f"    return {made[-1]}, {rng.choice(made)} * 1")
        return f"def f{i}(api, {', '.join(names)}):\n" + "\n".join(lines), n

    def expression(self, x: str, y: str) -> str:
        rng = self.rng
        form = rng.choice(
            rng.choice((fuzz.UNARY, fuzz.BINARY, fuzz.REDUCE, fuzz.VIEWS, fuzz.PRODUCTS, fuzz.INDEXED, fuzz.OTHERS, fuzz.LATER))
        )
        if "{}" in form or "{0}" in form:
            return form.format(x, y)
        return form.format(x=x, y=y, d=rng.choice((0, -1)), n=f"{x}.dim()")

    def statement(self) -> None:
        rng = self.rng
        new = f"t{self.serial}"
        self.serial += 1
        x, y = rng.choice(self.names[-4:]), rng.choice(self.names)
        kinds = ("expression", "call", "move", "place", "ragged", "write", "branch", "resend", "bad", "gradient", "replace", "loop")
        kind = rng.choices(kinds, (3, 5, 3, 2, 2, 2, 1, 1, 1 if self.errors else 0, 2, 1, 1))[0]
        at, rank = rng.randrange(self.places), rng.randrange(self.workers)
        if kind == "expression":
            line = f"{new} = {self.expression(x, x if rng.random() < 0.5 else y)}"
        elif kind == "call":
            f = rng.randrange(len(self.functions))
            line = f"{new}, _ = g{f}(api, {', '.join((x, y)[: self.functions[f][1]])})"
        elif kind == "move":
            to = f"api.move({x}, {rank})"
            line = f"{new} = {to}" if rng.random() < 0.4 else f"{new} = api.place(api.move({to} * 2, {rank + 1}) + 1, {at})"
        elif kind == "place":
            line = f"{new} = api.place({x}, {at})"
        elif kind == "ragged":
            line = f"{new} = {rng.choice(RAGGED).format(x=x, y=y)}"
        elif kind == "write":
            line = rng.choice(fuzz.WRITES).format(x=x, y=x if rng.random() < 0.6 else y, d=0)
            new = ""
        elif kind == "branch":
            line = f"{new} = {x} * 2 if {x}.double().sum() > 0.321 else {x} - 1\napi.log.append(bool(({x} > 0).all()))"
        elif kind == "resend":
            line = f"{new} = api.put(api.fetch({x}) * 2, {at})"
        elif kind == "bad":
            line = f"{new} = {rng.choice(BAD).format(x=x)}"
        elif kind == "gradient":
            f = rng.randrange(len(self.functions))
            args = ", ".join(("p", "p.detach()")[: self.functions[f][1]])
            line = (f"p = {x}.detach().double().clone().requires_grad_()\n"
                    f"loss = sum(r.double().square().mean() for r in g{f}(api, {args}))\n"
                    f"loss.backward()\n{new} = p.grad * 1\napi.note(loss)")  # fmt: skip
        elif kind == "replace":
            new = x
            line = f"{new} = {x}[1:] * 1" if rng.random() < 0.5 else f"{new} = torch.cat([{x}, {x} * 2])"
        else:
            f = rng.randrange(len(self.functions))
            args = ", ".join(("r", "r")[: self.functions[f][1]])
            line = f"for k in (1, 3, 2):\n    r = {x}[:k] * 1\n    api.note(g{f}(api, {args})[0])\n{new} = r"
        self.lines.append(
            (
                line.replace(f"{new} = ", f"{new}_ = ").replace(f"{new}, ", f"{new}_, ") if new and self.errors else line,
                [new] if new else [],
            )
        )
        if new and new not in self.names:
            self.names.append(new)


def script(mesh: Any, seed: int) -> tuple[str, str]:
    """As `remote_fuzz.one`, of a program of the controller."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    places = [fuzz.placement_of(rng, 2, mesh.ndim) for _ in range(3)]
    writer = Writer(rng, len(places), mesh.workers)
    text = writer.text()
    sizes = [(rng.choice((1, 2, 3, 4, 5, 7)), rng.choice((2, 3, 4))) for _ in range(2)]
    given = [torch.randn(sizes[0] if rng.random() < 0.75 else sizes[1], dtype=torch.float64) for _ in range(3)]
    told = f"# seed {seed}, {places}, {[tuple(t.shape) for t in given]}\n{text}\n"
    space: dict[str, Any] = {"torch": torch}
    exec(compile(text, f"<program {seed}>", "exec"), space)
    here, there = Here(places), There(mesh, places)
    kept = "right"
    torch.manual_seed(seed)
    try:
        space["script"](there, given)
    except remote.Refused:
        kept = "refused"
    except Exception as e:
        if "one generator, use Ray" not in str(e):
            if not writer.errors:
                kept = "raises"
            else:
                return "wrong", f"{told}{type(e).__name__}: {e}"
        else:
            kept = "refused"
    try:
        found = there.told()
    except remote.Failed as e:
        found = []
        if "one generator, use Ray" in str(e):
            kept = "refused"
        elif writer.errors:
            return "wrong", f"{told}what was logged: {e}"
    torch.manual_seed(seed)
    space["script"](here, given)
    if not writer.errors and any(v is RAISED for v in here.log):
        return "raises", told  # elsewhere, later
    if kept == "raises" or (kept == "right" and len(here.log) != len(found)):
        return "wrong", f"{told}{len(here.log)} results here, {len(found)} there"
    for i, (a, b) in enumerate(zip(here.log, found, strict=False)):
        if why := fuzz.agree(a, b, 1e-9 if "float" not in text else 1e-3):
            return "wrong", f"{told}result {i}: {why}\n{here.log[max(0, i - 2) : i + 1]}\n{found[max(0, i - 2) : i + 1]}"
    return kept, told
