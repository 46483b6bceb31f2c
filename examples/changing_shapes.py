"""One function, forty shapes, one capture; then a branch on a size, which needs a second one."""

import torch

import pliant


@pliant.compile
def pool(x, mask):
    weights = mask / mask.sum(1, keepdim=True)
    return torch.tanh((x * weights[..., None]).sum(1))


for length in range(2, 42):
    x, mask = torch.randn(3, length, 16), torch.ones(3, length)
    torch.testing.assert_close(pool(x, mask), torch.tanh(x.mean(1)))
print("forty lengths:", pliant.stats())

pliant.reset()


@pliant.compile
def smooth(x):
    if x.shape[0] > 20:  # a decision about the size: a guard on x.shape[0], with this line on record
        x = x[::2]
    return x.cumsum(0) / x.shape[0]


for length in (5, 30, 8, 40, 21, 20):
    smooth(torch.randn(length))
print("a branch on the size:", pliant.stats())
