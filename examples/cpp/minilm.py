"""Makes what examples/cpp/serve.cpp serves: MiniLM as one file with its machine code, and texts as token ids.

    python examples/cpp/minilm.py build/minilm.pliant build/requests.txt [--texts FILE] [--check EMBEDDINGS]

`--check`: what the server wrote (`serve ... --out EMBEDDINGS`) is compared with eager PyTorch.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

import pliant
from pliant.cli import embedder
from pliant.cli.sentences import sentences


def program(model: torch.nn.Module, example: dict[str, torch.Tensor]) -> pliant.Program:
    """The encoder, for all batches and lengths."""
    dims = {0: pliant.Dim("batch", min=1), 1: pliant.Dim("tokens", min=2, max=512)}
    return pliant.export(model, (), example, dynamic=dict.fromkeys(example, dims))


def requests(path: Path) -> list[list[list[int]]]:
    """The batches of a file of requests."""
    out: list[list[list[int]]] = [[]]
    for line in path.read_text().splitlines():
        out[-1].append([int(n) for n in line.rstrip(",").split()])
        if not line.endswith(","):
            out.append([])
    return [b for b in out if b]


def padded(batch: list[list[int]]) -> dict[str, torch.Tensor]:
    longest = max(map(len, batch))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in batch])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in batch])
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("requests", type=Path)
    parser.add_argument("--texts", type=Path, help="one text a line (default: sentences of every length)")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--batch", type=int, default=4, help="batches have 1 to so many texts")
    parser.add_argument("--check", type=Path)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    model, tokenizer = embedder.load()
    if chosen.check is not None:
        given = np.fromfile(chosen.check, dtype=np.float32).reshape(-1, 384)
        at, worst = 0, 0.0
        with torch.no_grad():
            for batch in requests(chosen.requests):
                want = model(**padded(batch)).numpy()
                worst = max(worst, float(np.abs(want - given[at : at + len(want)]).max()))
                at += len(want)
        print(f"{at} embeddings: the largest difference from eager is {worst:.2e}")
        raise SystemExit(0 if at == len(given) and worst < 1e-5 else 1)
    texts = chosen.texts.read_text().splitlines() if chosen.texts is not None else sentences(chosen.count)
    program(model, tokenizer(texts[:2])).compile(chosen.model, levels=("x86-64-v4", "x86-64-v3", "x86-64"))
    lines, at, size = [], 0, 1
    while at < len(texts):
        rows = [tokenizer([t])["input_ids"][0].tolist() for t in texts[at : at + size]]
        lines += [" ".join(map(str, row)) + ("," if k + 1 < len(rows) else "") for k, row in enumerate(rows)]
        at, size = at + size, size % chosen.batch + 1
    chosen.requests.write_text("\n".join(lines) + "\n")
    print(f"{chosen.model}: {chosen.model.stat().st_size / 1e6:.1f} MB; {chosen.requests}: {len(texts)} texts")


if __name__ == "__main__":
    main()
