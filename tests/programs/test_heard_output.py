"""What the program prints, warns and logs may be heard by its own code: a stream, a handler, a list of warnings that it reads itself."""

from __future__ import annotations

import functools
import importlib.util
import io
import itertools
import logging
import sys
import types
import warnings

import pytest
import torch

import pliant

SEEN: list = []
LOG = logging.getLogger("pliant.tests.heard")
BELOW = logging.getLogger("pliant.tests.heard.below")


class OfItsOwn(logging.Logger):
    def info(self, *args):
        SEEN.append("own")
        return 5


OWN = OfItsOwn("own")


class Tee:
    def write(self, text):
        SEEN.append(text)
        return len(text)

    def flush(self):
        pass


class Angry(Tee):
    def write(self, text):
        raise ValueError("no")


class Wrapper(io.TextIOWrapper):
    def write(self, text):
        SEEN.append(text)
        return len(text)


class Flushed(io.StringIO):
    def flush(self):
        SEEN.append("flushed")


class Raw(io.RawIOBase):
    def writable(self):
        return True

    def write(self, data):
        SEEN.append(bytes(data))
        return len(data)


def replaced():
    """A stream whose object has a `write` of its own."""
    stream, write = io.StringIO(), io.StringIO().write
    stream.write = lambda text: (SEEN.append(text), write(text))[1]
    return stream


def detached():
    stream = io.TextIOWrapper(io.BytesIO())
    stream.detach()
    return stream


class Listing(logging.Handler):
    def emit(self, record):
        SEEN.append((record.getMessage(), record.lineno, record.funcName, record.levelname, record.exc_info and record.exc_info[0]))


class Raising(logging.Handler):
    def emit(self, record):
        raise ValueError("of the handler")


class Drawing(logging.Handler):
    def emit(self, record):
        torch.manual_seed(5)
        SEEN.append(record.name)


class Formatting(logging.Formatter):
    def format(self, record):
        SEEN.append(record.msg)
        return super().format(record)


class Filtering(logging.Filter):
    def filter(self, record):
        SEEN.append(record.args)
        return True


def streaming(formatter=None, keep=None):
    handler = logging.StreamHandler(io.StringIO())
    if formatter is not None:
        handler.setFormatter(formatter)
    if keep is not None:
        handler.addFilter(keep)
    return handler


HANDLERS = {
    "listing": Listing, "raising": Raising, "drawing": Drawing, "plain": streaming, "none": logging.NullHandler,
    "formatter": lambda: streaming(Formatting()), "filter": lambda: streaming(keep=Filtering()),
    "replaced": lambda: logging.StreamHandler(replaced()),
    "places": lambda: streaming(logging.Formatter("%(lineno)d %(funcName)s %(name)s %(message)s")),
}  # fmt: skip


# -- loggers ---------------------------------------------------------------------------------------------------------
def counts(x):
    LOG.info("hello %s", 3)
    return x + len(SEEN)


def catches(x):
    try:
        LOG.info("hello")
    except ValueError:
        return x - 1
    return x + 1


def draws(x):
    LOG.warning("a")
    return x + torch.rand(2)


def unknown_keyword(x):
    try:
        LOG.info("hello", foo=3)
    except TypeError as e:
        return str(e)


def level_of_text(x):
    try:
        LOG.log("a", "hello")
    except TypeError as e:
        return str(e)


def no_message(x):
    try:
        LOG.info()
    except TypeError as e:
        return str(e)


def no_logger(x):
    try:
        logging.Logger.info(None, "a")
    except AttributeError as e:
        return str(e)


def clash(x):
    try:
        LOG.info("hello", extra={"name": 3})
    except KeyError as e:
        return str(e)


def keywords(x):
    return x + 1, LOG.info("a", stacklevel=1), LOG.error("b", extra={"zz": 3}), LOG.log(level=20, msg="c")


def levels_set(x):
    LOG.setLevel("ERROR")
    LOG.info("no")
    LOG.setLevel("DEBUG")
    LOG.info("yes")
    return x


def disabled(x):
    LOG.disabled = True
    LOG.info("no")
    LOG.disabled = False
    LOG.info("yes")
    return x, LOG.isEnabledFor(10)


