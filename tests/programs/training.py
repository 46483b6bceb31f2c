"""What programs that train have in common: a registry, sizes, a small network, a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

Program = Callable[[Callable], Iterator[Any]]
PROGRAMS: dict[str, Program] = {}
SIZES = (3, 5, 2, 7, 4)


def program(fn: Program) -> Program:
    PROGRAMS[fn.__name__] = fn
    return fn


class Mlp(nn.Module):
    def __init__(self, i=4, h=8, o=3, p=0.0, bn=False):
        super().__init__()
        self.a = nn.Linear(i, h)
        self.bn = nn.BatchNorm1d(h) if bn else nn.Identity()
        self.d = nn.Dropout(p)
        self.b = nn.Linear(h, o)

    def forward(self, x):
        return self.b(self.d(torch.tanh(self.bn(self.a(x)))))


def trained(m, loss):
    m.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in m.parameters():
            if p.grad is not None:
                p.sub_(0.05 * p.grad)
    return (loss.detach(), [p.grad for p in m.parameters()])
