"""Memory straight from libtorch: what `torch.empty` gives, and its errors."""

from __future__ import annotations

import gc

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pliant import native
from pliant.native.probe import DTYPES, facts


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_as_torch_makes_it(dtype: torch.dtype) -> None:
    for sizes in ((), (1,), (7,), (0,), (3, 0, 2), (2, 3, 4, 5), (1,) * 16, (1,) * 20):
        assert facts(native.empty_of(dtype)(*sizes)) == facts(torch.empty(sizes, dtype=dtype))


def test_memory_is_given_back() -> None:
    make = native.empty_of(torch.float32)
    t = make(4, 4)
    address = t.untyped_storage()._cdata
    t.fill_(1).requires_grad_(True)
    assert t._version == 1 and t.sum().item() == 16 and t.untyped_storage()._cdata == address
    freed = []

    class Watched(torch.Tensor):
        def __del__(self) -> None:
            freed.append(1)

    u = make(3).as_subclass(Watched)
    del u
    gc.collect()
    assert freed == [1]


def test_in_inference_mode() -> None:
    with torch.inference_mode():
        assert native.empty_of(torch.float32)(2).is_inference()
    assert not native.empty_of(torch.float32)(2).is_inference()


@pytest.mark.parametrize("sizes", [(-1,), (2, -3), (2**62,), (2**40, 2**40)], ids=str)
def test_refused_sizes(sizes: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError) as theirs:
        torch.empty(sizes)
    with pytest.raises(RuntimeError) as ours:
        native.empty_of(torch.float32)(*sizes)
    assert str(ours.value) == str(theirs.value)


def test_what_is_no_size() -> None:
    make = native.empty_of(torch.float32)
    with pytest.raises(TypeError):
        make("a")
    with pytest.raises(OverflowError):
        make(2**70)
    with pytest.raises(TypeError):
        make(n=3)


def test_modes_are_asked() -> None:
    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            calls.append(func)
            return func(*args, **(kwargs or {}))

    calls: list = []
    with Seen():
        native.empty_of(torch.float32)(2, 3)
    assert calls == [torch.ops.aten.empty.memory_format]
