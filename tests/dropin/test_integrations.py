"""The scripts of `examples/integrations`: libraries as they are, run with pliant in the place of `torch.compile`.

Each compares itself with eager. Here it may neither fall back nor break a graph, and may not compile more often than its row says.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "examples" / "integrations").glob("*.py"))

#: script -> (the library it needs, captures at most)
NEEDS = {
    "accelerate_train": ("accelerate", 2),
    "diffusers_unet": ("diffusers", 3),
    "peft_lora": ("peft", 4),
    "sentence_transformers_encode": ("sentence_transformers", 2),
    "torch_geometric_gnn": ("torch_geometric", 4),
    "transformers_generate": ("transformers", 6),
    "transformers_trainer": ("accelerate", 2),
}


def test_every_script_has_its_row():
    assert {s.stem for s in SCRIPTS} == set(NEEDS)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.stem)
def test_a_library_runs_unmodified(script):
    library, captures = NEEDS[script.stem]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), "OMP_NUM_THREADS": "1",
                   "HF_HUB_OFFLINE": "1", "PLIANT_ENTRIES": "0", "PLIANT_STRICT": "1"}  # fmt: skip
    command = [sys.executable, "-W", "ignore", "-m", "pliant", "run", "--stats", str(script)]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert said.returncode == 0, said.stderr[-3000:]
    assert "the same" in said.stdout
    counted = dict(re.findall(r"(\w+) (\d+)", said.stderr[said.stderr.rindex("pliant: ") :]))
    assert 1 <= int(counted["captures"]) <= captures, counted
    assert not {"graph_breaks", "fallbacks", "mismatches"} & set(counted), counted
