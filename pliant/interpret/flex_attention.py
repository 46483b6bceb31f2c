"""`flex_attention` and its block masks, captured as the operators that they come to (`in_torch.py`), with scores as a tensor.

Masks and changes of scores are functions of positions; `vmap` gives them all positions at once. What PyTorch refuses is left to PyTorch.
"""

from __future__ import annotations

from typing import Any

import torch.nn.attention.flex_attention as flex

from pliant.graph.originals import ORIGINAL, math, torch
from pliant.graph.traced import TracedTensor
from pliant.interpret import in_torch
from pliant.interpret.attributes import getattr_
from pliant.interpret.binding import bind
from pliant.interpret.calls import call, graph_call, inline
from pliant.interpret.lookasides import lookaside
from pliant.interpret.state import Break, vm

NAMES = ("query", "key", "value", "score_mod", "block_mask", "scale", "enable_gqa", "return_lse", "kernel_options", "return_aux")
DEFAULTS = (None, None, None, None, None, None, False, False, None, None)


def refused(why: str) -> Break:
    return Break("PL0030", f"flex_attention {why}", clean=True)


@lookaside(flex.flex_attention)
def l_flex_attention(args: tuple, kw: dict) -> Any:
    given = dict(zip(NAMES, DEFAULTS)) | dict(zip(NAMES, args)) | kw
    q, k, v = tensors = [given[name] for name in NAMES[:3]]
    mask, aux, options = given["block_mask"], given["return_aux"], given["kernel_options"]
    if not all([type(t) is TracedTensor and len(t.sizes) == 4 and ORIGINAL.is_floating_point(t) for t in tensors]):
        raise refused("of other things than tensors of four dims")
    if any([t.pytype not in (torch.Tensor, torch.nn.Parameter) for t in tensors]):
        raise refused("of tensors of a class of the program's")
    if len({(t.dtype, t.device) for t in tensors}) > 1 or torch.is_autocast_enabled(q.device.type):
        raise refused("of tensors of several dtypes, or under autocast")
    if q.device.type == "cpu" and (any([t.requires_grad for t in tensors]) or (aux is not None and call(getattr, (aux, "max_scores"), {}))):
        raise refused("with gradients or maxima on a CPU, which PyTorch refuses")
    if options is not None and "BACKEND" in options or given["return_lse"] and aux is not None:
        raise refused("with a backend of its own")
    heads = q.sizes[1] if not given["enable_gqa"] else vm_mod(q.sizes[1], k.sizes[1])
    if not vm.truth(heads == (k.sizes[1] if not given["enable_gqa"] else 0)) or not vm.truth(q.sizes[3] == k.sizes[3]):
        raise refused("with numbers of heads or features that do not fit")
    if mask is None and not vm.truth(q.sizes[0] == k.sizes[0]):
        raise refused("with batches that do not fit")
    mod = None
    if mask is not None:
        mod = masking(mask, q, k)
    out, sums, maxima = inline(in_torch.attention, (q, k, v, given["score_mod"], mod, given["scale"]), {})
    ln2 = math.log(2.0)
    wanted = [name for name in ("lse", "max_scores") if aux is not None and call(getattr, (aux, name), {})]
    found = {"lse": sums, "max_scores": maxima}
    shown = {name: graph_call(torch.mul, (found[name], ln2), {}) for name in wanted}
    if aux is not None:
        return out, call(flex.AuxOutput, (), {"lse": shown.get("lse"), "max_scores": shown.get("max_scores")})
    if given["return_lse"]:
        call(flex._warn_once, ("deprecated_return_lse", LSE), {"category": FutureWarning})
        return out, graph_call(torch.mul, (sums, ln2), {})
    return out


LSE = "return_lse is deprecated and will be removed in v2.10. Please use return_aux=AuxRequest(lse=True) instead."


def vm_mod(a: Any, b: Any) -> Any:
    return a % b


def masking(mask: Any, q: Any, k: Any) -> Any:
    """The `mask_mod` of a block mask that fits."""
    mod = getattr_(mask, "mask_mod")
    if mod is flex._sliced_mask_mod_error:
        raise refused("with a block mask that was sliced")
    if not vm.truth(q.sizes[0] == k.sizes[0]):
        raise refused("with batches that do not fit")
    block = getattr_(mask, "BLOCK_SIZE")
    if all([vm.truth(n == flex._LARGE_SPARSE_BLOCK_SIZE) for n in block]):
        return mod
    lengths = getattr_(mask, "seq_lengths")
    if not vm.truth(lengths[0] == q.sizes[2]) or not vm.truth(lengths[1] == k.sizes[2]):
        raise refused("with a block mask for other lengths")
    return mod


@lookaside(flex.create_mask)
def l_create_mask(args: tuple, kw: dict) -> Any:
    located = bind(flex.create_mask, args, kw)
    mod, batch, heads, queries, keys, device = located[:6]  # type: ignore[index]
    kind = call(flex._get_mod_type, (mod,), {})
    if device is None:
        raise Break("PL0030", "create_mask without a device, which asks for the accelerator", clean=True)
    return inline(in_torch.create_mask, (mod, kind is flex._ModificationType.SCORE_MOD, batch, heads, queries, keys, device), {})
