"""sentence-transformers: `model.compile()` and `encode` of sentences of every length. Random weights, a tokenizer made here.

    python -m pliant run --stats examples/integrations/sentence_transformers_encode.py
"""

from __future__ import annotations

import pathlib
import random
import tempfile

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Pooling, Transformer
from transformers import BertConfig, BertModel, BertTokenizerFast

torch.manual_seed(0)
words = "a the cat dog sat ran on under mat tree and then quietly away from home".split()
with tempfile.TemporaryDirectory() as place:
    pathlib.Path(place, "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    BertTokenizerFast(str(pathlib.Path(place, "vocab.txt"))).save_pretrained(place)
    config = BertConfig(vocab_size=32, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
    BertModel(config).save_pretrained(place)
    transformer = Transformer(place, max_seq_length=64)
model = SentenceTransformer(modules=[transformer, Pooling(64)], device="cpu").eval()

draw = random.Random(0)
texts = [" ".join(draw.choices(words, k=draw.randint(1, 40))) for _ in range(200)]
eager = model.encode(texts, batch_size=16, show_progress_bar=False)
model.compile()
compiled = model.encode(texts, batch_size=16, show_progress_bar=False)
assert abs(eager - compiled).max() < 1e-5, abs(eager - compiled).max()
print("the same embeddings:", len(texts), "sentences")
