"""Checkpoints of what lies on a mesh: whole tensors in one file, which any number of workers takes up again."""

from __future__ import annotations

import os
from typing import Any

import torch

from pliant.remote.placements import RemoteError
from pliant.remote.tensor import RemoteTensor

VERSION = 1


def named(state: Any, prefix: str = "") -> dict[str, Any]:
    """The remote tensors in a nested state (of a module, an optimizer, a dict), by path."""
    if isinstance(state, RemoteTensor):
        return {prefix: state}
    if isinstance(state, torch.nn.Module):
        state = {**dict(state.named_parameters()), **dict(state.named_buffers())}
    if isinstance(state, torch.optim.Optimizer):
        params = [p for group in state.param_groups for p in group["params"]]
        state = {str(i): state.state.get(p, {}) for i, p in enumerate(params)}
    out: dict[str, Any] = {}
    if isinstance(state, dict):
        for k, v in state.items():
            out |= named(v, f"{prefix}/{k}" if prefix else str(k))
    elif isinstance(state, (list, tuple)):
        for i, v in enumerate(state):
            out |= named(v, f"{prefix}/{i}" if prefix else str(i))
    elif isinstance(state, torch.Tensor):
        out[prefix] = state
    return out


def write(path: Any, state: Any) -> None:
    """Write the tensors of `state`, whole or not at all: a nest of dicts, lists, modules and optimizers."""
    found = {k: (t.fetched("a checkpoint") if isinstance(t, RemoteTensor) else t).detach().clone() for k, t in named(state).items()}
    temporary = f"{os.fspath(path)}.part"
    torch.save({"pliant.remote checkpoint": VERSION, "tensors": found}, temporary)
    os.replace(temporary, path)


def read(path: Any, state: Any) -> None:
    """Put what `write` wrote into the tensors of `state`, whatever their placements are now. RemoteError if they are other ones."""
    data = torch.load(path, weights_only=True)
    if not isinstance(data, dict) or data.get("pliant.remote checkpoint") != VERSION:
        raise RemoteError(f"{path} is no checkpoint of version {VERSION}")
    found, mine = data["tensors"], named(state)
    if found.keys() != mine.keys():
        wrong = sorted(found.keys() ^ mine.keys())
        raise RemoteError(f"the checkpoint has other tensors: {', '.join(wrong[:5])}{' ...' if len(wrong) > 5 else ''}")
    for k, t in mine.items():
        if t.shape != found[k].shape or t.dtype is not found[k].dtype:
            raise RemoteError(f"{k} has the sizes {tuple(t.shape)} and is {tuple(found[k].shape)} in the checkpoint")
    with torch.no_grad():
        for k, t in mine.items():
            value = found[k]
            t.copy_(t.mesh.placed(value, t.placement) if isinstance(t, RemoteTensor) else value)
