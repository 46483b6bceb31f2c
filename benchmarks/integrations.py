"""`python -m benchmarks.integrations`: libraries as they are, on pliant and on `torch.compile`.

Each script of `examples/integrations` runs whole, in a process of its own, once with pliant in the place of `torch.compile` and once as it
is: graphs, breaks, processor time. `generate` of transformers and `encode` of sentence-transformers are timed beside eager: first answers,
then all prompts (or sentences) again. Each figure is the best of rounds in turns, one thread.

python -m benchmarks.integrations --scripts --page docs/integrations.md
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
LENGTHS, BATCHES, TOKENS, ROUNDS = range(4, 44, 2), (1, 2, 4), 12, 5

COUNT = """
import runpy, sys, json, torch
import torch._dynamo.utils as dynamo
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
    error = ""
except BaseException as e:
    error = type(e).__name__
found = dynamo.counters
print("COUNTED", json.dumps([found["stats"]["unique_graphs"], sum(found["graph_break"].values()), error]), file=sys.stderr)
"""


# ---------------------------------------------------------------------------------------------------------------- whole scripts
def script(path: pathlib.Path, ours: bool) -> dict[str, Any]:
    """Graphs, breaks and processor seconds of one script, and what it raised."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PLIANT_ENTRIES": "0"}
    with tempfile.TemporaryDirectory() as cache:  # nobody finds what another run has compiled
        environment |= {"PLIANT_CACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": cache}
        command = ["-m", "pliant", "run", "--stats", str(path)] if ours else ["-c", COUNT, str(path)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        said = subprocess.run([sys.executable, "-W", "ignore", *command], env=environment, capture_output=True, text=True, timeout=1800)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if ours:
        counted = dict(re.findall(r"(\w+) (\d+)", said.stderr[said.stderr.rindex("pliant: ") :])) if "pliant: " in said.stderr else {}
        error = "" if said.returncode == 0 else said.stderr.strip().splitlines()[-1][:80]
        return {"graphs": int(counted.get("captures", 0)), "breaks": int(counted.get("graph_breaks", 0)), "s": seconds, "error": error}
    found = [line for line in said.stderr.splitlines() if line.startswith("COUNTED ")]
    graphs, breaks, error = json.loads(found[-1].removeprefix("COUNTED ")) if found else (0, 0, f"ended with {said.returncode}")
    return {"graphs": graphs, "breaks": breaks, "s": seconds, "error": error}


# -------------------------------------------------------------------------------------------------------------------- timed ones
def seconds(run: Callable[[], Any]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def timed(name: str, ours: bool) -> None:
    """In a worker: `generate` or `encode` in eager, then compiled; a line of JSON."""
    import torch
    import torch._dynamo.utils as dynamo

    import pliant

    torch.set_num_threads(1)
    torch.manual_seed(0)
    if ours:
        pliant.install()

    def graphs() -> tuple[int, int]:
        if ours:
            return pliant.stats()["captures"], pliant.stats()["graph_breaks"]
        return dynamo.counters["stats"]["unique_graphs"], sum(dynamo.counters["graph_break"].values())

    eager, compiled, same = {"generate": generate, "encode": encode}[name]()
    want = eager()
    first = seconds(lambda: compiled(True))
    whole = seconds(compiled)
    pliant.synchronize()
    counted = graphs()
    got = compiled()
    added = graphs()[0] - counted[0]
    pairs = [(seconds(eager), seconds(compiled)) for _ in range(ROUNDS)]
    e, c = min(a for a, _ in pairs), min(b for _, b in pairs)
    print(json.dumps({
        "graphs": counted[0], "breaks": counted[1], "added": added, "same": same(want, got), "first": first, "all": first + whole,
        "eager": e, "compiled": c, "ratio": e / c,
    }))  # fmt: skip


def generate() -> tuple[Callable, Callable, Callable]:
    """A small Llama: greedy tokens for prompts of 20 lengths in 3 batch sizes, its forward compiled."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    small = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2
    )
    model = LlamaForCausalLM(small).eval()
    prompts = [torch.randint(1, 256, (batch, length)) for batch in BATCHES for length in LENGTHS]
    plain, fast = model.forward, torch.compile(model.forward)

    def tokens(forward: Any, few: bool = False) -> list[Any]:
        model.forward = forward
        asked = {"max_new_tokens": TOKENS, "do_sample": False, "pad_token_id": 0}
        return [model.generate(p, **asked) for p in (prompts[:1] if few else prompts)]

    def same(a: Any, b: Any) -> bool:
        return all(map(torch.equal, a, b))

    return lambda: tokens(plain), lambda few=False: tokens(fast, few), same


def encode() -> tuple[Callable, Callable, Callable]:
    """A small BERT in a SentenceTransformer: 200 sentences of every length."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = "a the cat dog sat ran on under mat tree and then quietly away from home".split()
    with tempfile.TemporaryDirectory() as place:
        pathlib.Path(place, "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
        BertTokenizerFast(str(pathlib.Path(place, "vocab.txt"))).save_pretrained(place)
        config = BertConfig(vocab_size=32, hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=128)
        BertModel(config).save_pretrained(place)
        one, other = (
            SentenceTransformer(modules=[Transformer(place, max_seq_length=64), Pooling(64)], device="cpu").eval() for _ in range(2)
        )
    draw = random.Random(0)
    texts = [" ".join(draw.choices(words, k=draw.randint(1, 40))) for _ in range(200)]
    other.compile()

    def vectors(model: Any, few: bool = False) -> Any:
        return model.encode(texts[:16] if few else texts, batch_size=16, show_progress_bar=False, convert_to_tensor=True)

    return lambda: vectors(one), lambda few=False: vectors(other, few), lambda a, b: torch.allclose(a, b, atol=1e-5)


# ------------------------------------------------------------------------------------------------------------------------ the page
def worker(name: str, ours: bool) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PLIANT_ENTRIES": "0"}
    with tempfile.TemporaryDirectory() as cache:
        environment |= {"PLIANT_CACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": cache}
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.integrations", "--inside", name, *(["--ours"] if ours else [])]
        said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800)
    lines = [line for line in said.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"error": (said.stderr.strip().splitlines() or ["?"])[-1][:100]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.integrations")
    parser.add_argument("--scripts", action="store_true", help="the whole scripts, too")
    parser.add_argument("--page", help="write this file")
    parser.add_argument("--inside")
    parser.add_argument("--ours", action="store_true")
    given = parser.parse_args()
    if given.inside:
        timed(given.inside, given.ours)
        return
    heads = "| | | graphs | added by a second round | breaks | same | first answer | all, first round | eager | compiled | ratio |"
    out = [heads, "|" + "---|" * 11]
    for name, library in (("generate", "transformers"), ("encode", "sentence_transformers")):
        if importlib.util.find_spec(library) is None:
            continue
        for ours in (True, False):
            r = worker(name, ours)
            label = "pliant" if ours else "`torch.compile`"
            if "error" in r:
                out.append(f"| `{name}` | {label} | {r['error']} |" + " |" * 8)
                continue
            right = "yes" if r["same"] else "NO"
            out.append(f"| `{name}` | {label} | {r['graphs']} | {r['added']} | {r['breaks']} | {right} | {r['first']:.1f} s "
                       f"| {r['all']:.1f} s | {r['eager']:.2f} s | {r['compiled']:.2f} s | {r['ratio']:.2f} |")  # fmt: skip
    if given.scripts:
        heads = "| script | graphs: pliant | `torch.compile` | breaks: pliant | `torch.compile` | seconds: pliant | `torch.compile` |"
        out += ["", heads, "|" + "---|" * 7]
        for path in sorted((ROOT / "examples" / "integrations").glob("*.py")):
            a, b = script(path, True), script(path, False)
            graphs_of = f"{a['error'] or a['graphs']} | {b['error'] or b['graphs']}"
            out.append(f"| `{path.stem}` | {graphs_of} | {a['breaks']} | {b['breaks']} | {a['s']:.0f} | {b['s']:.0f} |")
    text = "\n".join(out) + "\n"
    if given.page:
        pathlib.Path(given.page).write_text(text)
    print(text)


if __name__ == "__main__":
    main()
