"""Language models from transformers, small configurations with random weights: encode, prefill, decode, train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from benchmarks.programs.program import Program, generator, seeded, sizes

COUNT = 30
DECODE_CALLS = 128
VOCABULARY = 1000
GPT2 = {"vocab_size": VOCABULARY, "n_positions": 256, "n_embd": 256, "n_layer": 4, "n_head": 4, "bos_token_id": 0, "eos_token_id": 0}


def tokens(g: torch.Generator, batch: int, length: int) -> torch.Tensor:
    return torch.randint(1, VOCABULARY, (batch, length), generator=g)


class Encode(nn.Module):
    """Token ids and mask -> hidden states."""

    def __init__(self) -> None:
        super().__init__()
        self.bert = BertModel(
            BertConfig(vocab_size=VOCABULARY, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024)
        )

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.bert(input_ids=ids, attention_mask=mask).last_hidden_state


def encode_inputs() -> list[tuple]:
    g = generator()
    out = []
    for batch, length in zip(sizes(COUNT, 2, 8, seed=1), sizes(COUNT, 8, 96, seed=2)):
        ids = tokens(g, batch, length)
        real = torch.randint(4, length + 1, (batch,), generator=g)
        real[0] = length
        out.append((ids, (torch.arange(length) < real[:, None]).long()))
    return out


class Prefill(nn.Module):
    """Token ids -> the logits of every position, and the keys and values of the first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt = GPT2LMHeadModel(GPT2Config(**GPT2))

    def forward(self, ids: torch.Tensor) -> Any:
        out = self.gpt(input_ids=ids, use_cache=True)
        layer = out.past_key_values.layers[0]
        return out.logits, layer.keys, layer.values


def prefill_inputs() -> list[tuple]:
    g = generator()
    return [(tokens(g, b, n),) for b, n in zip(sizes(COUNT, 2, 6, seed=3), sizes(COUNT, 5, 80, seed=4))]


class Decode(nn.Module):
    """One step: a token and a cache that grows -> the next token's logits."""

    def __init__(self) -> None:
        super().__init__()
        config = LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=256,
            intermediate_size=688,
            num_hidden_layers=4,
            num_attention_heads=8,
            num_key_value_heads=4,
            max_position_embeddings=512,
        )
        self.llama = LlamaForCausalLM(config)

    def forward(self, ids: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
        return self.llama(input_ids=ids, past_key_values=cache, use_cache=True).logits[:, -1]


def decode_inputs() -> list[tuple]:
    """A prompt of 7 tokens, then one token a call, all on one cache."""
    g = generator()
    cache = DynamicCache()
    return [(tokens(g, 1, 7), cache)] + [(tokens(g, 1, 1), cache) for _ in range(DECODE_CALLS - 1)]


def t5() -> nn.Module:
    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=192,
        d_kv=32,
        d_ff=512,
        num_layers=3,
        num_decoder_layers=3,
        num_heads=6,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )
    return T5ForConditionalGeneration(config).train()


class Loss(nn.Module):
    """Source and target ids -> the training loss."""

    def __init__(self) -> None:
        super().__init__()
        self.t5 = t5()

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.t5(input_ids=source, labels=target, use_cache=False).loss


def training_inputs() -> list[tuple]:
    g = generator()
    shapes = zip(sizes(COUNT, 2, 6, seed=5), sizes(COUNT, 6, 48, seed=6), sizes(COUNT, 4, 32, seed=7))
    return [(tokens(g, b, n), tokens(g, b, m)) for b, n, m in shapes]


def training_step(fn: Callable[..., Any], args: tuple) -> Any:
    """Forward, backward; returns the loss and every gradient, which are cleared for the next step."""
    loss = fn(*args)
    loss.backward()
    gradients = []
    for parameter in fn.parameters():  # type: ignore[attr-defined]
        gradients.append(parameter.grad)
        parameter.grad = None
    return loss.detach(), gradients


PROGRAMS = (
    Program("bert", "BERT, 4 layers", seeded(lambda: Encode().eval()), encode_inputs),
    Program("gpt2", "GPT-2 prefill", seeded(lambda: Prefill().eval()), prefill_inputs),
    Program("llama", f"Llama decode, {DECODE_CALLS} calls", seeded(lambda: Decode().eval()), decode_inputs),
    # gradients jump where the input of a unit's relu is zero but for rounding: eager's own are up to 9.4e-4 from float64's here
    Program("t5", "T5 training step", seeded(Loss), training_inputs, call=training_step, tolerance=2e-3),
)
