"""Interpreted generators: a suspended frame behind the generator protocol.

C code (`sum(gen)`, `list(gen)`, `zip(gen, …)`) may drive one, so it is a real iterator object.
"""

from __future__ import annotations

from typing import Any

from pliant.interpret import tracebacks
from pliant.interpret.capture import UNSET
from pliant.interpret.lifetimes import CODE
from pliant.interpret.state import Break, Frame, Restart, vm


class Generator:
    """What calling an interpreted generator function returns; the program sees `types.GeneratorType`."""

    __slots__ = ("done", "exc", "frame", "running", "started", "world", "__weakref__")

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        frame.parent = None  # whoever asks for the next item; not its maker, which may hold it
        self.started = False
        self.done = False
        self.running = False
        self.exc: BaseException | None = None
        self.world = vm.world

    def __del__(self) -> None:
        """A generator that nobody can reach any more is closed: its `finally` blocks run, as in CPython."""
        if vm.active and vm.world is self.world and self.started and not self.done and not self.running and self.frame.decoded.table:
            try:
                self.close()
            except Restart as e:
                vm.pending = e
            except Break as e:
                vm.pending = Break(CODE, f"the end of a generator, in which: {e.reason}")

    def __iter__(self) -> Generator:
        return self

    def __next__(self) -> Any:
        return self.send(None)

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
            f.stack.append(None)
            self.started = True
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
        raise StopIteration(r) if r is not None else StopIteration

    def throw(self, typ: Any, value: Any = None, tb: Any = None) -> Any:
        e = typ
        if isinstance(typ, type):
            e = value if isinstance(value, typ) else typ() if value is None else typ(value)
        try:
            if self.done:
                raise e
            if not self.started:
                self.done = True
                raise e
            f = self.frame
            tracebacks.about_to_raise(e)
            tracebacks.passes(e, f)
            if not vm.unwind(f, e):
                self.done = True
                raise e
            tracebacks.caught(e)
        finally:
            del e, typ, value
        return self._go()

    def close(self) -> None:
        if self.done or not self.started:
            self.done = True
            return
        try:
            self.throw(GeneratorExit())
        except (GeneratorExit, StopIteration) as e:
            e.__traceback__ = None  # the frame that raised it holds it: a cycle, and every frame of the interpreter with it
            return
        raise RuntimeError("generator ignored GeneratorExit")

    @property
    def gi_frame(self) -> None:
        raise Break("PL0008", "the frame of a generator")


METHODS = {getattr(Generator, name) for name in ("send", "throw", "close", "__next__", "__iter__")}
"""The stand-in's methods: outside of a capture they are those of `types.GeneratorType`."""
