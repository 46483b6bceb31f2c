"""The state of the process, changed between calls: the interpreter, the environment, the locale, warnings, PyTorch's switches."""

from __future__ import annotations

import calendar
import contextvars
import datetime
import decimal
import gc
import io
import json
import locale
import logging
import os
import random
import re
import string
import sys
import tempfile
import threading
import time
import warnings

import numpy as np
import pytest
import torch

from tests.programs import worlds
from tests.programs.worlds import MISSING, attribute, item, values, world

# -- the interpreter --------------------------------------------------------------------------------------------


@world(breaks=0)
def recursion_limit():
    return lambda x: x + sys.getrecursionlimit(), *values(sys.setrecursionlimit, sys.getrecursionlimit(), 3210, 4000)


@world(breaks=0)
def switch_interval():
    return lambda x: x + sys.getswitchinterval(), *values(sys.setswitchinterval, sys.getswitchinterval(), 0.25)


@world(breaks=0)
def digits_of_numbers():
    return lambda x: x + sys.get_int_max_str_digits(), *values(sys.set_int_max_str_digits, sys.get_int_max_str_digits(), 700)


@world
def digits_of_a_number():
    n = 10**900
    return lambda x: x + len(str(n)), *values(sys.set_int_max_str_digits, sys.get_int_max_str_digits(), 700)


@world
def digits_read_from_text():
    text = "1" * 900
    return lambda x: x + int(text) % 7, *values(sys.set_int_max_str_digits, sys.get_int_max_str_digits(), 700)


@world
def digits_formatted():
    n = 10**900
    return lambda x: x + len(f"{n}"), *values(sys.set_int_max_str_digits, sys.get_int_max_str_digits(), 700)


@world
def path_of_imports():
    def f(x):
        return x + len(sys.path), "/nowhere" in sys.path

    return f, *attribute(sys, "path", [*sys.path, "/nowhere"])


@world
def path_of_imports_in_place():
    def put(on):
        if on:
            sys.path.append("/nowhere")
        elif "/nowhere" in sys.path:
            sys.path.remove("/nowhere")

    return lambda x: x * (2 if "/nowhere" in sys.path else 3), *values(put, False, True)


@world
def modules_there():
    return lambda x: x + ("pliant_nothing" in sys.modules), *item(sys.modules, "pliant_nothing", json)


@world
def a_module_by_name():
    def f(x):
        m = sys.modules.get("pliant_nothing")
        return x + (0 if m is None else len(m.__name__))

    return f, *item(sys.modules, "pliant_nothing", json, contextvars)


@world
def arguments_of_the_process():
    return lambda x: (x + len(sys.argv), sys.argv[-1]), *attribute(sys, "argv", ["a", "b", "c"], ["z"])


@world
def standard_output():
    return lambda x: x + (sys.stdout is sys.__stdout__), *attribute(sys, "__stdout__", io.StringIO())


@world
def standard_error():
    return lambda x: x * (2 if isinstance(sys.stderr, io.StringIO) else 3), *attribute(sys, "stderr", io.StringIO())


@world
def standard_error_is_a_terminal():
    class Fake:
        def __init__(self, answer):
            self.answer = answer

        def isatty(self):
            return self.answer

        def write(self, text):
            return len(text)

        def flush(self):
            pass

    return (
        lambda x: x * (2 if sys.stderr.isatty() else 3),
        *values(lambda v: setattr(sys, "stderr", v), sys.stderr, Fake(True), Fake(False)),
    )


@world
def bytecode_is_written():
    return (
        lambda x: x * (2 if sys.dont_write_bytecode else 3),
        *values(lambda v: setattr(sys, "dont_write_bytecode", v), sys.dont_write_bytecode, not sys.dont_write_bytecode),
    )


@world
def flags_of_the_interpreter():
    class Flags:
        optimize = 7

    return lambda x: x + sys.flags.optimize, *attribute(sys, "flags", Flags)


@world(breaks=0)
def numbers_of_the_machine():
    return lambda x: (x + sys.float_info.dig + sys.maxsize % 7, sys.byteorder, sys.getdefaultencoding()), worlds.same


@world
def the_largest_size():
    return lambda x: x + sys.maxsize % 10, *attribute(sys, "maxsize", 3)


@world
def garbage_collection():
    return lambda x: x * (2 if gc.isenabled() else 3), gc.enable, gc.disable


