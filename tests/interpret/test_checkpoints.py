"""What checkpoints refuse, in the forward part or in the backward part, and what their policies are told."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.utils.checkpoint as cp

from tests.helpers import compiled

W = torch.linspace(-1, 1, 9).reshape(3, 3)
SAVE, AGAIN = cp.CheckpointPolicy.MUST_SAVE, cp.CheckpointPolicy.PREFER_RECOMPUTE


def block(x):
    return (x.sin() @ W).cos().exp()


def written(x):
    return x.sin().cos().mul_(2).exp()


def reshaped(x):
    return (x[0] @ W).tanh()  # PyTorch changes the product's shape in place


def detached(x):
    return x.sin().detach() * x.cos()


def saves(op):
    return lambda ctx, func, *args, **kwargs: SAVE if func is op else AGAIN


def larger(ctx, func, *args, **kwargs):
    return SAVE if ctx.op_output.numel() > 4 else AGAIN


def unforeseen(ctx, func, *args, **kwargs):
    if func is torch.ops.aten.detach.default:
        raise ValueError("policies are not told of it")
    return AGAIN


def raising(ctx, func, *args, **kwargs):
    raise ValueError("policies may raise")


def chosen(*args, **kwargs):
    return {"context_fn": functools.partial(cp.create_selective_checkpoint_contexts, *args, **kwargs)}


ATEN = torch.ops.aten
CASES = {
    "a check that there is not": (block, {"determinism_check": "most"}),
    "a check of another type": (block, {"determinism_check": None}),
    "no check": (block, {"determinism_check": "none", "early_stop": False, "debug": False}),
    "flags of other types": (block, {"early_stop": 0, "preserve_rng_state": "yes", "debug": ""}),
    "debug with contexts": (block, {"debug": True, **chosen([])}),
    "reentrant with debug": (block, {"debug": True, "use_reentrant": True}),
    "reentrant with contexts": (block, {"use_reentrant": True, **chosen([])}),
    "reentrant with a check": (block, {"determinism_check": "most", "use_reentrant": True}),
    "a list": (block, chosen([ATEN.mm.default])),
    "a list of others": (block, chosen([torch.mm])),
    "a policy": (block, chosen(saves(ATEN.cos.default))),
    "a policy that looks at results": (block, chosen(larger)),
    "a policy that raises": (block, chosen(raising)),
    "no policy": (block, chosen(7)),
    "no policy at all": (block, chosen()),
    "another keyword": (block, chosen([], nonsense=1)),
    "kept and written to": (written, chosen(saves(ATEN.cos.default))),
    "kept and written to, by a list": (written, chosen([ATEN.cos.default])),
    "kept and written to, allowed": (written, chosen([ATEN.cos.default], allow_cache_entry_mutation=True)),
    "written to, another kept": (written, chosen(saves(ATEN.sin.default))),
    "kept and reshaped": (reshaped, chosen(saves(ATEN.mm.default))),
    "kept and reshaped, by a list": (reshaped, chosen([ATEN.mm.default])),
    "reshaped, another kept": (reshaped, chosen(saves(ATEN.tanh.default))),
    "not told of": (detached, chosen(unforeseen)),
}


def outcome(f, x):
    try:
        y = f(x)
    except (TypeError, ValueError, RuntimeError) as e:
        return "forward", type(e), str(e)
    try:
        y.sum().backward()
    except (TypeError, ValueError, RuntimeError) as e:
        return "backward", type(e), str(e)
    return y.detach(), x.grad


def as_eager(f):
    c = compiled(f)
    for n in (3, 2, 3):
        want, got = (outcome(g, torch.arange(n * 3.0).reshape(n, 3).requires_grad_()) for g in (f, c))
        if isinstance(want[0], str):
            assert got == want
        else:
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("name", CASES)
def test_as_eager(name):
    fn, options = CASES[name]
    options = {"use_reentrant": False, **options}
    as_eager(lambda x: cp.checkpoint(fn, x, **options))


def test_debugging_that_was_turned_on_around_it():
    options = {"use_reentrant": False, **chosen([])}

    def inside(x):
        with cp.set_checkpoint_debug_enabled(True):
            return cp.checkpoint(block, x, **options)

    def plain(x):
        return cp.checkpoint(block, x, **options)

    as_eager(inside)
    c = compiled(plain)
    x = torch.ones(3, 3, requires_grad=True)
    c(x)
    with cp.set_checkpoint_debug_enabled(True), pytest.raises(ValueError, match="incompatible"):
        c(x)


def test_without_gradients_no_policy_is_asked():
    asked = []

    def policy(ctx, func, *args, **kwargs):
        asked.append(func)
        return AGAIN

    options = {"use_reentrant": False, **chosen(policy)}
    c = compiled(lambda x: cp.checkpoint(block, x, **options))
    with torch.no_grad():
        torch.testing.assert_close(c(torch.ones(3, 3)), block(torch.ones(3, 3)))
    assert not asked
