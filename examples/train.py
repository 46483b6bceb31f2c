"""A training loop whose batches are of every length: forward and backward are compiled once."""

import torch
from torch import nn

import pliant


class Tagger(nn.Module):
    def __init__(self, words=100, width=32, tags=5):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.mix = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, tags))

    def forward(self, words, tags):
        x = self.embed(words)
        x = x + x.mean(1, keepdim=True)
        return nn.functional.cross_entropy(self.mix(x).flatten(0, 1), tags.flatten())


torch.manual_seed(0)
model = pliant.compile(Tagger())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for step in range(200):
    batch, length = int(torch.randint(2, 9, ())), int(torch.randint(3, 30, ()))
    words = torch.randint(0, 100, (batch, length))
    loss = model(words, words % 5)  # the tag of a word is its number modulo 5
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 40 == 0:
        print(f"step {step:3}: batch {batch} x {length:2}, loss {loss.item():.3f}")

print(pliant.stats())
