"""How exceptions that the program has made are made again."""

from __future__ import annotations

from pliant.interpret.immutable import HEAPTYPE
from pliant.interpret.runtime import chain
from pliant.jit import support
from pliant.jit.reconstruct import Builder, Row, class_of


def exception_empty(b: Builder, e: BaseException) -> str:
    base = next(c for c in type(e).__mro__ if not c.__flags__ & HEAPTYPE)
    if issubclass(base, BaseExceptionGroup):  # a class of Python's may take, and keep as `args`, more than it hands on
        given: tuple = (e.message, list(e.exceptions))  # type: ignore[attr-defined]
    else:
        given = base.__reduce__(e)[1]  # what OSError hides from `args`
    return f"{b.constant(support.new_exception)}({class_of(b, e)}, {b.constant(base)}, {b.tuple(given)}, {b.tuple(e.args)})"


def exception_fill(b: Builder, e: BaseException, name: str) -> None:
    if isinstance(e, ImportError):
        b.emit(f"{name}.name, {name}.path = {b.tuple((e.name, e.path))}")
    if isinstance(e, (NameError, AttributeError)):
        b.emit(f"{name}.name = {b.ref(e.name)}")
    if isinstance(e, AttributeError) and e.obj is not None:
        b.emit(f"{name}.obj = {b.ref(e.obj)}")
    if e.__traceback__ is not None:
        b.emit(f"{name}.__traceback__ = {b.ref(e.__traceback__)}")
    if e.__cause__ is not None:
        b.emit(f"{name}.__cause__ = {b.ref(e.__cause__)}")
    if e.__context__ is not None:
        b.emit(f"{name}.__context__ = {b.ref(e.__context__)}")
    elif id(e) in b.world.unchained:
        b.emit(f"{b.constant(chain)}({name})")
    b.emit(f"{name}.__suppress_context__ = {e.__suppress_context__}")
    b.attributes(e, name)


EXCEPTION = Row(None, exception_empty, exception_fill)
