"""Versions that the program sets: `torch.autograd._unsafe_preserve_version_counter`."""

from __future__ import annotations

from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.traced import TracedTensor, tensors_of
from pliant.interpret.lookasides import lookaside
from pliant.interpret.state import Break, vm, whole_loops
from pliant.interpret.tape import version


@lookaside(torch._C._autograd._unsafe_set_version_counter)  # type: ignore[attr-defined]
def l_set_versions(args: tuple, kw: dict) -> None:
    """Another version, which `_unsafe_preserve_version_counter` gives back, for tensors that the program has made, and with them for their
    views, with which they have one counter: on proxies as in eager."""
    tensors, versions = args if len(args) == 2 and not kw else ((), ())
    if type(tensors) is not tuple or type(versions) is not tuple or len(tensors) != len(versions) or not tensors or not whole_loops():
        raise Break("PL0033", "versions are set", clean=True)
    of = {t.storage_id: t for t in tensors if type(t) is TracedTensor}
    known = {id(x) for x in vm.trace.inputs} | set(vm.world.data_views)
    for t, v in zip(tensors, versions, strict=True):
        if type(t) is not TracedTensor or type(v) is not int or v < 0 or id(t) in known or vm.exploring or vm.rehearsing:
            raise Break("PL0033", "the version of a tensor from before the graph is set", clean=True)
        version(t)  # raises Break where it is not known
    memory = {x.storage_id for x in vm.trace.inputs} | vm.trace.data_memory
    if len(of) != len(tensors) or not memory.isdisjoint(of):
        raise Break("PL0033", "the version of a tensor that others share memory with is set", clean=True)
    same = [x for op in vm.trace.ops for x in tensors_of([op.outs]) if x.storage_id in of and x is not of[x.storage_id]]
    before, after = ORIGINAL._version.__get__, dict(zip(of, versions, strict=True))
    if any([before(x) != before(of[x.storage_id]) for x in same]):
        raise Break("PL0033", "the version of a tensor is set, with which others share memory and no version", clean=True)
    old = {memory: before(t) for memory, t in of.items()}
    put(of, after)
    if any([before(x) != after[x.storage_id] for x in same]):
        put(of, old)
        raise Break("PL0033", "the version of a tensor is set, with which others share memory and no version", clean=True)


def put(tensors: dict[int, TracedTensor], versions: dict[int, int]) -> None:
    with torch._C._DisableTorchDispatch():
        torch._C._autograd._unsafe_set_version_counter(tuple(tensors.values()), tuple(versions.values()))  # type: ignore[attr-defined]


__all__ = ["l_set_versions"]
