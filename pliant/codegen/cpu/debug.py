"""One kernel to look at: its schedule as text, and a dump that runs it again alone with its inputs.

With `PLIANT_KERNEL_DUMP=DIR` every kernel of the backend "native" writes a file at its first call, before it runs: the kernel, its sizes,
the memory it was given. A crash leaves the file of the kernel that crashed. `python -m pliant.codegen.cpu.debug DIR/k3.pt` runs it again:

    --checked     every access is compared with the bounds of its buffer; tells which access of which buffer left them
    --llvm --asm  print its code
    --times N     microseconds of a run, the best of N

`docs/cpu.md` tells how to read what is printed.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

from pliant import native
from pliant.codegen.cpu import compile as kernels
from pliant.codegen.cpu import machine
from pliant.codegen.cpu.schedule import Schedule, plan
from pliant.errors import PliantError
from pliant.graph.originals import ORIGINAL, torch
from pliant.lower.kernels import Launch
from pliant.lower.loops import Kernel, Node, Size


def sizes_text(sizes: tuple[Size, ...]) -> str:
    return "(" + ", ".join(map(str, sizes)) + ")"


def node_text(n: Node, names: dict[int, str]) -> str:
    args = [names[id(a)] for a in n.args]
    if n.op == "load":
        args = [f"b{n.buffer}", f"strides {sizes_text(n.strides)}", f"offset {n.offset}", *args]
    else:
        args += list(map(str, n.attrs))
    return f"{n.op}({', '.join(args)}): {n.dtype}"


def schedule_text(kernel: Kernel) -> str:
    """The kernel and how it will run on this machine: dims by their numbers, nodes in order, loops, sweeps."""
    to = machine.current()
    s = plan(kernel, to.vector_bits, to.masks)
    names = {id(n): f"%{k}" for k, n in enumerate(s.nodes)}
    typical = {d: f"{d} (typically {h})" for d, h in kernel.hints.items()}
    dims = ", ".join(f"d{k} = {typical.get(size, size)}" for k, size in enumerate(kernel.dims))
    buffers = ", ".join(f"b{k}: {b.dtype}{' written' if b.written else ''}" for k, b in enumerate(kernel.buffers))
    lines = [f"kernel {kernel.name} for {to.name}", f"  dims {dims}; the last {kernel.reduced} reduced", f"  buffers {buffers}"]
    lines += [f"  {names[id(n)]} = {node_text(n, names)}" for n in s.nodes]
    for st in s.kernel.stores:
        lines.append(f"  b{st.buffer}[strides {sizes_text(st.strides)}, offset {st.offset}] {st.mode} {names[id(st.node)]}")
    return "\n".join([*lines, *(f"  {line}" for line in loops_text(s, names))])


def loops_text(s: Schedule, names: dict[int, str]) -> list[str]:
    """The loops, outermost first, and what makes this schedule a special one."""
    vector = "none" if s.vector is None else f"d{s.vector}, {s.lanes} lanes x {s.unroll}"
    out = [f"loops: outer {[f'd{d}' for d in s.outer]}, inner {[f'd{d}' for d in s.inner]}; vector {vector}; {s.cost} ps a point"]
    marks = {
        "one body for whole vectors and tails": s.always_masked, "in order": s.serial, "threads share columns": s.columns,
        "threads share the reduction": s.split, f"tiles along d{s.tile}": s.tile is not None, "in blocks": s.blocked,
        "bf16 in pairs": s.pairs, f"in {len(s.cut.parts()) if s.cut else 1} pieces": s.cut is not None,
        f"a long chain, in {len(s.stages)} stages": bool(s.stages),
    }  # fmt: skip
    told = [mark for mark, on in marks.items() if on]
    if told:
        out.append("how: " + ", ".join(told))
    for k, sweep in enumerate(s.sweeps):
        reduces = [names[id(n)] for n in sweep.reduces]
        saves, loads = [names[id(n)] for n in sweep.saves], [names[i] for i in names if i in sweep.loads]
        out.append(f"sweep {k}: reduces {reduces}, {len(sweep.stores)} stores, keeps {saves}, takes {[names.get(i, i) for i in loads]}")
    return out


# -- dumps --


def folder() -> pathlib.Path | None:
    """Where kernels are dumped, if they are."""
    chosen = os.environ.get("PLIANT_KERNEL_DUMP")
    return pathlib.Path(chosen) if chosen else None


def memory_of(t: torch.Tensor) -> tuple[torch.Tensor, int]:
    """All elements of a tensor's storage, and where the tensor begins in it."""
    whole = torch.empty(0, dtype=t.dtype).set_(ORIGINAL.untyped_storage(t))
    return ORIGINAL.clone(whole), ORIGINAL.storage_offset(t)


