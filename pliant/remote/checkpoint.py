"""Checkpoints of what lies on a mesh: whole tensors and numbers in one file, which any number of workers takes up again.

A state is a nest of dicts and lists with modules, optimizers, pipelines, tensors, plain values (numbers, strings, tuples of them) and
what has a `state_dict` (schedulers) in it. Tensors have names by where they are in the nest. What an optimizer has made in its first step
is made by `read`, where the optimizer is a new one; its numbers (rates that a scheduler has changed) are kept, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

from pliant.remote.placements import OnWorker, RemoteError, Replicate
from pliant.remote.tensor import RemoteTensor

VERSION = 2
PLAIN = (int, float, complex, bool, str, bytes, type(None))


class Optimizers(NamedTuple):
    """Optimizers that share out parameters, whose names are told (by `id`)."""

    of: list[torch.optim.Optimizer]
    names: dict[int, str]


class Leaf(NamedTuple):
    """A tensor, which is written, or a plain value, and what puts another one in its place (None: nothing can)."""

    value: Any
    put: Callable[[Any], Any] | None


class Nest:
    """What is in a state, by its path. `owners`: paths below which an optimizer may have nothing yet, and the parameter, or the group."""

    def __init__(self, state: Any) -> None:
        self.leaves: dict[str, Leaf] = {}
        self.owners: dict[str, tuple[dict, torch.Tensor | None]] = {}
        self.add(state, "", None)

    def add(self, x: Any, path: str, put: Callable[[Any], Any] | None) -> None:
        below = lambda k: f"{path}/{k}" if path else str(k)
        if isinstance(x, torch.Tensor):
            self.leaves[path] = Leaf(x, None)
        elif hasattr(type(x), "for_checkpoint"):
            self.add(x.for_checkpoint(), path, None)
        elif isinstance(x, torch.nn.Module):
            self.add({**dict(x.named_parameters()), **dict(x.named_buffers())}, path, None)
        elif isinstance(x, torch.optim.Optimizer):
            params = [p for group in x.param_groups for p in group["params"]]
            self.optimizers(Optimizers([x], {id(p): str(i) for i, p in enumerate(params)}), below)
        elif isinstance(x, Optimizers):
            self.optimizers(x, below)
        elif plain(x) and (not isinstance(x, (dict, list)) or not x):
            if path and not isinstance(x, (dict, list)):
                self.leaves[path] = Leaf(x, put)
        elif isinstance(x, dict):
            for k, v in x.items():
                self.add(v, below(k), partial(x.__setitem__, k))
        elif isinstance(x, list):
            for i, v in enumerate(x):
                self.add(v, below(i), partial(x.__setitem__, i))
        elif isinstance(x, tuple):
            for i, v in enumerate(x):
                self.add(v, below(i), None)
        elif hasattr(x, "state_dict") and hasattr(x, "load_state_dict"):
            self.leaves[path] = Leaf(dict(x.state_dict()), x.load_state_dict)
        else:
            raise RemoteError(f"{path or 'a state'} is a {type(x).__name__}, which a checkpoint cannot have")

    def optimizers(self, some: Optimizers, below: Callable[[Any], str]) -> None:
        for o in some.of:
            for i, group in enumerate(o.param_groups):
                self.owners[below(f"groups/{i}")] = group, None
                for k, v in group.items():
                    at = below(f"groups/{i}/{k}")
                    if k in ("params", "param_names"):
                        continue
                    if at in self.leaves and not isinstance(v, torch.Tensor):
                        if self.leaves[at].value != v:
                            raise RemoteError(f"{at} is {self.leaves[at].value!r} in one optimizer and {v!r} in another")
                        self.leaves[at] = Leaf(v, both(self.leaves[at].put, partial(group.__setitem__, k)))
                        continue
                    self.add(v, at, partial(group.__setitem__, k))
                for p in group["params"]:
                    path = below(some.names[id(p)])
                    self.owners[path] = o.state[p] if p in o.state else LateState(o, p), p
                    for k, v in (o.state[p] if p in o.state else {}).items():
                        self.add(v, f"{path}/{k}", partial(o.state[p].__setitem__, k))


class LateState(dict):
    """The state of a parameter of which an optimizer has none yet."""

    def __init__(self, optimizer: torch.optim.Optimizer, p: torch.Tensor) -> None:
        super().__init__()
        self.optimizer, self.p = optimizer, p

    def __setitem__(self, key: Any, value: Any) -> None:
        self.optimizer.state[self.p][key] = value


def both(a: Callable[[Any], Any] | None, b: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def put(new: Any) -> None:
        if a is not None:
            a(new)
        b(new)

    return put


def plain(x: Any) -> bool:
    """What a file of tensors may have beside them."""
    if isinstance(x, dict):
        return all(plain(v) for kv in x.items() for v in kv)
    return all(map(plain, x)) if type(x) in (tuple, list) else type(x) in PLAIN


def write(path: Any, state: Any) -> None:
    """Write `state`, whole or not at all."""
    tensors, remote, values = {}, [], {}
    for name, (v, _) in Nest(state).leaves.items():
        if isinstance(v, torch.Tensor):
            tensors[name] = (v.fetched("a checkpoint") if isinstance(v, RemoteTensor) else v).detach().clone()
            if isinstance(v, RemoteTensor):
                remote.append(name)
        elif plain(v):
            values[name] = v
        else:
            raise RemoteError(f"{name} holds more than numbers, strings, lists and dicts, which a checkpoint cannot have")
    temporary = f"{os.fspath(path)}.part"
    torch.save({"pliant.remote checkpoint": VERSION, "tensors": tensors, "remote": remote, "values": values}, temporary)
    os.replace(temporary, path)


def read(path: Any, state: Any) -> None:
    """Put what `write` wrote into `state`, whatever the placements are now. RemoteError, and nothing is put, if it is another state."""
    data = torch.load(path, weights_only=True)
    if not isinstance(data, dict) or data.get("pliant.remote checkpoint") not in (1, VERSION):
        raise RemoteError(f"{path} is no checkpoint of version {VERSION}")
    nest = Nest(state)
    found = {**data["tensors"], **data.get("values", {})}
    # version 1 had tensors alone
    mine = {k: leaf for k, leaf in nest.leaves.items() if isinstance(leaf.value, torch.Tensor) or "values" in data}
    new = found.keys() - mine.keys() if "values" in data else ()
    missing = {k: nest.owners[k.rpartition("/")[0]] for k in new if k.rpartition("/")[0] in nest.owners}
    if wrong := sorted((found.keys() ^ mine.keys()) - missing.keys()):
        raise RemoteError(f"the checkpoint has other tensors: {', '.join(wrong[:5])}{' ...' if len(wrong) > 5 else ''}")
    for k, (t, put) in mine.items():
        v = found[k]
        if isinstance(t, torch.Tensor) is not isinstance(v, torch.Tensor):
            raise RemoteError(f"{k} is a tensor here, or in the checkpoint, and not in the other")
        if isinstance(t, torch.Tensor) and (t.shape != v.shape or t.dtype is not v.dtype):
            raise RemoteError(f"{k} is {t.dtype} {tuple(t.shape)}, and {v.dtype} {tuple(v.shape)} in the checkpoint")
        if not isinstance(t, torch.Tensor) and put is None and t != v:
            raise RemoteError(f"{k} is {t!r}, in a tuple, and {v!r} in the checkpoint")
    with torch.no_grad():
        for k, (t, put) in mine.items():
            if isinstance(t, torch.Tensor):
                t.copy_(t.mesh.placed(found[k], t.placement) if isinstance(t, RemoteTensor) else found[k])
            elif put is not None:
                put(found[k])
        for k, (owner, p) in missing.items():
            owner[k.rpartition("/")[2]] = beside(p, found[k]) if k in data["remote"] else found[k]


def beside(p: torch.Tensor | None, v: torch.Tensor) -> torch.Tensor:
    """A tensor of the state of a parameter, placed as that is; one of other sizes: whole, where the parameter is."""
    if not isinstance(p, RemoteTensor):
        return v
    return p.mesh.placed(v, p.placement if v.shape == p.shape or isinstance(p.placement, OnWorker) else Replicate())
