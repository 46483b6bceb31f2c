"""One system does the demo's job in this process, which was started for it alone.

Reports (see `workers.report`) the events "loaded", "step" after each batch, and "result".
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import Any

import torch

from pliant.cli import embedder, systems
from pliant.cli.sentences import sentences
from pliant.cli.timing import interleaved, timed
from pliant.cli.workers import report


def search(query: str, embed: Any, tokenizer: Any, texts: list[str], embeddings: torch.Tensor, top: int) -> list[tuple[float, str]]:
    """The `top` texts nearest in meaning to `query`, best first, with their cosine similarity."""
    scores = embeddings @ embed(**tokenizer([query]))[0]
    best = scores.topk(top)
    return [(score, texts[i]) for score, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)]


@torch.inference_mode()
def work(name: str, count: int, rounds: int, query: str, compile_options: dict[str, Any]) -> None:
    """Embed `count` batches once cold, then `rounds` times beside eager; answer the query; report everything."""
    model, tokenizer = embedder.load()
    batches = embedder.batches(sentences(count * 14), tokenizer, count)
    texts = [text for batch, _ in batches for text in batch]
    inputs = [tensors for _, tensors in batches]
    shapes = [tuple(tensors["input_ids"].shape) for tensors in inputs]
    tokens = sum(int(tensors["attention_mask"].sum()) for tensors in inputs)
    eager_too = name != "eager"
    report("loaded", steps=count * (1 + rounds), texts=len(texts), shapes=len(set(shapes)), tokens=tokens)

    system = systems.load(name)
    before = system.counts()
    first_start, embed = timed(lambda: system.compile(model, **compile_options))
    cold, outputs = [], []
    for tensors in inputs:
        seconds, output = timed(lambda tensors=tensors: embed(**tensors))
        cold.append(seconds)
        outputs.append(output)
        report("step")
    system.settle()

    calls = [lambda i: embed(**inputs[i])] + [lambda i: model(**inputs[i])] * eager_too
    steady, *eager = interleaved(count, rounds, tuple(calls), tick=lambda: report("step"))
    difference = max(float((model(**t) - o).abs().max()) for t, o in zip(inputs, outputs, strict=True))
    answers = search(query, embed, tokenizer, texts, torch.cat(outputs), top=5)
    stalls = [(shape, c) for shape, c, s in zip(shapes, cold, steady, strict=True) if c > 2 * s + 0.05]
    report(
        "result",
        system=name,
        first_s=first_start + cold[0],
        total_s=first_start + sum(cold),
        steady_s=sum(steady),
        eager_steady_s=sum(eager[0]) if eager else None,
        steady_ratio=sum(steady) / sum(eager[0]) if eager else None,
        lost_s=first_start + sum(cold) - sum(steady),
        stalls=stalls,
        difference=difference,
        answers=answers,
        **dataclasses.asdict(system.counts() - before),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("system", choices=list(systems.TITLES))
    parser.add_argument("--batches", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--query", required=True)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--backend")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    work(args.system, args.batches, args.rounds, args.query, {"backend": args.backend} if args.backend else {})


if __name__ == "__main__":
    sys.exit(main())
