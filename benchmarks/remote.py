"""Measurements of `pliant.remote`: `python -m benchmarks.remote --fuzz 1000 | --control | --scale | --train data | --kill 50 | --ddp`.

    --fuzz N       random programs over random placements against one process, on workers in threads
    --programs     programs as users write them, beside one process
    --control      what the controller's part of a step costs, on workers that do nothing, beside Ray's own call
    --operators    a training step as one message, beside the same step operator by operator
    --scale        the same for 256 to 10,000 workers that are not there (docs/scaling.md)
    --tree FANOUT  what a message costs controller and relays on Ray, to --workers proxies
    --train KIND   a small GPT: data, tensor or pipeline, beside one process: losses, messages, bytes, captures
    --kill N       workers killed at random while it trains
    --hang N, --partition   other faults (remote_faults.py)
    --ddp          the data-parallel step beside DistributedDataParallel with gloo
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from typing import Any

import torch

import pliant
from benchmarks import remote_faults, remote_fuzz, remote_programs
from pliant import remote
from pliant.export import run
from pliant.lower import pipeline
from pliant.remote import relay, transport

LOCAL = {"object_store_memory": 200_000_000, "_temp_dir": "/tmp/r"}
LARGE = {"object_store_memory": 2_000_000_000, "_temp_dir": "/tmp/r"}
EXAMPLE = pathlib.Path(__file__).parent.parent / "examples" / "remote" / "gpt.py"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("gpt", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpt"] = module
    spec.loader.exec_module(module)
    return module


GPT2 = {"vocabulary": 50257, "width": 768, "heads": 12, "layers": 12, "most": 1024}
"""The sizes of GPT-2 small: 163 million parameters, its output not tied to its embedding (which would be on two stages)."""


def optimizer_of(large: bool) -> Any:
    """For GPT-2: what four workers have room for."""
    if large:
        return lambda params: torch.optim.SGD(params, lr=0.01, momentum=0.9)
    return lambda params: torch.optim.AdamW(params, lr=1e-3)


def losses_of(g: Any, model: Any, make: Any, batches: Any) -> list[tuple[float, int]]:
    """The loss of each step, and the captures it made, in this process."""
    step = pliant.compile(g.trainer(model, make(model.parameters())), backend="aten")
    out = []
    for ids in batches:
        before = pliant.stats()["captures"]
        out.append((step(ids).item(), pliant.stats()["captures"] - before))
    return out


def to_be_killed(mesh: remote.Mesh, rank: int, after: float) -> threading.Thread:
    """A worker is killed while a step is on its way, or done."""
    kill = threading.Timer(after, lambda: os.kill(mesh.pids[rank], signal.SIGKILL))
    kill.start()
    return kill


def train(kind: str, workers: int, steps: int, transport: str, kills: int = 0, large: bool = False) -> None:
    """Losses beside those of one process, which runs the same batches before."""
    g = example()
    torch.manual_seed(0)
    b = g.gpt(**GPT2) if large else g.gpt()
    make = optimizer_of(large)
    rows, most, vocabulary = (4, 16, GPT2["vocabulary"]) if large else (8, 64, 256)
    began = time.perf_counter()
    one_process = losses_of(g, copy.deepcopy(b), make, g.batches(steps, rows, most, vocabulary))
    print(f"one process: {(time.perf_counter() - began) / steps * 1e3:.1f} ms a step", flush=True)
    mesh = remote.mesh(workers, transport=transport, timeout=600 if large else 60, lineage=32, init=LARGE if large else LOCAL)
    if kind == "pipeline":
        pipe = remote.Pipeline(mesh, b, g.loss_of, make)
        step = lambda ids: pipe.step(ids, ids, 4)
    else:
        (mesh.replicate if kind == "data" else lambda m: g.tensor_parallel(mesh, m))(b)
        compiled = pliant.compile(g.trainer(b, make(b.parameters())), on=mesh)
        step = lambda ids: compiled(mesh.shard(ids) if kind == "data" else mesh.replicate(ids))
    random.seed(0)
    worst, killed, times = 0.0, 0, []
    for i, ids in enumerate(g.batches(steps, rows, most, vocabulary)):
        want, here = one_process[i]
        mine = pliant.stats()["captures"]
        kill = None
        if i > 2 and random.random() < (kills - killed) / (steps - i):  # just as many as were asked for, wherever they come
            kill = to_be_killed(mesh, random.randrange(workers), random.choice((0.0, random.random() * 0.1)))
            killed += 1
        sent = mesh.counts["messages"], mesh.counts["bytes"]
        began = time.perf_counter()
        loss = step(ids)
        issued = time.perf_counter() - began
        got = loss.item()
        times.append(time.perf_counter() - began)
        if kill is not None:
            kill.join()
        worst = max(worst, abs(want - got) / abs(want))
        if i < 3 or i == steps - 1 or (large and i % 5 == 0) or (kills and killed and i % 10 == 0):
            messages, data = (now - then for now, then in zip((mesh.counts["messages"], mesh.counts["bytes"]), sent, strict=True))
            print(f"step {i}: {want:.6f} {got:.6f}, {messages / workers:g} messages and {data / workers:.0f} bytes a worker,"
                  f" captures {here} here, {pliant.stats()['captures'] - mine} there,"
                  f" {issued * 1e3:.2f} ms to issue, {times[-1] * 1e3:.1f} ms in all", flush=True)  # fmt: skip
    stats = mesh.stats()
    told = {k: v for k, v in stats.items() if k != "workers"}
    print(f"{kind}, {workers} workers, {steps} steps, {killed} killed: largest relative difference {worst:.2e},"
          f" median {statistics.median(times) * 1e3:.1f} ms a step")  # fmt: skip
    print(told)
    print("programs of each worker:", [w["programs"] for w in stats["workers"]])
    mesh.close()


def empty_step(mesh: remote.Mesh) -> Any:
    x = mesh.replicate(torch.zeros(4))
    return pliant.compile(lambda t: t + 1, on=mesh), x


def control(workers: int, steps: int) -> None:
    """A step of nothing, pipelined and alone, beside an empty actor call of Ray's."""
    mesh = remote.mesh(workers, init=LOCAL)
    step, x = empty_step(mesh)
    step(x).cpu()
    for name, n in (("warm", steps), ("measured", steps)):
        began, user = time.perf_counter(), time.process_time()
        for _ in range(n):
            y = step(x)
            mesh.flush()
        mesh.synchronize()
        piped = (time.perf_counter() - began) / n
        user = (time.process_time() - user) / n
        if name == "measured":
            each = piped * 1e3 / workers
            print(f"a step of nothing, pipelined: {piped * 1e3:.3f} ms, {each:.3f} ms a worker (controller's CPU {user * 1e3:.3f} ms)")
    began = time.perf_counter()
    for _ in range(steps // 10):
        y = step(x)
        y.cpu()
    print(f"a step of nothing, fetched each time: {(time.perf_counter() - began) / (steps // 10) * 1e3:.3f} ms")
    began = time.perf_counter()
    for _ in range(steps):
        y = x + 1
        mesh.flush()
    mesh.synchronize()
    print(f"one operator at a time, a message each: {(time.perf_counter() - began) / steps * 1e3:.3f} ms an operator")
    actors = mesh.transport.actors
    ray = mesh.transport.ray
    ray.get([a.ready.remote() for a in actors])
    began = time.perf_counter()
    refs = [a.ready.remote() for _ in range(steps) for a in actors]
    ray.get(refs)
    took = (time.perf_counter() - began) / steps
    print(f"Ray's own call, pipelined: {took * 1e3:.3f} ms for all, {took * 1e3 / workers:.3f} ms a worker")
    del y
    mesh.close()


def operators(workers: int, steps: int, transport: str) -> None:
    """A training step as one message, and the same step driven operator by operator."""
    g = example()
    mesh = remote.mesh(workers, transport=transport, init=LOCAL)
    for name in ("one message", "operator by operator"):
        torch.manual_seed(0)
        model = g.gpt()
        mesh.replicate(model)
        step = g.trainer(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
        if name == "one message":
            step = pliant.compile(step, on=mesh)
        ids = mesh.shard(next(g.batches(1, 8, 64, 256)))
        for _ in range(3):
            loss = step(ids).item()
        calls, sent, data = mesh.counts["calls"], mesh.counts["messages"], mesh.counts["bytes"]
        began, user = time.perf_counter(), time.process_time()
        for _ in range(steps):
            loss = step(ids).item()
        took, user = (time.perf_counter() - began) / steps, (time.process_time() - user) / steps
        n, messages, size = ((mesh.counts[k] - v) / steps for k, v in (("calls", calls), ("messages", sent), ("bytes", data)))
        print(f"{name}: {took * 1e3:.1f} ms a step, controller's CPU {user * 1e3:.1f} ms, {n:g} programs,"
              f" {messages / workers:g} messages and {size / workers:.0f} bytes a worker; loss {loss:.6f}", flush=True)  # fmt: skip
    mesh.close()


def scale(counts: list[int], steps: int) -> None:
    """The controller's own cost where nobody answers: encoding once, handing the message to each worker's queue."""
    g = example()
    for workers, fanout in [(n, f) for n in counts for f in (n + 2, 256)[: 1 + (n > 256)]]:
        mesh = remote.mesh(workers, transport="model", recover=False, fanout=fanout)
        model = g.gpt(layers=2)
        mesh.replicate(model)
        step = pliant.compile(g.trainer(model, torch.optim.SGD(model.parameters(), lr=1e-3)), on=mesh)
        ids = mesh.shard(torch.zeros(max(2 * workers, 8), 16, dtype=torch.int64))
        step(ids)
        step(ids)
        mesh.flush()
        sent, began, user = mesh.counts["bytes"], time.perf_counter(), time.process_time()
        for _ in range(steps):
            step(ids)
            mesh.flush()
        took, user = (time.perf_counter() - began) / steps, (time.process_time() - user) / steps
        data = (mesh.counts["bytes"] - sent) / steps / workers
        cost = f"{user * 1e3:8.2f} ms of CPU ({took * 1e3:.2f} ms in all) a step, {user * 1e6 / workers:6.2f} us a worker"
        print(f"{workers:6d} workers, {len(mesh.transport.first):6d} calls: {cost}, {data:.0f} bytes a worker", flush=True)
        mesh.close()


class Proxy:
    """A worker that does nothing."""

    def step(self, message: Any, *parts: Any) -> bytes:
        return b"done"


def used(pids: list[int]) -> float:
    """Seconds of CPU that these processes have used."""
    ticks = 0
    for pid in pids:
        words = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(words[11]) + int(words[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def tree(workers: int, fanout: int, steps: int) -> None:
    """What a message costs the controller, and each actor of the tree, on Ray: to proxies (few processes, called as many)."""
    ray = transport.ray()
    ray.init(include_dashboard=False, logging_level="ERROR", num_cpus=2, **LOCAL)
    actors = [ray.remote(Proxy).options(num_cpus=0).remote() for _ in range(4)]
    children = [actors[i % len(actors)] for i in range(workers)]
    for most in (workers, fanout):
        make = ray.remote(relay.Relay).options(num_cpus=0, max_concurrency=1000).remote
        first, between = relay.tree(make, children, most, 60.0)
        ray.get([a.join.remote(0, *told) for a, *told in between])
        pids = ray.get([a.ready.remote() for a, *_ in between])
        message = b"x" * 255
        for n, at in ((20, 0), (steps, 20)):
            began, user, below = time.perf_counter(), time.process_time(), used(pids)
            refs = []
            for i in range(n):
                refs.append([a.step.remote(0, at + i, message, []) if between else a.step.remote(message) for a in first])
                if len(refs) > 16:
                    ray.get(refs.pop(0))
            for some in refs:
                ray.get(some)
        took, user, below = time.perf_counter() - began, time.process_time() - user, used(pids) - below
        each = f", {below / steps / len(pids) * 1e3:.2f} ms of CPU for each of {len(pids)} actors" if pids else ""
        print(f"{workers} workers, {len(first)} calls: {took / steps * 1e3:.2f} ms a message, {user / steps * 1e3:.2f} ms of the"
              f" controller's CPU{each}", flush=True)  # fmt: skip
    ray.shutdown()


DDP = """
import os, sys, time, torch, torch.distributed as dist
sys.path.insert(0, {example!r})
import gpt
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = gpt.gpt()
ddp = torch.nn.parallel.DistributedDataParallel(model)
step = gpt.trainer(ddp, torch.optim.AdamW(ddp.parameters(), lr=1e-3))
n, r = dist.get_world_size(), dist.get_rank()
times = []
for ids in gpt.batches({steps}, 8, 64, 256):
    part = ids.chunk(n)[r] if r < len(ids.chunk(n)) else ids[:1]
    began = time.perf_counter(); float(step(part)); times.append(time.perf_counter() - began)
if r == 0: print(f"DDP: median {{sorted(times)[len(times) // 2] * 1e3:.1f}} ms a step")
"""


def ddp(workers: int, steps: int) -> None:
    """The same model under torchrun."""
    script = pathlib.Path("/tmp/pliant_ddp.py")
    script.write_text(DDP.format(example=str(EXAMPLE.parent), steps=steps))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}", str(script)]
    subprocess.run(launch, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fuzz", type=int)
    parser.add_argument("--aten", action="store_true", help="workers call ATen, and make no machine code: random programs go quicker")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lose", type=float, default=0.0, metavar="SHARE", help="--fuzz with workers lost at this share of the waits")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--programs", nargs="*", help="those of remote_programs.py, all or by name")
    parser.add_argument("--control", action="store_true")
    parser.add_argument("--operators", action="store_true")
    parser.add_argument("--scale", action="store_true")
    parser.add_argument("--tree", type=int, metavar="FANOUT")
    parser.add_argument("--train", choices=("data", "tensor", "pipeline"))
    parser.add_argument("--gpt2", action="store_true", help="--train with the sizes of GPT-2 small")
    parser.add_argument("--kill", type=int)
    parser.add_argument("--hang", type=int)
    parser.add_argument("--partition", action="store_true")
    parser.add_argument("--ddp", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--shape", type=int, nargs="+", help="of a mesh of several dims, for --fuzz")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--transport", default="ray")
    o = parser.parse_args()
    if o.aten:
        run.Runner.lower = staticmethod(pipeline.call_aten)  # type: ignore[assignment]
    if o.fuzz:
        print(remote_fuzz.fuzz(o.fuzz, o.seed, tuple(o.shape or [o.workers]), o.seconds, lose=o.lose))
    if o.programs is not None:
        remote_programs.run(o.workers, o.transport, o.programs, LOCAL)
    if o.control:
        control(o.workers, o.steps)
    if o.operators:
        operators(o.workers, o.steps, o.transport)
    if o.scale:
        scale([256, 1024, 4096, 10_000, 100_000], 10)
    if o.tree:
        tree(o.workers, o.tree, o.steps)
    if o.train:
        train(o.train, o.workers, o.steps, o.transport, large=o.gpt2)
    if o.kill:
        train("data", o.workers, o.steps, o.transport, o.kill)
    if o.hang:
        remote_faults.hang(example(), o.workers, o.hang, LOCAL)
    if o.partition:
        remote_faults.partition(example(), 40)
    if o.ddp:
        ddp(o.workers, o.steps)


if __name__ == "__main__":
    main()
