"""The machines that kernels are printed for. One printer serves all of them; a `Machine` says what may be used.

`PLIANT_CPU=avx512|avx2|portable` forces one, for tests and for finding out what a user saw.
"""

from __future__ import annotations

import functools
import os
import platform
from dataclasses import dataclass
from typing import Any

from pliant.codegen.cpu.llvm import llvm
from pliant.errors import PliantError


@dataclass(frozen=True)
class Machine:
    """`vector_bits`: of a register. `masks`: masked loads and stores of every width are one instruction. `halves`: f16 conversions are.

    `fma`: fused multiply-add is one instruction. `rounds`: rounding to whole numbers is. `vnni`: adding a sum of products
    of 16-bit integers to 32-bit ones is.
    """

    name: str
    vector_bits: int
    masks: bool
    halves: bool
    fma: bool
    rounds: bool
    vnni: bool
    triple: str
    cpu: str
    features: str

    @property
    def x86(self) -> bool:
        return self.triple.startswith("x86_64")


AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma", "f16c")
AVX2 = ("avx2", "fma", "f16c", "bmi2")


@functools.cache
def prepare() -> None:
    """LLVM's tables of machines, once."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


@functools.cache
def host_features() -> dict[str, bool]:
    prepare()
    return dict(llvm.get_host_cpu_features())


def has(features: tuple[str, ...]) -> bool:
    return all(host_features().get(f, False) for f in features)


def named(name: str) -> Machine:
    """The target of that name for this host; "aarch64" is known so that its object code can be checked."""
    prepare()
    triple = llvm.get_process_triple()
    if name == "aarch64":
        return Machine(name, 128, False, True, True, True, False, "aarch64-unknown-linux-gnu", "generic", "+neon")
    if not triple.startswith("x86_64"):
        return Machine("portable", 128, False, False, False, False, False, triple, "generic", "")
    on = [f for f, there in sorted(host_features().items()) if there]
    if name == "avx512" and has(AVX512):
        features = ",".join("+" + f for f in on)
        return Machine(name, 512, True, True, True, True, has(("avx512vnni",)), triple, llvm.get_host_cpu_name(), features)
    if name == "avx2" and has(AVX2):
        kept = [f for f in on if not f.startswith(("avx512", "avx10", "amx"))]
        return Machine(name, 256, False, True, True, True, False, triple, "x86-64-v3", ",".join("+" + f for f in kept))
    if name == "portable":
        return Machine(name, 128, False, False, False, False, False, triple, "x86-64", "")
    raise PliantError(f"PLIANT_CPU={name}: this machine cannot run it; choose one of avx512, avx2, portable that it has, or unset it")


def best() -> str:
    if has(AVX512):
        return "avx512"
    return "avx2" if has(AVX2) else "portable"


FAMILY = (b"vendor_id", b"cpu family", b"model", b"stepping", b"flags")


@functools.cache
def kind() -> tuple:
    """What the system says of the processor, which is known without LLVM; where it says nothing, what LLVM does."""
    try:
        with open("/proc/cpuinfo", "rb", buffering=0) as file:
            first = file.read(1 << 14).split(b"\n\n")[0]
    except OSError:
        first = b""
    told = dict(line.split(b"\t", 1) for line in first.splitlines() if b"\t" in line)
    if b"flags" in told:
        return tuple(told.get(name, b"") for name in FAMILY)
    to = named(best())
    return to.name, to.triple, to.cpu, to.features


def processor() -> tuple:
    """What code made here is for."""
    return os.environ.get("PLIANT_CPU", ""), platform.machine(), kind()


_targets: dict[str, Machine] = {}


def current() -> Machine:
    """The forced target, else the best one that this machine runs."""
    name = os.environ.get("PLIANT_CPU") or best()
    if name not in _targets:
        _targets[name] = named(name)
    return _targets[name]


def llvm_machine(target: Machine) -> Any:
    """A fresh LLVM target machine (about 0.3 ms): position independent code for the JIT, no optimization passes over the IR."""
    made = llvm.Target.from_triple(target.triple)
    return made.create_target_machine(cpu=target.cpu, features=target.features, opt=2, reloc="pic", codemodel="default", jit=True)
