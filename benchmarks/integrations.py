"""`python -m benchmarks.integrations`: libraries as they are, on pliant and on `torch.compile`.

Each script of `examples/integrations` runs whole, in a process of its own, once with pliant in the place of `torch.compile` and once as it
is: graphs, breaks, processor time. One use of each library is timed beside eager, at changing sizes: the first answer, a first round
over all sizes, then rounds in turns with eager, of which the best counts. One thread, processor time. A process that takes longer than
`--limit` seconds is given up.

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
LIMIT_S = 600

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
def script(path: pathlib.Path, ours: bool, limit: float) -> dict[str, Any]:
    """Graphs, breaks and processor seconds of one script, and what it raised."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PLIANT_ENTRIES": "0"}
    with tempfile.TemporaryDirectory() as cache:  # nobody finds what another run has compiled
        environment |= {"PLIANT_CACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": cache}
        command = ["-m", "pliant", "run", "--stats", str(path)] if ours else ["-c", COUNT, str(path)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            command = [sys.executable, "-W", "ignore", *command]
            said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return {"graphs": "", "breaks": "", "s": limit, "error": f"more than {limit:.0f} s"}
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

    eager, compiled, same = TIMED[name][0]()
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


def forward(model: Any, calls: list[dict], read: Callable[[Any], Any] = lambda out: out) -> tuple[Callable, Callable, Callable]:
    """Calls of a model, in eager and compiled."""
    import torch

    fast = torch.compile(model)

    def run(f: Any, few: bool = False) -> list[Any]:
        with torch.no_grad():
            return [read(f(**call)) for call in (calls[:1] if few else calls)]

    def same(a: Any, b: Any) -> bool:
        return all(torch.allclose(x, y, rtol=1e-3, atol=1e-4) for x, y in zip(a, b, strict=True))

    return lambda: run(model), lambda few=False: run(fast, few), same


SIDES = [(16, 16), (16, 24), (24, 16), (32, 32), (40, 24), (24, 40)]


def unet() -> tuple[Callable, Callable, Callable]:
    """The denoiser of a small latent diffusion model."""
    import torch
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32, attention_head_dim=8,
    ).eval()  # fmt: skip
    text, t = torch.randn(1, 7, 32), torch.tensor(3)
    calls = [{"sample": torch.randn(1, 4, *hw), "timestep": t, "encoder_hidden_states": text} for hw in SIDES]
    return forward(model, calls, lambda out: out.sample)


def dit() -> tuple[Callable, Callable, Callable]:
    """A small diffusion transformer, at changing batches."""
    import torch
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=16, in_channels=4, num_layers=2, sample_size=8, norm_num_groups=8
    ).eval()
    calls = [
        {"hidden_states": torch.randn(n, 4, 8, 8), "timestep": torch.arange(n) * 7, "class_labels": torch.arange(n)} for n in range(2, 9)
    ]
    return forward(model, calls, lambda out: out.sample)


def vae() -> tuple[Callable, Callable, Callable]:
    """The decoder of a small autoencoder."""
    import torch
    from diffusers import AutoencoderKL

    model = AutoencoderKL(block_out_channels=(32,), norm_num_groups=8, latent_channels=4).eval()
    return forward(model.decoder, [{"sample": torch.randn(1, 4, *hw)} for hw in SIDES])


def lora() -> tuple[Callable, Callable, Callable]:
    """A small Llama with an adapter."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    small = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2
    )
    model = get_peft_model(LlamaForCausalLM(small), LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)).eval()
    calls = [{"input_ids": torch.randint(0, 256, (2, n)), "use_cache": False} for n in range(5, 40, 3)]
    return forward(model, calls, lambda out: out.logits)


def gnn() -> tuple[Callable, Callable, Callable]:
    """Two graph convolutions, on graphs of every size."""
    import torch
    from torch_geometric.nn import GCN

    sizes = [(50, 200), (80, 300), (120, 500), (35, 90), (200, 900)]
    calls = [{"x": torch.randn(n, 16), "edge_index": torch.randint(0, n, (2, e))} for n, e in sizes]
    return forward(GCN(16, 32, 2, 8).eval(), calls)


TIMED: dict[str, tuple[Callable, str]] = {
    "generate": (generate, "transformers"), "encode": (encode, "sentence_transformers"), "unet": (unet, "diffusers"),
    "dit": (dit, "diffusers"), "vae": (vae, "diffusers"), "lora": (lora, "peft"), "gnn": (gnn, "torch_geometric"),
}  # fmt: skip


# ------------------------------------------------------------------------------------------------------------------------ the page
def worker(name: str, ours: bool, limit: float) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PLIANT_ENTRIES": "0"}
    with tempfile.TemporaryDirectory() as cache:
        environment |= {"PLIANT_CACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": cache}
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.integrations", "--inside", name, *(["--ours"] if ours else [])]
        try:
            said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return {"error": f"more than {limit:.0f} s"}
    lines = [line for line in said.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"error": (said.stderr.strip().splitlines() or ["?"])[-1][:100]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.integrations")
    parser.add_argument("--scripts", action="store_true", help="the whole scripts, too")
    parser.add_argument("--page", help="write this file")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds that one process may take")
    parser.add_argument("names", nargs="*", default=list(TIMED), metavar="NAME", help=", ".join(TIMED))
    parser.add_argument("--inside")
    parser.add_argument("--ours", action="store_true")
    given = parser.parse_args()
    if given.inside:
        timed(given.inside, given.ours)
        return
    heads = "| | | graphs | added by a second round | breaks | same | first answer | all, first round | eager | compiled | ratio |"
    out = [heads, "|" + "---|" * 11]
    for name in given.names:
        if importlib.util.find_spec(TIMED[name][1]) is None:
            continue
        for ours in (True, False):
            r = worker(name, ours, given.limit)
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
            a, b = (script(path, ours, given.limit) for ours in (True, False))
            graphs_of = f"{a['error'] or a['graphs']} | {b['error'] or b['graphs']}"
            out.append(f"| `{path.stem}` | {graphs_of} | {a['breaks']} | {b['breaks']} | {a['s']:.0f} | {b['s']:.0f} |")
    text = "\n".join(out) + "\n"
    if given.page:
        pathlib.Path(given.page).write_text(text)
    print(text)


if __name__ == "__main__":
    main()
