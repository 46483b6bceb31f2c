"""Interpreted generators: a suspended frame behind the generator protocol.

C code (`sum(gen)`, `list(gen)`, `zip(gen, …)`) may drive one, so it is a real iterator object.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from pliant.bytecode import kinds as K
from pliant.bytecode.version import CLOSE_GIVES_A_VALUE, INTRINSICS, THROW_LEAVES_BY_SEND
from pliant.interpret import tracebacks
from pliant.interpret.attributes import not_yet
from pliant.interpret.capture import UNSET
from pliant.interpret.lifetimes import CODE
from pliant.interpret.state import Break, Frame, Restart, vm
from pliant.interpret.type_names import type_name

ALONE = 2
"""What `sys.getrefcount` says of what one variable or attribute alone holds."""


class Left(NamedTuple):
    """The call of a generator function that is not interpreted: nothing has run yet, and the graph breaks where it would."""

    fn: Any
    args: tuple
    kwargs: dict
    code: str
    reason: str


class Generator:
    """What calling an interpreted generator function returns; the program sees `types.GeneratorType`."""

    __slots__ = ("done", "exc", "frame", "left", "names", "reader", "running", "started", "world", "__weakref__")

    def __init__(self, frame: Frame, left: Left | None = None) -> None:
        self.frame = frame
        self.left = left
        fn, code = frame.func, frame.code
        self.names = (code.co_name, code.co_qualname) if fn is None else (fn.__name__, fn.__qualname__)
        if self.names != (code.co_name, code.co_qualname):  # `functools.wraps` gives a function another name, which its generators have
            vm.getattr(fn, "__name__")
            vm.getattr(fn, "__qualname__")
        frame.parent = None  # whoever asks for the next item; not its maker, which may hold it
        self.started = False
        self.done = False
        self.running = False
        self.exc: BaseException | None = None
        self.reader: Callable | None = None  # what hands an item on to the C code that drives it and looks into what it gets
        self.world = vm.world

    def __del__(self) -> None:
        """A generator that nobody can reach any more is closed: its `finally` blocks run, as in CPython."""
        if vm.active and vm.world is self.world and not self.running and self.waits():
            try:
                self.close()
            except Restart as e:
                vm.pending = e
            except Break as e:
                vm.pending = Break(CODE, f"the end of a generator, in which: {e.reason}")
            except BaseException as e:
                if vm.internal_error(e):
                    raise
                vm.pending = Break(CODE, f"the end of a generator, which raises {type(e).__name__}")

    def over(self) -> None:
        """It is done: its frame lets go of its locals, unless somebody shows it."""
        if sys.getrefcount(self.frame) <= ALONE:
            self.frame.ends()

    def waits(self) -> bool:
        """Whether code of the program runs at its end."""
        return self.started and not self.done and bool(self.frame.decoded.table)

    def __iter__(self) -> Generator:
        return self

    def __next__(self) -> Any:
        item = self.send(None)
        return item if self.reader is None else self.reader(item)

    def send(self, value: Any) -> Any:
        if self.running:
            raise ValueError("generator already executing")
        if self.done:
            raise StopIteration
        f = self.frame
        if self.started:
            f.stack.append(value)
        else:
            if value is not None:
                raise TypeError("can't send non-None value to a just-started generator")
            if self.left is not None:
                raise Break(self.left.code, self.left.reason, clean=True)
            f.stack.append(None)
            self.started = True
        del f
        return self._go()

    def _go(self) -> Any:
        f = self.frame
        f.yielded = False
        f.parent = vm.frame
        f.outer_site = UNSET
        saved, vm.exc = vm.exc, self.exc if self.exc is not None else vm.exc
        self.running = True
        vm.depth += 1
        try:
            r = vm.run(f)
        except (Break, Restart):
            raise
        except StopIteration as e:
            self.done = True
            tracebacks.caught(e)
            raise RuntimeError("generator raised StopIteration") from e
        except BaseException:
            self.done = True
            raise
        finally:
            f.parent = None  # the caller may hold this generator: a cycle
            vm.depth -= 1
            self.running = False
            self.exc = vm.exc if f.handling else None
            vm.exc = saved
        if f.yielded:
            return r
        self.done = True
        del f
        self.over()
        raise StopIteration(r) if r is not None else StopIteration

    def throw(self, *given: Any) -> Any:
        if self.running:
            raise ValueError("generator already executing")
        e = None
        try:
            inner = self.delegate()
            out = None if inner is None else self.handed_on(inner, *given)
            if type(out) is tuple:
                return out[0]
            if out is not None:
                return self._raised(out)
            e, behind = thrown(*given)
            if self.started and not self.done:
                return self._thrown(e, self.exc, behind)
            tracebacks.about_to_raise(e, again=True)
            tracebacks.goes_on(e, behind)
            if self.done:
                raise e
            self.done = True  # it is raised at the beginning of the frame, which nothing handles there
            tracebacks.passes_at(e, self.frame.code, 0)
            if not isinstance(e, StopIteration) or INTRINSICS[1] >= 0:  # since 3.12 an instruction makes it another, not reached here
                raise e
            tracebacks.caught(e)
            error = RuntimeError("generator raised StopIteration")
            error.__cause__ = error.__context__ = e
            raise error
        finally:
            del e, given

    def handed_on(self, inner: Any, typ: Any, *more: Any) -> Any:
        """What the inner iterator makes of what is thrown: `(item,)`, the exception that came out, or None: it is thrown here."""
        if issubclass(typ if isinstance(typ, type) else type(typ), GeneratorExit):
            out = self.inside(close, inner)
            return out if isinstance(out, BaseException) else None
        meth = inner.throw if type(inner) is Generator else attribute(inner, "throw")
        if meth is None:
            return None
        return self.inside(meth, typ, *more)

    def __repr__(self) -> str:
        """C code makes a text of it: its address would be that of the proxy."""
        if not vm.active:
            return object.__repr__(self)
        vm.pending = Break("PL0008", "the text of a generator that is made here")
        raise vm.pending

    def delegate(self) -> Any:
        """What this generator, which is suspended, has handed itself to by `yield from`."""
        f = self.frame
        if self.done or not self.started:
            return None
        handler, kind = f.ins[f.pc]
        return f.stack[-1] if f.decoded.kinds[f.pc] is K.RESUME and kind & 3 >= 2 else None

    def inside(self, fn: Any, *args: Any) -> Any:
        """`(fn(*args),)`, or the exception that it raised, while this generator runs."""
        self.running = True
        try:
            return (fn(*args) if fn is close or getattr(fn, "__func__", None) is Generator.throw else vm.call(fn, args, {}),)
        except (Break, Restart):
            raise
        except BaseException as e:
            if vm.internal_error(e):
                raise
            return e
        finally:
            self.running = False

    def _raised(self, e: BaseException) -> Any:
        """An exception came out of the inner iterator: of a StopIteration, the value is that of the delegation."""
        f = self.frame
        if isinstance(e, StopIteration) and THROW_LEAVES_BY_SEND:
            f.stack[-1] = e.value
            f.pc = f.ins[f.pc - 2][1]
            return self._go()
        saved, vm.exc = vm.exc, self.exc
        try:
            if vm.exc is not None and vm.exc is not e:
                tracebacks.unchain(e)
                e.__context__ = vm.exc
        finally:
            vm.exc = saved
        return self._on(e)

    def _thrown(self, e: BaseException, handled: BaseException | None, behind: Any = None) -> Any:
        """Raise `e` where the frame stands, while `handled` is what is handled; its traceback goes on with what is `behind`."""
        saved, vm.exc = vm.exc, handled
        try:
            tracebacks.about_to_raise(e)
            tracebacks.goes_on(e, behind)
            tracebacks.arrived(e)
        finally:
            vm.exc = saved
        return self._on(e)

    def _on(self, e: BaseException) -> Any:
        f = self.frame
        tracebacks.passes(e, f)
        f.stack.append(None)  # what a `send` would have given
        try:
            if not vm.unwind(f, e):
                self.done = True
                raise e
            tracebacks.caught(e)
        finally:
            del e
        return self._go()

    def close(self) -> Any:
        if self.running:
            raise ValueError("generator already executing")
        if self.done or not self.started:
            self.done = True
            return None
        try:
            inner = self.delegate()
            out = self.inside(close, inner) if inner is not None else None
            if isinstance(out, BaseException):
                self._raised(out)
            else:
                self._thrown(GeneratorExit(), vm.exc if vm.exc is not None else self.exc)
        except (GeneratorExit, StopIteration) as e:
            e.__traceback__ = None  # the frame that raised it holds it: a cycle, and every frame of the interpreter with it
            return e.value if CLOSE_GIVES_A_VALUE and isinstance(e, StopIteration) else None
        finally:
            out = None  # its traceback holds this frame
            if self.done:
                self.over()
        raise RuntimeError("generator ignored GeneratorExit")


def out_of_turn(f: Frame) -> bool:
    """Whether a generator would not end in its turn, were the captured frame to return: objects that come from outside end before it, and a
    cell, which functions of this frame may share, keeps it."""
    waiting = [v for v in f.fast if (type(v) is Generator or type(v) is types.CellType) and ends_late(v)]
    return bool(waiting) and (bool(f.held) or any([type(v) is types.CellType for v in waiting]))


def ends_late(v: Any) -> bool:
    if type(v) is types.CellType:
        try:
            v = v.cell_contents if id(v) not in vm.world.cells else None
        except ValueError:
            return False
    return type(v) is Generator and v.waits()


def thrown(typ: Any, value: Any = None, tb: Any = None) -> tuple[BaseException, Any]:
    """The exception that the arguments of `throw` stand for, and its traceback; what goes wrong while it is made is thrown in its place."""
    if tb is not None and not vm.isinstance(tb, types.TracebackType):
        raise TypeError("throw() third argument must be a traceback object")
    if issubclass(type(typ), type) and issubclass(typ, BaseException):
        if isinstance(value, BaseException) and issubclass(type(value), typ):
            return value, tb
        e = made(typ, value)
        return e, e.__traceback__ or tb
    if not issubclass(type(typ), BaseException):
        raise TypeError(f"exceptions must be classes or instances deriving from BaseException, not {type_name(vm.type_of(typ))}")
    if value is not None:
        raise TypeError("instance exception may not have a separate value")
    return typ, typ.__traceback__ if tb is None else tb


def made(cls: type, value: Any) -> BaseException:
    """An exception of this class, as C code makes it of one value."""
    not_yet()
    try:
        e = vm.call(cls, () if value is None else tuple(value) if isinstance(value, tuple) else (value,), {})
        if not isinstance(e, BaseException):
            raise TypeError(f"calling {cls!r} should have returned an instance of BaseException, not {type_name(vm.type_of(e))}")
        return e
    except (Break, Restart):
        raise
    except BaseException as error:
        if vm.internal_error(error) or tracebacks.from_outside(error):
            raise
        known = id(error) in vm.world.passing
        tracebacks.caught(error)
        return error if known else error.with_traceback(None)


def attribute(o: Any, name: str) -> Any:
    try:
        return vm.getattr(o, name)
    except AttributeError:
        return None


def close(inner: Any) -> None:
    """What becomes of an iterator to which a generator had handed itself, and which ends."""
    if type(inner) is Generator:
        inner.close()
        return
    meth = attribute(inner, "close")
    if meth is not None:
        vm.call(meth, (), {})


Generator.__name__ = Generator.__qualname__ = "generator"  # C names it in words, which the program may see
TAKES = {"send": (1,), "throw": (1, 2, 3), "close": (0,), "__next__": (0,), "__iter__": (0,)}
METHODS = {getattr(Generator, name) for name in TAKES}
"""The proxy's methods: outside of a capture they are those of `types.GeneratorType`."""


def called_generator(name: str, args: tuple, kw: dict) -> Any:
    """A method of the proxy is called; a wrong call raises what that of a real generator raises."""
    if kw or len(args) - 1 not in TAKES[name]:
        getattr((_ for _ in ()), name)(*args[1:], **kw)
    return args[0].send(None) if name == "__next__" else getattr(Generator, name)(*args)