def handler_added(x):
    handler = Listing()
    LOG.addHandler(handler)
    BELOW.info("one")
    LOG.removeHandler(handler)
    return x + len(SEEN)


def text_of_values(x):
    a = [1]
    LOG.info("%s %r", a, "b")
    a.append(2)
    LOG.info("%d%%", len(a))
    return x


def exceptions(x):
    try:
        LOG.info("x")
        raise KeyError
    except KeyError:
        LOG.exception("in")
        LOG.error("b", exc_info=True)
        LOG.error("c", exc_info=ValueError("given"))
    return x


def another_class(x):
    return x + 1, OWN.info("a"), len(SEEN)


def below(x):
    BELOW.critical("c")
    logging.getLogger("pliant.tests.heard").debug("d")
    return x + len(SEEN)


LOGGING = [
    counts, catches, draws, unknown_keyword, level_of_text, no_message, no_logger, clash, keywords, levels_set, disabled, handler_added,
    text_of_values, exceptions, another_class, below,
]  # fmt: skip


def outcome(fn, handler):
    SEEN.clear()
    torch.manual_seed(0)
    LOG.setLevel("DEBUG")
    LOG.propagate = LOG.disabled = False
    LOG.handlers[:] = [handler]
    try:
        answer = repr(fn(torch.ones(2)))
    except Exception as e:
        answer = repr(e)
    stream = getattr(handler, "stream", None)
    return answer, list(SEEN), stream and stream.getvalue().partition("Traceback")[0]


@pytest.mark.parametrize("fn", LOGGING, ids=lambda f: f.__name__)
@pytest.mark.parametrize("first", ["listing", "plain"])
def test_records_are_heard_where_they_are_made(fn, first):
    compiled = pliant.compile(fn, backend="aten", strict=True)
    for name in (first, *HANDLERS, first):
        assert outcome(compiled, HANDLERS[name]()) == outcome(fn, HANDLERS[name]()), name


# -- prints and warnings ---------------------------------------------------------------------------------------------
def prints(x):
    print("a", end="")
    return x + len(SEEN)


def prints_and_flushes(x):
    n = len(SEEN)
    print("a", flush=True)
    return x + n + 10 * len(SEEN)


def prints_and_catches(x):
    try:
        print("a")
    except ValueError:
        return x - 1
    return x


def prints_to_a_file(x):
    print("a", file=sys.stderr)
    return x + len(SEEN)


def warns(x):
    warnings.warn("a", stacklevel=1)
    return x + len(SEEN)


def reads_and_warns(x):
    n = len(SEEN)
    warnings.warn("a", stacklevel=1)
    return x + n + 10 * len(SEEN)


def warns_and_catches(x):
    try:
        warnings.warn("a", stacklevel=1)
    except ValueError:
        return x - 1
    return x


def raising_show(*args, **kwargs):
    raise ValueError


def as_without_records():
    """What shows a warning where nobody records them, as pytest does."""
    spec = importlib.util.spec_from_file_location("warnings_anew", warnings.__file__)
    anew = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(anew)
    return types.FunctionType(anew._showwarnmsg_impl.__code__, warnings._showwarning_orig.__globals__, "_showwarnmsg_impl")


WRITTEN = as_without_records()
STREAMS = {
    "plain": io.StringIO, "tee": Tee, "angry": Angry, "wrapper": lambda: Wrapper(io.BytesIO()), "replaced": replaced, "flushed": Flushed,
    "detached": detached,
    "bytes": lambda: io.TextIOWrapper(io.BytesIO(), write_through=True), "unbuffered": lambda: io.TextIOWrapper(Raw(), write_through=True),
    "buffered": lambda: io.TextIOWrapper(io.BufferedWriter(Raw()), line_buffering=True, write_through=True),
}  # fmt: skip
SHOWS = {
    "as it is": {}, "kept": {"_showwarnmsg_impl": SEEN.append}, "raising": {"showwarning": raising_show},
    "heard": {"showwarning": lambda *args, **kwargs: SEEN.append(args[1])},
    "told": {"formatwarning": lambda *args, **kwargs: SEEN.append(args[1]) or "text"},
}  # fmt: skip


