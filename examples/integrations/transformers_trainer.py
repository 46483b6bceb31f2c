"""transformers: `Trainer` with `torch_compile=True`, on batches of changing length. Random weights.

    python -m pliant run --stats examples/integrations/transformers_trainer.py
"""

from __future__ import annotations

import random
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

draw = random.Random(0)
examples = []
for _ in range(24):
    n = draw.randint(3, 20)
    examples.append({"input_ids": [draw.randrange(64) for _ in range(n)], "labels": draw.randrange(2)})
config = BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # fmt: skip


def collate(batch: list[dict]) -> dict[str, torch.Tensor]:
    longest = max(len(e["input_ids"]) for e in batch)
    ids = torch.tensor([e["input_ids"] + [0] * (longest - len(e["input_ids"])) for e in batch])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": torch.tensor([e["labels"] for e in batch])}


def losses(compiled: bool) -> list[float]:
    set_seed(0)
    with tempfile.TemporaryDirectory() as place:
        asked = TrainingArguments(
            place, per_device_train_batch_size=4, num_train_epochs=1, logging_steps=1, report_to=[], disable_tqdm=True, use_cpu=True,
            save_strategy="no", torch_compile=compiled,
        )  # fmt: skip
        trainer = Trainer(BertForSequenceClassification(config), asked, data_collator=collate, train_dataset=examples)
        trainer.train()
        return [row["loss"] for row in trainer.state.log_history if "loss" in row]


eager, compiled = losses(False), losses(True)
torch.testing.assert_close(compiled, eager, rtol=1e-3, atol=1e-4)
print("the same losses:", " ".join(f"{x:.4f}" for x in compiled))
