"""accelerate: a training loop whose model `prepare` compiles (`dynamo_backend`), with batches of changing sizes. Random weights.

    python -m pliant run --stats examples/integrations/accelerate_train.py
"""

from __future__ import annotations

import copy

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from transformers import BertConfig, BertForSequenceClassification

torch.manual_seed(0)
config = BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # fmt: skip
start = BertForSequenceClassification(config)
batches = [(torch.randint(0, 64, (b, n)), torch.randint(0, 2, (b,))) for b, n in [(4, 7), (3, 12), (5, 5), (4, 9), (2, 16)]]


def losses(backend: str) -> list[float]:
    AcceleratorState._reset_state(reset_partial_state=True)  # a process has one state, with the backend that it was first given
    accelerator = Accelerator(cpu=True, dynamo_backend=backend)
    model = copy.deepcopy(start)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.5, total_iters=4)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    told = []
    for ids, labels in batches:
        loss = model(input_ids=ids, labels=labels).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        told.append(loss.item())
    assert type(accelerator.unwrap_model(model)).__name__ == "BertForSequenceClassification"
    return told


eager, compiled = losses("no"), losses("inductor")
torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-5)
print("the same losses:", " ".join(f"{x:.4f}" for x in compiled))
