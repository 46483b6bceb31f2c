"""What breaks a graph, and how to see it: the parts around the break stay compiled, the frame is never dropped."""

import torch

import pliant


def toy_example(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


compiled = pliant.compile(toy_example)
for sign in (1, -1):
    a, b = torch.randn(10), sign * torch.ones(10)
    torch.testing.assert_close(compiled(a, b), toy_example(a, b))
print(pliant.stats())
print(pliant.explain(toy_example, torch.randn(10), torch.ones(10)))

try:
    pliant.compile(toy_example, fullgraph=True)(torch.randn(10), torch.ones(10))
except pliant.errors.GraphBreakError as error:
    print("fullgraph=True says:", error)
