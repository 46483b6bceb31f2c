"""Faults of a mesh of real processes: `python -m benchmarks.remote --hang 5 | --partition`.

    --hang N       workers stopped (SIGSTOP) at random while it trains: each is lost after `timeout`, and begins anew
    --partition    a cluster of three nodes, each in a network namespace of its own (needs root and `ip`): a short cut of the network, which
                   nothing is lost by, and one that lasts, after which the spare node takes over

Losses are compared with those of one process.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import json
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import pliant
from pliant import events, remote

NET = "10.99.7"
BRIDGE = "pliantbr"
PORT = 6397
HEALTH = {"health_check_period_ms": 1000, "health_check_timeout_ms": 3000, "health_check_failure_threshold": 8}


def compared(g: Any, mesh: remote.Mesh, steps: int, before: Callable[[int], Any]) -> None:
    """Data-parallel training beside one process; `before(step)` does the harm."""
    torch.manual_seed(0)
    a = g.gpt()
    b = copy.deepcopy(a)
    ref = pliant.compile(g.trainer(a, torch.optim.AdamW(a.parameters(), lr=1e-3)), backend="aten")
    mesh.replicate(b)
    step = pliant.compile(g.trainer(b, torch.optim.AdamW(b.parameters(), lr=1e-3)), on=mesh)
    worst, slowest = 0.0, 0.0
    stop = events.subscribe(lambda e: print(f"  {e.fields['what']} {e.fields['text'][:100]}", flush=True), ("remote",))
    for i, ids in enumerate(g.batches(steps, 8, 64, 256)):
        want = ref(ids).item()
        before(i)
        began = time.perf_counter()
        got = step(mesh.shard(ids)).item()
        took = time.perf_counter() - began
        worst, slowest = max(worst, abs(want - got) / abs(want)), max(slowest, took)
        if took > 3 and i > 2:
            print(f"step {i}: {want:.6f} {got:.6f}, {took:.1f} s", flush=True)
    stop()
    print(f"{steps} steps: largest relative difference {worst:.2e}, longest step {slowest:.1f} s; {mesh.counts['recoveries']} recoveries,"
          f" {mesh.counts['lost_workers']} workers lost; leaked {mesh.stats()['leaked']}", flush=True)  # fmt: skip


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def hang(g: Any, workers: int, count: int, init: dict[str, Any]) -> None:
    """Workers are stopped at random."""
    random.seed(0)
    stopped: list[int] = []

    def harm(i: int) -> None:
        if i > 2 and i % 4 == 0 and len(stopped) < count:
            pid = mesh.pids[random.randrange(workers)]
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)

    with remote.mesh(workers, timeout=8, lineage=16, init=init) as mesh:
        compared(g, mesh, 4 * count + 6, harm)
        left = [p for p in stopped if alive(p)]
        print(f"{len(stopped)} stopped; still there, stopped: {len(left)}")


# -- partitions -----------------------------------------------------------------------------------------------------------------------
def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, stderr=None if check else subprocess.DEVNULL)


def ray(*words: str, inside: str | None = None) -> subprocess.Popen:
    """A node, which ends with its process."""
    where = ["ip", "netns", "exec", inside] if inside else []
    command = [*where, str(Path(sys.executable).parent / "ray"), "start", "--block", *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def namespaces(n: int) -> None:
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("addr", "add", f"{NET}.1/24", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")
    for i in range(n):
        ip("netns", "add", f"pliant{i}")
        ip("link", "add", f"pliv{i}", "type", "veth", "peer", "name", f"plin{i}")
        ip("link", "set", f"plin{i}", "netns", f"pliant{i}")
        ip("link", "set", f"pliv{i}", "master", BRIDGE)
        ip("link", "set", f"pliv{i}", "up")
        for words in (f"addr add {NET}.{i + 2}/24 dev plin{i}", f"link set plin{i} up", "link set lo up"):
            ip("netns", "exec", f"pliant{i}", "ip", *words.split())


def undone(n: int) -> None:
    for i in range(n):
        ip("netns", "del", f"pliant{i}", check=False)
        ip("link", "del", f"pliv{i}", check=False)
    ip("link", "del", BRIDGE, check=False)


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.2)


def listening(host: str, port: int) -> None:
    def answers() -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection((host, port), 1).close()
            return True
        return False

    until(answers)


def address_of(pid: int) -> int:
    """The node, by its number, in whose namespace a process runs."""
    mine = os.readlink(f"/proc/{pid}/ns/net")
    for i in range(3):
        if os.stat(f"/run/netns/pliant{i}").st_ino == int(mine.split("[")[1][:-1]):
            return i
    raise LookupError(pid)


def partition(g: Any, steps: int) -> None:
    """Two workers and a spare, each behind a link of its own."""
    nodes = 3
    small = ("--object-store-memory=100000000", "--disable-usage-stats")
    undone(nodes)
    namespaces(nodes)
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    running: list[subprocess.Popen] = []
    try:
        running.append(ray("--head", f"--node-ip-address={NET}.1", f"--port={PORT}", "--num-cpus=0", "--include-dashboard=false",
            "--temp-dir=/tmp/r3", f"--system-config={json.dumps(HEALTH)}", *small))  # fmt: skip
        listening(f"{NET}.1", PORT)
        library = importlib.import_module("ray")
        library.init(address=f"{NET}.1:{PORT}", _node_ip_address=f"{NET}.1", logging_level="ERROR", log_to_driver=False)
        for i in range(nodes):
            where = (f"--address={NET}.1:{PORT}", f"--node-ip-address={NET}.{i + 2}", "--num-cpus=1")
            running.append(ray(*where, *small, inside=f"pliant{i}"))
            until(lambda: sum(n["Alive"] for n in library.nodes()) == i + 2)  # noqa: B023
        healing: list[threading.Timer] = []

        def cut(node: int, seconds: float) -> None:
            ip("link", "set", f"pliv{node}", "down")
            healing.append(threading.Timer(seconds, ip, ("link", "set", f"pliv{node}", "up")))
            healing[-1].start()

        def harm(i: int) -> None:
            if i == 10:
                cut(address_of(mesh.pids[0]), 2)
            elif i == 20:
                print(f"node of worker 1 is cut off: {address_of(mesh.pids[1])}", flush=True)
                cut(address_of(mesh.pids[1]), 60)

        with remote.mesh(2, timeout=20, lineage=16) as mesh:
            compared(g, mesh, steps, harm)
            print("the workers are on the nodes", [address_of(p) for p in mesh.pids])
        library.shutdown()
        for t in healing:
            t.join()
    finally:
        for i in range(nodes):
            ip("link", "set", f"pliv{i}", "up", check=False)
        for p in reversed(running):
            p.terminate()
        for p in running:
            p.wait(60)
        undone(nodes)