@world
def garbage_thresholds():
    return lambda x: x + gc.get_threshold()[0], *values(lambda t: gc.set_threshold(*t), gc.get_threshold(), (500, 10, 10))


@world
def hook_of_exceptions():
    return lambda x: x * (2 if sys.excepthook is sys.__excepthook__ else 3), *attribute(sys, "excepthook", print)


@world
def profile_function():
    def put(fn):
        sys.setprofile(fn)

    return lambda x: x * (2 if sys.getprofile() is None else 3), *values(put, None)


# -- the environment --------------------------------------------------------------------------------------------
NAME = "PLIANT_TEST_WORLD"


@world
def environment_item():
    return lambda x: x + len(os.environ[NAME]), *item(os.environ, NAME, "12", "345")


@world
def environment_get():
    return lambda x: x + int(os.environ.get(NAME, "5")), *item(os.environ, NAME, "12", "345")


@world
def environment_getenv():
    return lambda x: x * (2 if os.getenv(NAME) else 3), *item(os.environ, NAME, "1", "")


@world
def environment_contains():
    return lambda x: x * (2 if NAME in os.environ else 3), *item(os.environ, NAME, "1")


@world
def environment_length():
    return lambda x: x + len(os.environ), *item(os.environ, NAME, "1")


@world
def environment_walked():
    return lambda x: x + len([k for k in os.environ if k.startswith(NAME)]), *item(os.environ, NAME, "1")


@world
def environment_as_a_dict():
    return lambda x: x + dict(os.environ).get(NAME, "").count("1"), *item(os.environ, NAME, "1", "11")


@world
def environment_copied():
    return lambda x: x + os.environ.copy().get(NAME, "").count("1"), *item(os.environ, NAME, "1", "11")


@world
def environment_bytes():
    return lambda x: x + os.environb.get(NAME.encode(), b"").count(b"1"), *item(os.environ, NAME, "1", "11")


@world
def environment_replaced():
    return lambda x: x + len(os.environ.get("HOME", "")), *attribute(os, "environ", {"HOME": "/a"}, {})


FOLDERS = tempfile.gettempdir(), "/"


@world
def working_directory():
    return lambda x: x + len(os.getcwd()), *values(os.chdir, os.getcwd(), *FOLDERS)


@world
def absolute_path():
    return lambda x: (x, os.path.abspath("a/b")), *values(os.chdir, os.getcwd(), *FOLDERS)


@world
def real_path():
    return lambda x: (x, os.path.realpath("a/b")), *values(os.chdir, os.getcwd(), *FOLDERS)


@world
def relative_path():
    return lambda x: (x, os.path.relpath("a/b", "/")), *values(os.chdir, os.getcwd(), *FOLDERS)


@world
def expanded_user():
    return lambda x: (x, os.path.expanduser("~/a")), *item(os.environ, "HOME", "/one", "/two")


@world
def expanded_variables():
    return lambda x: (x, os.path.expandvars(f"a/${NAME}")), *item(os.environ, NAME, "b", "c")


def files():
    name = os.path.join(tempfile.gettempdir(), f"pliant-world-{os.getpid()}")

    def put(target):
        if os.path.lexists(name):
            os.unlink(name)
        if target:
            os.symlink(target, name)

    return name, put


@world
def a_path_exists():
    name, put = files()
    return lambda x: (x, os.path.exists(name), os.path.lexists(name)), *values(put, None, "/", "/nowhere/at/all")


@world
def a_path_is_a_link():
    name, put = files()
    return lambda x: (x, os.path.islink(name), os.path.isdir(name)), *values(put, None, "/")


@world
def a_link_is_resolved():
    name, put = files()
    return lambda x: (x, os.path.realpath(name)), *values(put, None, "/", "/usr")


@world
def the_process():
    return lambda x: (x, os.getpid(), os.cpu_count()), worlds.same


# -- locale, time zone, decimal -----------------------------------------------------------------------------------
LOCALE = next((n for n in ("de_DE.UTF-8", "en_US.UTF-8", "fr_FR.UTF-8", "C.UTF-8") if n in ("C.UTF-8",)), "C")


def locales():
    return values(lambda n: locale.setlocale(locale.LC_ALL, n), locale.setlocale(locale.LC_ALL), "C", "C.UTF-8")  # as it was, at the end


