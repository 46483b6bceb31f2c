"""Neural style transfer: features by hooks, Gram matrices, total variation, and LBFGS, whose closure is called as often as it likes."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def features():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
    ).requires_grad_(False)  # fmt: skip


def gram(x):
    b, c, h, w = x.shape
    f = x.view(b, c, h * w)
    return f @ f.transpose(1, 2) / (c * h * w)


class Tap:
    def __init__(s, net, layers):
        s.found = {}
        s.handles = [net[i].register_forward_hook(lambda m, args, out, i=i: s.found.__setitem__(i, out)) for i in layers]

    def remove(s):
        for h in s.handles:
            h.remove()


def variation(x):
    return (x[..., 1:] - x[..., :-1]).abs().mean() + (x[..., 1:, :] - x[..., :-1, :]).abs().mean()


def program(compile_):
    net = features()
    styles, contents = (0, 2, 5), (7,)

    def transfer(content, style, steps, weight):
        tap = Tap(net, styles + contents)
        with torch.no_grad():
            net(style)
            want = {i: gram(tap.found[i]) for i in styles}
            net(content)
            keep = {i: tap.found[i].clone() for i in contents}
        image = content.clone().requires_grad_()
        opt = torch.optim.LBFGS([image], lr=0.5, max_iter=2, history_size=4)
        told = []

        def closure():
            with torch.no_grad():
                image.clamp_(0, 1)
            opt.zero_grad()
            net(image)
            s = sum(F.mse_loss(gram(tap.found[i]), want[i]) for i in styles)
            c = sum(F.mse_loss(tap.found[i], keep[i]) for i in contents)
            l = weight * s + c + 0.01 * variation(image)
            l.backward()
            told.append(l.item())
            return l

        for _ in range(steps):
            opt.step(closure)
        tap.remove()
        return image.detach().clamp(0, 1), told

    transfer = compile_(transfer)

    def f(i):
        content, style = torch.rand(1, 3, 8 + 2 * (i % 3), 8), torch.rand(1, 3, 10, 8 + 2 * (i % 2))
        return list(transfer(content, style, 2 + i % 2, 10.0 * (1 + i % 2)))

    return f