def dumping(run: Callable[..., None], launch: Launch, into: pathlib.Path) -> Callable[..., None]:
    """`run`, a kernel's launcher, that writes its first arguments down before it runs."""
    done = False

    def launcher(*args: Any) -> None:
        nonlocal done
        if not done:
            done = True
            count = len(launch.kernel.buffers)
            memory = [memory_of(t) for t in args[:count]]
            into.mkdir(parents=True, exist_ok=True)
            torch.save({"kernel": launch.kernel, "memory": memory, "sizes": args[count:]}, into / f"{launch.kernel.name}.pt")
        run(*args)

    return launcher


class Dump:
    """A kernel from a dump, with its memory."""

    def __init__(self, path: pathlib.Path) -> None:
        found = torch.load(path, weights_only=False)
        self.kernel: Kernel = found["kernel"]
        self.memory: list[tuple[torch.Tensor, int]] = found["memory"]
        self.sizes: tuple[int, ...] = found["sizes"]

    def prepared(self, checked: bool = False) -> tuple[Callable[[], int], list[torch.Tensor]]:
        """Compile it. Returns what runs it and gives its code, and the buffers that it will run on."""
        code = kernels.load([self.kernel], checked=checked)
        buffers = [whole.clone() for whole, _ in self.memory]
        places = zip(buffers, self.memory, strict=True)
        slots = [ORIGINAL.data_ptr(b) + at * ORIGINAL.element_size(b) for b, (_, at) in places] + list(self.sizes)
        if checked:
            for b, (_, at) in zip(buffers, self.memory, strict=True):
                slots += [-at, ORIGINAL.numel(b) - at - 1]
        context = (ctypes.c_int64 * len(slots))(*slots)
        function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(code.addresses[0])

        def run() -> int:
            assert code is not None  # held as long as its address is
            return function(ctypes.addressof(context))

        return run, buffers

    def access(self, number: int) -> str:
        """Which access a check belongs to: loads are numbered from 1 in order of the schedule, then stores."""
        to = machine.current()
        s = plan(self.kernel, to.vector_bits, to.masks)
        loads = [n for n in s.nodes if n.op == "load"]
        if 1 <= number <= len(loads):
            return f"the load {node_text(loads[number - 1], {id(n): f'%{k}' for k, n in enumerate(s.nodes)})}"
        if number <= len(loads) + len(s.kernel.stores):
            st = s.kernel.stores[number - len(loads) - 1]
            return f"the store to b{st.buffer}, strides {sizes_text(st.strides)}, offset {st.offset}"
        return "memory for scratch rows" if number == native.OUT_OF_MEMORY else "an index that is out of range"


def load(path: str | pathlib.Path) -> Dump:
    """Read a dump. Raises PliantError for a file that is none."""
    try:
        return Dump(pathlib.Path(path))
    except (OSError, RuntimeError, KeyError, TypeError) as e:
        raise PliantError(f"{path}: not a kernel dump ({e}); PLIANT_KERNEL_DUMP=DIR writes them") from e


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pliant.codegen.cpu.debug", description=__doc__.splitlines()[0])
    parser.add_argument("dump")
    for flag in ("--checked", "--llvm", "--asm"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--times", type=int, default=0)
    chosen = parser.parse_args(words)
    dump = load(chosen.dump)
    print(schedule_text(dump.kernel))
    print(f"  sizes {dict(zip(dump.kernel.sizes, dump.sizes, strict=True))}")
    if chosen.llvm:
        print(kernels.kernel_text(dump.kernel, checked=chosen.checked))
    if chosen.asm:
        print(kernels.assembly([dump.kernel], checked=chosen.checked))
    run, buffers = dump.prepared(chosen.checked)
    status = run()
    if status:
        print(f"it stopped at check {status}: {dump.access(status)}")
    for k, (b, buffer) in enumerate(zip(buffers, dump.kernel.buffers, strict=True)):
        if buffer.written:
            print(f"b{k} after it ran: {b}")
    best = float("inf")
    for _ in range(chosen.times):
        begun = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begun)
    if chosen.times:
        print(f"{best * 1e6:.2f} us")
    return int(status != 0)


if __name__ == "__main__":
    raise SystemExit(main())
