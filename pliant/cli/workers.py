"""Run one measurement in a fresh Python process with empty caches, and read what it reports while it runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

# Where each system keeps compiled code between processes, and what keeps a run off the network.
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "PLIANT_CACHE_DIR")
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}


def report(event: str, **fields: Any) -> None:
    """Called in a worker: one JSON object, on a line of its own, for the process that started it. It is written at once, since other
    threads and forked processes report, too: `print` writes the line and its end apart."""
    assert sys.__stdout__ is not None
    sys.__stdout__.flush()
    os.write(sys.__stdout__.fileno(), (json.dumps({"event": event, **fields}) + "\n").encode())


@dataclass(slots=True)
class Run:
    """What a worker left: its reports in order, and how it ended."""

    reports: list[dict[str, Any]] = field(default_factory=list)
    status: str = "ok"  # "ok", "not finished" (its time was up) or "failed"
    error: str = ""  # the end of standard error, when it failed

    def last(self, event: str) -> dict[str, Any] | None:
        return next((r for r in reversed(self.reports) if r["event"] == event), None)


def run(
    module: str,
    words: list[str],
    on_report: Callable[[dict[str, Any]], None] = lambda _: None,
    limit_s: float | None = None,
    caches: str | None = None,
) -> Run:
    """Start `python -m module words...` and collect the JSON objects that it prints, one a line; stop it after `limit_s` seconds.

    `caches`: a folder for compiled code that outlives the run (default: the run begins without any, and leaves none).
    """
    out = Run()
    with tempfile.TemporaryDirectory(prefix="pliant-run-") as folder, open(os.path.join(folder, "stderr"), "w+b") as errors:
        env = os.environ | OFFLINE | {name: os.path.join(caches or folder, name.lower()) for name in CACHES}
        process = subprocess.Popen([sys.executable, "-m", module, *words], stdout=subprocess.PIPE, stderr=errors, env=env, text=True)
        assert process.stdout is not None
        expired = threading.Event()
        timer = threading.Timer(limit_s, lambda: (expired.set(), process.kill())) if limit_s else None
        if timer:
            timer.start()
        try:
            for line in process.stdout:
                if line.startswith('{"event"'):
                    out.reports.append(json.loads(line))
                    on_report(out.reports[-1])
        finally:
            if timer:
                timer.cancel()
            if process.poll() is None and sys.exc_info()[0]:
                process.kill()  # interrupted: leave no worker behind
            code = process.wait()
        if expired.is_set():
            out.status = "not finished"
        elif code:
            errors.seek(0)
            out.status, out.error = "failed", errors.read().decode(errors="replace").strip()[-4000:]
    return out


def told(
    title: str, module: str, words: list[str], event: str, limit_s: float | None = None, caches: str | None = None
) -> list[dict[str, Any]]:
    """The reports of that event from a run of its own. How it ended, if not well, is printed under the title."""
    outcome = run(module, words, limit_s=limit_s, caches=caches)
    if outcome.status != "ok":
        print(f"{title}: {outcome.status}\n{outcome.error}")
    return [r for r in outcome.reports if r["event"] == event]