@world
def locale_name():
    return lambda x: (x, locale.getlocale(), locale.setlocale(locale.LC_CTYPE)), *locales()


@world
def locale_conventions():
    return lambda x: (x, locale.localeconv()["decimal_point"], locale.format_string("%d", 12345, grouping=True)), *attribute(
        locale, "_override_localeconv", {"decimal_point": ",", "thousands_sep": ".", "grouping": [3, 0]})


@world
def first_day_of_the_week():
    return lambda x: (x + calendar.firstweekday(), calendar.weekheader(2)), *values(calendar.setfirstweekday, 0, 6)


@world
def week_of_a_calendar():
    return lambda x: (x, calendar.monthcalendar(2024, 2)), *values(calendar.setfirstweekday, 0, 6)


def zone(name):
    (os.environ.pop("TZ", None) if name is None else os.environ.__setitem__("TZ", name))
    time.tzset()


def zones():
    return values(zone, os.environ.get("TZ"), "UTC", "EST+05EDT")


@world
def local_time():
    return lambda x: (x, time.localtime(86400).tm_hour), *zones()


@world
def local_time_back():
    t = (1970, 1, 3, 0, 0, 0, 5, 3, 0)
    return lambda x: (x, time.mktime(t)), *zones()


@world
def zone_of_the_time():
    return lambda x: (x + time.timezone, time.tzname), *zones()


@world
def zone_in_a_text():
    t = (1970, 1, 3, 0, 0, 0, 5, 3, 0)
    return lambda x: (x, time.strftime("%Y %Z", t)), *zones()


@world
def stamp_of_a_date():
    d = datetime.datetime(1971, 2, 3)
    return lambda x: (x, d.timestamp()), *zones()


@world
def date_of_a_stamp():
    return lambda x: (x, str(datetime.datetime.fromtimestamp(86400))), *zones()


@world
def date_in_the_local_zone():
    d = datetime.datetime(1971, 2, 3, tzinfo=datetime.UTC)
    return lambda x: (x, d.astimezone().hour), *zones()


@world
def decimal_precision():
    return lambda x: (x, decimal.getcontext().prec), *values(lambda n: setattr(decimal.getcontext(), "prec", n), 28, 5)


@world
def decimal_division():
    a, b = decimal.Decimal(1), decimal.Decimal(3)
    return lambda x: (x, str(a / b), a / b > 0.3), *values(lambda n: setattr(decimal.getcontext(), "prec", n), 28, 5)


@world
def decimal_methods():
    a = decimal.Decimal(2)
    return lambda x: (x, str(a.sqrt()), str(a.ln()), repr(+a)), *values(lambda n: setattr(decimal.getcontext(), "prec", n), 28, 5)


@world
def decimal_rounding():
    a, cent = decimal.Decimal("2.675"), decimal.Decimal("0.01")
    return lambda x: (x, str(a.quantize(cent))), *values(
        lambda n: setattr(decimal.getcontext(), "rounding", n), decimal.ROUND_HALF_EVEN, decimal.ROUND_DOWN)


@world
def decimal_in_a_context():
    def f(x):
        with decimal.localcontext() as c:
            c.prec += 2
            return x, str(decimal.Decimal(1) / decimal.Decimal(7))

    return f, *values(lambda n: setattr(decimal.getcontext(), "prec", n), 28, 5)


@world
def decimal_flags():
    def f(x):
        y = decimal.Decimal(1) / decimal.Decimal(3)
        return x, str(y), decimal.getcontext().flags[decimal.Inexact]

    return f, *values(lambda _: decimal.getcontext().clear_flags(), 0, 1)


@world
def decimal_traps():
    def f(x):
        return x, str(decimal.Decimal("abc") if x.shape[0] > 9 else decimal.Decimal(1) / decimal.Decimal(3))

    def put(on):
        decimal.getcontext().traps[decimal.Inexact] = on

    return f, *values(put, False, True)


# -- warnings and logging ---------------------------------------------------------------------------------------
def filters(*actions):
    first = list(warnings.filters)

    def put(action):
        warnings.filters[:] = first
        warnings._filters_mutated()
        if action is not None:
            warnings.simplefilter(action)

    return values(put, "ignore", *actions)


@world
def filters_of_warnings():
    return lambda x: (x + len(warnings.filters), warnings.filters[0][0]), *filters("always", "error")


