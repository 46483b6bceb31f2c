"""Machine code in memory without LLVM's linker, and with it."""

from __future__ import annotations

import ctypes

import pytest

from pliant import native
from pliant.codegen.cpu import compile as cpu
from pliant.codegen.cpu import image, linker, machine

CALLS = """
declare double @cbrt(double)
declare i64 @given(i64)
define i64 @f(i64 %x) {
  %d = sitofp i64 %x to double
  %r = call double @cbrt(double %d)
  %i = fptosi double %r to i64
  %g = call i64 @given(i64 %i)
  %h = call i64 @h(i64 %g)
  ret i64 %h
}
declare i64 @h(i64)
"""
CALLED = """
@table = private constant [4 x i64] [i64 3, i64 5, i64 7, i64 11]
define i64 @h(i64 %x) {
  %k = and i64 %x, 3
  %at = getelementptr [4 x i64], ptr @table, i64 0, i64 %k
  %v = load i64, ptr %at
  ret i64 %v
}
"""
VARIABLE = """
@count = internal global i64 5
define i64 @f(i64 %x) {
  %v = load i64, ptr @count
  %s = add i64 %v, %x
  store i64 %s, ptr @count
  ret i64 %s
}
"""
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


@pytest.mark.parametrize("link", [linker.link, linker.by_llvm])
def test_objects_call_each_other_and_what_is_outside(link):
    given = FUNCTION(lambda x: x + 1)
    objects = cpu.emit_objects([CALLS, CALLED], machine.current())
    code = link(objects, ["f", "h"], {"given": ctypes.cast(given, ctypes.c_void_p).value})
    f, h = map(FUNCTION, code.addresses)
    assert [f(x**3) for x in range(6)] == [[3, 5, 7, 11][(x + 1) & 3] for x in range(6)]
    assert [h(k) for k in range(4)] == [3, 5, 7, 11]


def test_code_with_variables_is_linked_by_llvm():
    objects = cpu.emit_objects([VARIABLE], machine.current())
    code = linker.link(objects, ["f"], {})
    assert type(code.held) is not native.MachineCode
    f = FUNCTION(code.addresses[0])
    assert [f(1), f(10)] == [6, 16]


def test_code_leaves_memory_with_its_object():
    """What is mapped stays the same however often code is put into memory and dropped."""
    made = image.link(cpu.emit_objects([CALLED], machine.current()), ["h"])
    before = mapped()
    for _ in range(200):
        assert FUNCTION(native.MachineCode(made.code, ()).address + made.exports["h"])
    assert mapped() - before < 20
    held = [native.MachineCode(made.code, ()) for _ in range(5)]
    assert len({code.address for code in held}) == 5


def mapped() -> int:
    with open("/proc/self/maps") as file:
        return sum("r-xp" in line for line in file)


def test_machine_code_is_whole_pages_and_knows_its_imports():
    for code in (b"", b"\xc3", bytes(4097)):
        with pytest.raises(ValueError, match="whole pages"):
            native.MachineCode(code, ())
    with pytest.raises(ValueError, match="address 0"):
        native.MachineCode(bytes(4096), (0,))
    with pytest.raises(TypeError):
        native.MachineCode(bytes(4096), ("memcpy",))


def test_what_nobody_has_is_an_error():
    with pytest.raises(RuntimeError, match="symbols"):
        linker.link(cpu.emit_objects([CALLS, CALLED], machine.current()), ["f"], {})
