"""A GAN with a gradient penalty: spectral norm, dropout, two optimizers, a gradient of a gradient."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class G(nn.Module):
    def __init__(s):
        super().__init__()
        s.l = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.LeakyReLU(0.2), nn.Linear(64, 32), nn.Tanh())

    def forward(s, z):
        return s.l(z)


class D(nn.Module):
    def __init__(s):
        super().__init__()
        s.l = nn.Sequential(nn.utils.spectral_norm(nn.Linear(32, 64)), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(64, 1))

    def forward(s, x):
        return s.l(x)


def program(compile_):
    g, d = G(), D()
    og = torch.optim.Adam(g.parameters(), 2e-4, betas=(0.5, 0.999))
    od = torch.optim.Adam(d.parameters(), 2e-4, betas=(0.5, 0.999))

    def gp(real, fake):
        eps = torch.rand(real.size(0), 1)
        x = (eps * real + (1 - eps) * fake).requires_grad_(True)
        out = d(x)
        gr = torch.autograd.grad(out.sum(), x, create_graph=True)[0]
        return ((gr.norm(2, dim=1) - 1) ** 2).mean()

    def step(real):
        z = torch.randn(real.size(0), 16)
        od.zero_grad()
        fake = g(z).detach()
        ld = F.softplus(-d(real)).mean() + F.softplus(d(fake)).mean() + 10 * gp(real, fake)
        ld.backward()
        od.step()
        og.zero_grad()
        lg = F.softplus(-d(g(z))).mean()
        lg.backward()
        og.step()
        return ld.item(), lg.item()

    step = compile_(step)
    return lambda i: step(torch.randn(8 + i % 13, 32))
