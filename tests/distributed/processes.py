"""Two processes over gloo that run cases eagerly and compiled, and tell what they saw. `together(cases)` starts them once for all."""

from __future__ import annotations

import datetime
import json
import os
import tempfile
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 2
LIMIT_S = 480  # for all cases: a hang ends by this


def together(module: str, names: list[str], world: int = WORLD) -> dict[str, list[dict]]:
    """By case, what each rank reported: `error` (a traceback, or "") and what the case returned. Whoever hangs is killed."""
    with tempfile.TemporaryDirectory() as folder:
        context = mp.get_context("spawn")
        workers = [context.Process(target=work, args=(rank, world, folder, module, names), daemon=True) for rank in range(world)]
        for w in workers:
            w.start()
        for w in workers:
            w.join(LIMIT_S)
        for w in workers:
            if w.is_alive():
                w.kill()
                w.join()
        found: dict[str, list[dict]] = {name: [] for name in names}
        for rank in range(world):
            path = os.path.join(folder, f"rank{rank}.jsonl")
            said = [json.loads(line) for line in open(path)] if os.path.exists(path) else []
            by_name = {r["case"]: r for r in said}
            for name in names:
                found[name].append(by_name.get(name, {"error": "the process ended, or was killed, before this case was over"}))
        return found


def work(rank: int, world: int, folder: str, module: str, names: list[str]) -> None:
    """One process: every case in turn."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    import importlib

    cases: dict[str, Callable[[int], dict]] = importlib.import_module(module).CASES
    import pliant

    limit = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world, timeout=limit)
    try:
        with open(os.path.join(folder, f"rank{rank}.jsonl"), "w") as out:
            for name in names:
                pliant.reset()
                found: dict[str, Any] = {"case": name, "error": ""}
                try:
                    found.update(cases[name](rank))
                except Exception:
                    found["error"] = traceback.format_exc()
                found["stats"] = {k: v for k, v in pliant.stats().items() if type(v) is int}
                out.write(json.dumps(found) + "\n")
                out.flush()
                if found["error"]:
                    return  # the other process may wait for collectives that will not come
    finally:
        dist.destroy_process_group()
