"""A `transformers.Trainer` with `torch_compile=True`: another model in each call."""

import contextlib
import io
import os
import tempfile

import torch
import transformers as T

import pliant

os.environ["WANDB_DISABLED"] = "true"


class DS(torch.utils.data.Dataset):
    def __init__(s, n, k):
        g = torch.Generator().manual_seed(k)
        s.d = [torch.randint(3, 60, (int(torch.randint(4, 14, (), generator=g)),), generator=g) for _ in range(n)]

    def __len__(s):
        return len(s.d)

    def __getitem__(s, i):
        return {"input_ids": s.d[i], "labels": int(s.d[i][0] % 2)}


def collate(b):
    n = max(len(x["input_ids"]) for x in b)
    ids = torch.zeros(len(b), n, dtype=torch.long)
    m = torch.zeros_like(ids)
    for i, x in enumerate(b):
        k = len(x["input_ids"])
        ids[i, :k] = x["input_ids"]
        m[i, :k] = 1
    return {"input_ids": ids, "attention_mask": m, "labels": torch.tensor([x["labels"] for x in b])}


def program(compile_):
    on = compile_(program) is not program

    def f(i):
        torch.manual_seed(i)
        m = T.BertForSequenceClassification(
            T.BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
        )
        with tempfile.TemporaryDirectory() as d:
            a = T.TrainingArguments(
                d,
                per_device_train_batch_size=4,
                num_train_epochs=1,
                learning_rate=1e-3,
                report_to=[],
                save_strategy="no",
                logging_strategy="steps",
                logging_steps=1,
                eval_strategy="epoch",
                torch_compile=on,
                disable_tqdm=True,
                use_cpu=True,
                gradient_accumulation_steps=2,
                label_smoothing_factor=0.1 * (i % 2),
                lr_scheduler_type="cosine",
            )
            with pliant.install() if compile_ is pliant.compile else contextlib.nullcontext(), contextlib.redirect_stdout(io.StringIO()):
                t = T.Trainer(
                    m,
                    a,
                    train_dataset=DS(24 + i, i),
                    eval_dataset=DS(9, 99),
                    data_collator=collate,
                    compute_metrics=lambda p: {"acc": float((p.predictions.argmax(-1) == p.label_ids).mean())},
                )
                t.train()
                h = t.state.log_history
        return [[r.get("loss", 0.0), r.get("grad_norm", 0.0), r.get("eval_loss", 0.0), r.get("eval_acc", 0.0)] for r in h]

    return f