@world
def warnings_that_raise():
    def f(x):
        warnings.warn("careful", UserWarning)
        return x * 2

    return f, *filters("error")


@world
def warnings_that_raise_and_are_caught():
    def f(x):
        out = []
        try:
            warnings.warn("careful", UserWarning)
            out.append(1)
        except UserWarning:
            out.append(2)
        return x * 2, out

    return f, *filters("error")


@world
def warnings_that_raise_before_a_write():
    def f(x):
        warnings.warn("careful", UserWarning)
        x.add_(1)
        seen.append(1)
        return x

    seen = []

    def g(x):
        try:
            return f(x)
        except UserWarning:
            return x, list(seen)

    return g, *filters("error")


@world
def warnings_caught():
    def f(x):
        with warnings.catch_warnings(record=True) as w:
            warnings.simplefilter("always")
            warnings.warn("careful", UserWarning)
        return x + len(w), len(warnings.filters)

    return f, *filters("error")


@world
def torch_warns_always():
    return lambda x: x * (2 if torch.is_warn_always_enabled() else 3), *values(torch.set_warn_always, torch.is_warn_always_enabled(), True)


LOG = logging.getLogger("pliant.test.world")


@world
def level_of_a_logger():
    return lambda x: x + LOG.level, *values(LOG.setLevel, 0, 10, 30)


@world
def level_in_force():
    return lambda x: x + LOG.getEffectiveLevel(), *values(LOG.setLevel, 0, 10, 30)


@world
def logger_is_enabled():
    return lambda x: x * (2 if LOG.isEnabledFor(logging.INFO) else 3), *values(LOG.setLevel, 0, 10, 40)


@world
def logging_is_disabled():
    return lambda x: x * (2 if LOG.isEnabledFor(logging.ERROR) else 3), *values(logging.disable, logging.NOTSET, logging.CRITICAL)


@world
def level_of_the_root():
    return lambda x: x * (2 if LOG.isEnabledFor(logging.INFO) else 3), *values(logging.root.setLevel, logging.root.level, 10, 40)


@world
def handlers_of_a_logger():
    return lambda x: x + len(LOG.handlers), *attribute(LOG, "handlers", [logging.NullHandler()])


@world
def class_of_loggers():
    class Other(logging.Logger):
        pass

    return lambda x: (x, logging.getLoggerClass().__name__), *values(logging.setLoggerClass, logging.Logger, Other)


@world
def names_of_levels():
    return lambda x: (x, logging.getLevelName(35)), *values(
        lambda n: logging._levelToName.pop(35, None) if n is None else logging.addLevelName(35, n), None, "HIGH", "LOW")


# -- threads, contexts, random numbers, time -----------------------------------------------------------------------
@world
def name_of_the_thread():
    return lambda x: (x, threading.current_thread().name), *attribute(threading.current_thread(), "name", "other")


@world
def local_of_the_thread():
    local = threading.local()
    return lambda x: x + getattr(local, "n", 5), *values(lambda n: setattr(local, "n", n), 1, 2)


@world
def context_variable():
    var = contextvars.ContextVar("var", default=1)
    return lambda x: x + var.get(), *values(var.set, 1, 2, 5)


@world
def context_variable_with_an_object():
    var = contextvars.ContextVar("var")
    one, two = [1], [2]
    return lambda x: x + var.get()[0], *values(var.set, one, two)


@world
def context_variable_found_missing():
    var = contextvars.ContextVar("var")

    def f(x):
        try:
            return x + var.get()
        except LookupError:
            return x - 1

    tokens = []

    def put(v):
        if v is None:
            while tokens:
                var.reset(tokens.pop())
        else:
            tokens.append(var.set(v))

    return f, *values(put, None, 3)


@world
def random_numbers():
    return lambda x: x + random.random() + np.random.rand(), *values(random.seed, 1, 2)


@world
def random_state():
    return lambda x: x + random.getstate()[1][0] % 7, *values(lambda n: None, 1, 2)


@world
def torch_random():
    return lambda x: x + torch.rand(3).sum() + torch.initial_seed() % 7, *values(torch.manual_seed, 1, 2)


@world
def a_clock_replaced():
    return lambda x: x + time.time() // 1e12, *attribute(time, "time", lambda: 1e12, lambda: 2e12)


# -- PyTorch's switches ---------------------------------------------------------------------------------------------
@world(breaks=0)
def threads_of_torch():
    return lambda x: x + torch.get_num_threads(), *values(torch.set_num_threads, torch.get_num_threads(), 2, 3)