def told(fn, stream, show):
    SEEN.clear()
    before, form = (sys.stdout, sys.stderr), warnings.formatwarning
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings._showwarnmsg_impl = WRITTEN
        for name, v in show.items():
            setattr(warnings, name, v)
        sys.stdout = sys.stderr = stream
        try:
            answer = repr(fn(torch.ones(2)))
        except Exception as e:
            answer = repr(e)
        finally:
            sys.stdout, sys.stderr = before
            warnings.formatwarning = form  # which `catch_warnings` leaves
    return answer, len(SEEN)


OUTPUTS = [prints, prints_and_flushes, prints_and_catches, prints_to_a_file, warns, reads_and_warns, warns_and_catches]
WAYS = list(itertools.product(STREAMS, SHOWS))


@pytest.mark.parametrize("fn", OUTPUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("turned", [False, True], ids=["plain first", "plain last"])
def test_output_is_heard_where_it_is_made(fn, turned):
    compiled = pliant.compile(fn, backend="aten", strict=True)
    for stream, show in WAYS[::-1] if turned else WAYS:
        for _ in range(2):
            assert told(compiled, STREAMS[stream](), SHOWS[show]) == told(fn, STREAMS[stream](), SHOWS[show]), (stream, show)


def test_output_that_nothing_hears_does_not_break_the_graph():
    def program(x):
        LOG.info("size %s", x.shape[0])
        LOG.debug("not shown")
        return x + 1

    LOG.handlers[:] = [logging.StreamHandler(io.StringIO())]
    LOG.setLevel("INFO")
    LOG.propagate = False
    compiled = pliant.compile(program, backend="aten", strict=True, fullgraph=True)
    for n in (3, 4, 5):
        compiled(torch.ones(n))
    assert LOG.handlers[0].stream.getvalue() == "size 3\nsize 4\nsize 5\n"


def test_records_that_the_test_runner_keeps(caplog):
    def program(x):
        LOG.info("size %s", x.shape[0])
        return x + len(caplog.records), len(caplog.text)

    LOG.handlers[:] = []
    LOG.setLevel("INFO")
    LOG.propagate, LOG.disabled = True, False
    compiled = pliant.compile(program, backend="aten", strict=True)
    with caplog.at_level("INFO"):
        for n in (3, 4, 5):
            caplog.clear()
            want = program(torch.ones(n))
            caplog.clear()
            assert repr(compiled(torch.ones(n))) == repr(want)


# -- classes that change from call to call -----------------------------------------------------------------------------
@functools.singledispatch
def kind(v, *rest):
    return 0


kind.register(io.IOBase)(lambda v, *rest: 1)
kind.register(io.BytesIO)(lambda v, *rest: 2)


def test_a_class_that_changes_too_often_is_asked_nothing_in_the_graph():
    """What the interpreter itself asked such a class raised AttributeError, which the program caught as its own."""

    def program(x, cls, v):
        pliant.graph_break()
        try:
            found = kind.dispatch(cls)(v)
        except Exception as e:
            found = repr(e)
        return x + 1, found, issubclass(cls, io.IOBase), cls.__name__, cls.__base__

    made = [io.BytesIO(), io.StringIO(), iter([1]), iter(()), map(len, []), zip([]), enumerate([]), memoryview(b"a"), reversed([])]
    compiled = pliant.compile(program, backend="aten", strict=True)
    for v in made * 3:
        want, got = program(torch.ones(2), type(v), v), compiled(torch.ones(2), type(v), v)
        assert repr(got) == repr(want)


def test_single_dispatch_of_what_is_no_class():
    def program(x, v):
        out = [kind.dispatch(cls=type(v))(v)]
        for given in ((v,), (), (1, 2)):
            try:
                out.append(kind.dispatch(*given))
            except (TypeError, AttributeError) as e:
                out.append(str(e))
        return x + 1, out

    compiled = pliant.compile(program, backend="aten", strict=True)
    for v in (io.BytesIO(), 3, "a"):
        assert repr(compiled(torch.ones(2), v)) == repr(program(torch.ones(2), v))
