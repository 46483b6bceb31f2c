"""Exceptions and the clauses that handle them: what matches, what is left, what is raised in the end, and by which traceback."""

from __future__ import annotations

import sys
import traceback

import pytest

from tests.programs.registry import cases, program, t


class Anything(type):
    """Says of every object that it is an instance; `except` does not ask."""

    def __instancecheck__(cls, o):
        return True


class Unrelated(Exception, metaclass=Anything):
    pass


class Coded(ExceptionGroup):
    """A group that takes more than it hands on."""

    def __new__(cls, message, excs, code):
        made = super().__new__(cls, message, excs)
        made.code = code
        return made

    def derive(self, excs):
        return Coded(self.message, excs, self.code)


def one(x):
    return x, ExceptionGroup("one", [ValueError(1)])


def other(x):
    return x, ExceptionGroup("other", [TypeError(2)])


def both(x):
    return x, ExceptionGroup("both", [TypeError(2), ExceptionGroup("inner", [ValueError(3), OSError(4)])])


GROUPS = [one(t(2)), other(t(2)), both(t(2)), one(t(2))]


@program(*GROUPS)
def group_from_outside(x, group):
    seen = []
    try:
        try:
            raise group
        except* ValueError as e:
            seen.append(repr(e))
        except* TypeError as e:
            seen.append(repr(e))
    except BaseException as e:
        seen.append(("left", repr(e)))
    return x + 1, seen


@program(*GROUPS)
def handled_is_the_part(x, group):
    seen = []
    try:
        try:
            raise group
        except* ValueError:
            seen.append(repr(sys.exception()))
    except ExceptionGroup as e:
        seen.append(repr(e))
    return x + 1, seen


@program((t(2),))
def naked(x):
    try:
        raise ValueError("v")
    except* ValueError as e:
        return_ = repr(e), repr(sys.exception())
    return x + 1, return_


@program((t(2),))
def raised_and_raised_again(x):
    try:
        try:
            raise ExceptionGroup("g", [TypeError(1), ValueError(2), OSError(3)])
        except* TypeError as e:
            raise SyntaxError(4) from e
        except* ValueError:
            raise
    except ExceptionGroup as e:
        return x + 1, repr(e), repr(e.exceptions[0].__cause__), repr(e.exceptions[0].__context__)


@program((t(2),))
def raised_by_name(x):
    try:
        try:
            raise ExceptionGroup("g", [TypeError(1), ValueError(2)])
        except* ValueError as e:
            raise e
    except ExceptionGroup as e:
        return x + 1, repr(e)


@program((t(2),))
def base_exceptions(x):
    try:
        try:
            raise BaseExceptionGroup("g", [KeyboardInterrupt(1), ValueError(2)])
        except* ValueError:
            raise TypeError(3) from None
    except BaseException as e:
        return x + 1, type(e).__name__, repr(e)


@program((t(2),))
def own_groups(x):
    try:
        try:
            raise Coded("coded", [TypeError(1), ValueError(2)], 42)
        except* ValueError as e:
            seen = type(e).__name__, e.code, repr(e.exceptions)
    except Coded as e:
        return x + 1, seen, e.code, repr(e.exceptions)


@program((t(2),))
def not_to_be_caught(x):
    seen = []
    for wrong in (42, (ValueError, 42), ExceptionGroup, (TypeError, ExceptionGroup)):
        try:
            try:
                raise ValueError
            except* wrong:
                seen.append("caught")
        except TypeError as e:
            seen.append(str(e))
    return x + 1, seen


@program((t(2),))
def by_class_alone(x):
    try:
        try:
            raise ValueError(1)
        except Unrelated:
            return x + 1
    except ValueError:
        return x + 2


@program((t(2),))
def raised_again_leaves_no_mark(x):
    try:
        try:
            raise ValueError(3)
        except ValueError:
            x = x + 1
            raise
    except ValueError as e:
        return x, [f.lineno for f in traceback.extract_tb(e.__traceback__)]


class Namesake:
    class Inner:
        pass


Namesake.Inner.unnamed = property()
named = type("Named", (), {"unnamed": property()})


@program((t(2),))
def what_a_property_lacks(x):
    seen = []
    for o in (Namesake.Inner(), named()):
        for act in (lambda o=o: o.unnamed, lambda o=o: setattr(o, "unnamed", 1), lambda o=o: delattr(o, "unnamed")):
            try:
                act()
            except AttributeError as e:
                seen.append(str(e))
    return x + 1, seen


@pytest.mark.parametrize("case", cases(__name__))
def test_program(case):
    case.run()


