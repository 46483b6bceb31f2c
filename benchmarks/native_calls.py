"""What a warm call costs before the compiled code starts: guards, argument binding, frame hook, in nanoseconds.

python -m benchmarks.native_calls
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from pliant import native
from pliant.guards import source
from pliant.guards.guard import Guard, TensorSpec
from pliant.guards.program import compile_guards


def best(call: Callable[[], Any], number: int = 20000, repeat: int = 7) -> float:
    """Nanoseconds of one call, the fastest of `repeat` rounds."""
    rounds = []
    for _ in range(repeat):
        start = time.perf_counter_ns()
        for _ in range(number):
            call()
        rounds.append((time.perf_counter_ns() - start) / number)
    return min(rounds)


def spec(t: torch.Tensor, dynamic: bool = False) -> TensorSpec:
    free = (None,) * t.ndim
    sizes, strides = (free, free) if dynamic else (tuple(t.shape), t.stride())
    return TensorSpec(type(t), t.dtype, t.device, t.requires_grad, t.ndim, sizes, strides, t)


def module_guards(module: torch.nn.Module) -> list[Guard]:
    root = source.local(0, "self")
    guards = [Guard(root, "TYPE_MATCH", type(module))]
    for name, layer in module.named_children():
        here = root.dict().key("_modules").key(name)
        guards += [Guard(here, "TYPE_MATCH", type(layer)), Guard(here.dict().key("training"), "EQ_MATCH", layer.training)]
        guards += [Guard(here.dict().key("_parameters").key(k), "TENSOR_MATCH", spec(p)) for k, p in layer.named_parameters()]
    return guards


def plain(x):
    return x


def compiled_plain(x, s0):
    return x


def main() -> None:
    empty = best(lambda: None)
    x, t = source.local(0, "x"), torch.randn(4, 5)
    symbols = {"s0": x.size(0)}
    tensor = [Guard(x, "TENSOR_MATCH", spec(t, dynamic=True))]
    state = [Guard(x, "GLOBAL_STATE", native.global_state())]
    rows: list[tuple[str, float]] = []

    def guard_row(name: str, guard: native.Guard, value: Any) -> None:
        args = (value,)
        if guard.check(args, plain) is None:
            raise AssertionError(f"{name}: {guard.explain(args, plain)}")
        rows.append((name, best(lambda: guard.check(args, plain)) - empty))

    guard_row("check: nothing", compile_guards([]), t)
    guard_row("check: global state", compile_guards(state), t)
    guard_row("check: one dynamic tensor", compile_guards(tensor, symbols), t)
    for n in (10, 100, 500):
        module = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(n // 2)])
        guard_row(f"check: module of {n} parameters", compile_guards(module_guards(module)), module)

    native.add_entry(plain.__code__, compile_guards(tensor + state, symbols, [], ["s0"]), compiled_plain)
    entry = native.EntryPoint(plain, None)
    rows.append(("call: plain function", best(lambda: plain(t)) - empty))
    rows.append(("call: entry point, one tensor", best(lambda: entry(t)) - empty))
    rows.append(("call: entry point, keyword", best(lambda: entry(x=t)) - empty))

    def through_hook() -> float:
        return best(lambda: plain(t)) - empty

    rows.append(("call: frame hook in run mode", native.call_in_mode(native.RUN, through_hook, ())))
    native.push_disabled()
    rows.append(("call: entry point, disabled", best(lambda: entry(t)) - empty))
    native.pop_disabled()
    for name, ns in rows:
        print(f"{name:34s} {ns:9.0f} ns")


if __name__ == "__main__":
    main()