@world(breaks=0)
def precision_of_products():
    return lambda x: (x, torch.get_float32_matmul_precision()), *values(torch.set_float32_matmul_precision, "highest", "high", "medium")


@world(breaks=0)
def deterministic():
    return (
        lambda x: x * (2 if torch.are_deterministic_algorithms_enabled() else 3),
        *values(torch.use_deterministic_algorithms, False, True),
    )


@world
def deterministic_debug_mode():
    return lambda x: x + torch.get_deterministic_debug_mode(), *values(torch.set_deterministic_debug_mode, 0, 1, 2)


@world
def deterministic_fills():
    return lambda x: x * (2 if torch.utils.deterministic.fill_uninitialized_memory else 3), *values(
        lambda v: setattr(torch.utils.deterministic, "fill_uninitialized_memory", v), True, False)


@world(breaks=0)
def default_dtype():
    return lambda x: (x, torch.get_default_dtype(), torch.zeros(2)), *values(torch.set_default_dtype, torch.float32, torch.float64)


@world
def default_device():
    return lambda x: (x, str(torch.get_default_device()), torch.zeros(2).device.type), *values(torch.set_default_device, None, "meta")


@world(breaks=0)
def gradients_are_on():
    return lambda x: x * (2 if torch.is_grad_enabled() else 3), *values(torch.set_grad_enabled, True, False)


@world(breaks=0)
def autocast_is_on():
    def f(x):
        return x * (2 if torch.is_autocast_enabled("cpu") else 3), torch.get_autocast_dtype("cpu"), torch.is_autocast_cpu_enabled()

    return f, *values(lambda v: torch.set_autocast_enabled("cpu", v), False, True)


@world(breaks=0)
def autocast_dtype():
    return lambda x: (x, torch.get_autocast_dtype("cpu")), *values(
        lambda v: torch.set_autocast_dtype("cpu", v), torch.get_autocast_dtype("cpu"), torch.float16)


@world
def autocast_of_another_device():
    return lambda x: (x, torch.get_autocast_dtype("xpu"), torch.is_autocast_enabled("xpu")), *values(
        lambda v: torch.set_autocast_dtype("xpu", v), torch.get_autocast_dtype("xpu"), torch.float32)


@world
def anomaly_mode():
    return lambda x: x * (2 if torch.is_anomaly_enabled() else 3), *values(torch.autograd.set_detect_anomaly, False, True)


@world
def anomaly_checks():
    return lambda x: x * (2 if torch.is_anomaly_check_nan_enabled() else 3), *values(
        lambda v: torch.autograd.set_detect_anomaly(v is not None, v is not False), None, True, False)


def switch(path, *options):
    """A flag of `torch.backends`, read as an attribute and set as one."""
    *parts, name = path.split(".")
    space = torch.backends
    for part in parts:
        space = getattr(space, part)

    def factory():
        def f(x):
            v = getattr(space, name)
            return x * 2, v

        def g(x):
            y = f(x)
            return y[0] + (1 if y[1] else 2), y[1]

        return g, *values(lambda v: setattr(space, name, v), getattr(space, name), *options)

    factory.__qualname__ = "switch_" + path.replace(".", "_")
    factory.__module__ = __name__
    world(factory)


switch("mkldnn.enabled", not torch.backends.mkldnn.enabled)
switch("mkldnn.deterministic", True)
switch("cudnn.enabled", False)
switch("cudnn.benchmark", True)
switch("cudnn.deterministic", True)
switch("cudnn.allow_tf32", False)
switch("cuda.matmul.allow_tf32", True)
switch("cuda.matmul.allow_fp16_reduced_precision_reduction", False)
switch("cuda.matmul.allow_bf16_reduced_precision_reduction", False)
switch("opt_einsum.enabled", False)
switch("opt_einsum.strategy", "greedy")
switch("cudnn.benchmark_limit", 3)


@world
def engine_of_quantized_operators():
    others = [e for e in torch.backends.quantized.supported_engines if e != torch.backends.quantized.engine]
    return lambda x: (x, torch.backends.quantized.engine), *values(
        lambda v: setattr(torch.backends.quantized, "engine", v), torch.backends.quantized.engine, *others)


