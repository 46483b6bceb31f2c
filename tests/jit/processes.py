"""Fresh processes for tests of what one leaves to the next: forks of one that has imported pliant and compiled nothing.

`python -m tests.jit.processes` reads jobs, a line of JSON each, runs each in a fork, and answers in a line: what the job's code left in
`answer`, pliant's counters, and the traceback if there is one. Several jobs in one line run side by side.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Processes:
    """The process that forks. `run` gives the answers of jobs; `fresh(code, ...)` that of one."""

    def __init__(self) -> None:
        env = {**os.environ, "PLIANT_ENTRIES": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": ROOT}
        env.pop("PLIANT_TEST_ENTRIES", None)
        self.server = subprocess.Popen(
            [sys.executable, "-m", "tests.jit.processes"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd=ROOT, text=True
        )

    def run(self, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        assert self.server.stdin is not None and self.server.stdout is not None
        self.server.stdin.write(json.dumps(jobs) + "\n")
        self.server.stdin.flush()
        return json.loads(self.server.stdout.readline())

    def fresh(self, code: str, path: str) -> dict[str, Any]:
        """Run `code` in a process that finds modules and the cache under `path`."""
        (found,) = self.run([{"code": code, "path": path}])
        assert not found["error"], found["error"]
        return found

    def close(self) -> None:
        assert self.server.stdin is not None
        self.server.stdin.close()
        self.server.wait()


def work(job: dict[str, Any]) -> dict[str, Any]:
    """One job, in a fork."""
    import torch

    from pliant import events
    from pliant.jit.persist import environment

    environment.BEGUN = time.time_ns()  # it imports the program now
    os.environ["PLIANT_CACHE_DIR"] = os.path.join(job["path"], "cache")
    sys.path.insert(0, job["path"])
    names: dict[str, Any] = {"__name__": "job", "torch": torch, "answer": None}
    error = ""
    try:
        exec(compile(job["code"], "<job>", "exec"), names)
    except BaseException:
        error = traceback.format_exc()
    why = [e.fields["what"] for e in (*events.events("policy"), *events.events("disk"))]
    return {"answer": names["answer"], "counters": events.counters(), "error": error, "why": why}


def main() -> None:
    import pliant  # noqa: F401  (what the forks share)

    for line in sys.stdin:
        ends = []
        for job in json.loads(line):
            receive, send = os.pipe()
            if not os.fork():
                os.close(receive)
                with os.fdopen(send, "w") as out:
                    json.dump(work(job), out)
                os._exit(0)
            os.close(send)
            ends.append(receive)
        found = []
        for receive in ends:
            with os.fdopen(receive) as inbox:
                found.append(json.loads(inbox.read()))
            os.wait()
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
