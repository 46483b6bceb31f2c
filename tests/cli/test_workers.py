"""Measurements in fresh processes: reports come through, failures and time limits are told, nothing of a run is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pliant.cli import workers


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """`worker(source, *words, **options)` runs `source` as a worker module."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    head = "import json, os, sys\ndef report(event, **f): print(json.dumps({'event': event, **f}), flush=True)\n"

    def run(source, *words, **options):
        (tmp_path / "a_worker.py").write_text(head + source)
        return workers.run("a_worker", list(words), **options)

    return run


def test_reports_arrive_in_order_and_other_output_is_ignored(worker):
    seen = []
    run = worker(
        "report('a', n=1)\nprint('noise')\nprint('{\"not\": 1}')\nreport('b', n=sys.argv[1])\nreport('b', n=3)",
        "two",
        on_report=seen.append,
    )
    assert run.status == "ok"
    assert [(r["event"], r["n"]) for r in run.reports] == [("a", 1), ("b", "two"), ("b", 3)]
    assert seen == run.reports
    assert run.last("b") == {"event": "b", "n": 3} and run.last("c") is None


def test_a_failure_keeps_what_was_reported_and_the_traceback(worker):
    run = worker("report('a')\nraise ValueError('broken here')")
    assert run.status == "failed"
    assert len(run.reports) == 1 and run.error.endswith("ValueError: broken here")


def test_a_run_past_its_limit_is_stopped_and_told(worker):
    run = worker("report('a')\nsys.stdin = open('/dev/zero', 'rb')\nwhile True: sys.stdin.read(1)", limit_s=1.0)
    assert run.status == "not finished"


def test_caches_are_empty_folders_of_the_run_alone(worker):
    source = f"report('env', **{{n: os.environ[n] for n in {workers.CACHES!r}}}, offline=os.environ['HF_HUB_OFFLINE'])"
    first, second = worker(source).last("env"), worker(source).last("env")
    assert first["offline"] == "1"
    for name in workers.CACHES:
        assert first[name] != second[name]
        assert not os.path.exists(os.path.dirname(first[name]))


def test_report_is_one_line_of_json_on_the_real_stdout(capfd):
    workers.report("step", text="a\nb")
    assert capfd.readouterr().out == '{"event": "step", "text": "a\\nb"}\n'


def test_reports_of_several_threads_stand_on_lines_of_their_own():
    source = (
        "import threading\nfrom pliant.cli.workers import report\n"
        "ts = [threading.Thread(target=lambda k=k: [report('x', n=k, pad='a' * 300) for _ in range(300)]) for k in range(4)]\n"
        "[t.start() for t in ts]\n[t.join() for t in ts]\n"
    )
    lines = subprocess.run([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    assert sorted(json.loads(line)["n"] for line in lines) == sorted([*range(4)] * 300)