@world
def flash_attention_is_on():
    def f(x):
        return x * (2 if torch.backends.cuda.flash_sdp_enabled() else 3), torch.backends.cuda.math_sdp_enabled()

    return f, *values(torch.backends.cuda.enable_flash_sdp, True, False)


@world
def efficient_attention_is_on():
    return lambda x: x * (2 if torch.backends.cuda.mem_efficient_sdp_enabled() else 3), *values(
        torch.backends.cuda.enable_mem_efficient_sdp, True, False)


@world
def fast_path_of_attention():
    return lambda x: x * (2 if torch.backends.mha.get_fastpath_enabled() else 3), *values(
        torch.backends.mha.set_fastpath_enabled, True, False)


@world
def nnpack():
    return lambda x: x * (2 if torch._C._get_nnpack_enabled() else 3), *values(torch._C._set_nnpack_enabled, True, False)


@world
def nnpack_flags():
    def f(x):
        with torch.backends.nnpack.flags(enabled=True):
            y = x * (2 if torch._C._get_nnpack_enabled() else 3)
        return y, torch._C._get_nnpack_enabled()

    return f, *values(torch._C._set_nnpack_enabled, True, False)


@world
def linear_algebra_library():
    return lambda x: (x, str(torch.backends.cuda.preferred_linalg_library())), worlds.same


@world
def gradients_of_multithreading():
    return lambda x: x * (2 if torch._C._is_multithreading_enabled() else 3), *values(torch._C._set_multithreading_enabled, True, False)


@world
def sparse_invariants():
    return lambda x: x * (2 if torch.sparse.check_sparse_tensor_invariants.is_enabled() else 3), *values(
        torch._C._set_check_sparse_tensor_invariants, False, True)


@world
def printing_of_tensors():
    return lambda x: x + torch._tensor_str.PRINT_OPTS.precision, *values(lambda n: torch.set_printoptions(precision=n), 4, 2)


@world
def module_conversion():
    return lambda x: x * (2 if torch.__future__.get_overwrite_module_params_on_conversion() else 3), *values(
        torch.__future__.set_overwrite_module_params_on_conversion, False, True)


@world
def jit_fusion():
    return lambda x: (x, torch._C._jit_get_profiling_mode() if hasattr(torch._C, "_jit_get_profiling_mode") else None), worlds.same


@world
def devices():
    return lambda x: (x, torch.cuda.is_available(), torch.cuda.device_count(), torch.get_num_interop_threads()), worlds.same


@world
def a_worker_of_data():
    return lambda x: x * (2 if torch.utils.data.get_worker_info() is None else 3), *values(
        lambda v: setattr(torch.utils.data._utils.worker, "_worker_info", v), None, object())


@world
def ranks():
    return lambda x: x * (2 if torch.distributed.is_initialized() else 3), worlds.same


# -- state of the library ------------------------------------------------------------------------------------------------
@world
def cache_of_patterns():
    return lambda x: x + len(re.findall("a+", "aabaa")), re.purge, worlds.same


@world
def a_template():
    class Mine(string.Template):
        delimiter = "$"

    def put(idpattern):
        del Mine.pattern
        Mine.idpattern = idpattern
        Mine.__init_subclass__()

    return lambda x: (x, Mine("$ab$a1").safe_substitute(ab=1, a1=2)), *values(put, r"(?a:[a-z]+)", r"(?a:[a-z][a-z0-9]*)")


@world
def codecs_registered():
    import codecs

    def find(name):
        return codecs.lookup("ascii") if name == "pliantcode" else None

    def put(on):
        codecs.register(find) if on else codecs.unregister(find)

    def f(x):
        try:
            return x, "abc".encode("pliantcode")
        except LookupError:
            return x, None

    return f, *values(put, False, True)


@world
def error_handlers():
    import codecs

    def put(text):
        codecs.register_error("pliant.world", lambda e: (text, e.end))

    return lambda x: (x, "aé".encode("ascii", "pliant.world")), *values(put, "?", "!")


@world
def json_encoders():
    return lambda x: (x, json.dumps({"a": 0.5})), *attribute(json, "dumps", lambda v: "other")


@world
def json_float_texts():
    return lambda x: (x, json.dumps([0.5])), *attribute(json.encoder.JSONEncoder, "default", lambda self, o: 0)


@pytest.mark.parametrize("name", worlds.of(__name__))
def test_state(name):
    worlds.check(name)


__all__ = ["MISSING"]
