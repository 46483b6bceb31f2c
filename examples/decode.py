"""Token by token on a cache that grows: every step has a new shape, all steps share one graph."""

import torch
from torch import nn
from torch.nn import functional as F

import pliant


class Decoder(nn.Module):
    """One attention layer with a cache of keys and values, kept in a plain list of tensors."""

    def __init__(self, words=50, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(words, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, words)

    def forward(self, token, cache):
        batch = token.shape[0]
        q, k, v = self.qkv(self.embed(token)).view(batch, 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        if cache:
            k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        cache[:] = [k, v]  # a write to an object of yours: replayed after the graph ran
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(batch, -1)).argmax(-1, keepdim=True)


torch.manual_seed(0)
model = Decoder().eval()
compiled = pliant.compile(model)

with torch.no_grad():
    token = expected = torch.randint(0, 50, (2, 1))
    cache, eager_cache = [], []
    for _ in range(40):
        token, expected = compiled(token, cache), model(expected, eager_cache)
        assert torch.equal(token, expected)

print("cache after 40 tokens:", tuple(cache[0].shape))
print(pliant.stats())
