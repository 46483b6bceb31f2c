"""The standard library's C modules, function by function."""

from __future__ import annotations

from pliant.interpret.policy_tables.row import Row, rows, skips

PATHS = ("pathlib", "pathlib._local")
"""Where the classes of paths are, by Python's version."""

ARITHMETIC: list[Row] = [
    # math: these look at a symbolic number through methods that our symbolic ints answer (`__floor__`, `__ceil__`, `__index__`…)
    Row("math", "symint", "ceil floor trunc prod gcd lcm isfinite isinf isnan", reads="arguments"),
    Row(
        "math",
        "native",
        "acos acosh asin asinh atan atan2 atanh cbrt comb copysign cos cosh degrees dist erf erfc exp exp2 expm1 fabs factorial fma"
        " fmod frexp"
        " fsum gamma hypot isclose isqrt ldexp lgamma log log10 log1p log2 modf nextafter perm pow radians remainder sin sinh sqrt sumprod"
        " tan tanh ulp",
        reads="arguments",
    ),
    Row("cmath", "native", "*", reads="arguments"),
    Row(
        "_operator",
        "symint",
        "abs add and_ call concat contains countOf delitem eq floordiv ge getitem gt iadd iand iconcat ifloordiv ilshift imatmul imod imul"
        " indexOf inv invert ior ipow irshift is_ is_not isub itruediv ixor le length_hint lshift lt matmul mod mul ne neg not_ or_ pos pow"
        " rshift setitem sub truediv truth xor attrgetter itemgetter methodcaller",
        reads="arguments",
    ),
    Row("_operator", "native", "index _compare_digest", reads="arguments"),
    *rows("symint", {f"_operator.{t}": "*" for t in ("attrgetter", "itemgetter", "methodcaller")}, reads="arguments"),
    Row("_statistics", "native", "*", reads="arguments"),
    Row("_decimal", "native", "Decimal", reads="decimal"),
    Row("_decimal", "native", "DecimalTuple", reads="arguments"),
    Row("_decimal.Decimal", "native", "*", reads="decimal"),
    *skips("PL0003", "the decimal context is state of the thread", {"_decimal": "getcontext setcontext localcontext Context"}),
]

CONTAINERS: list[Row] = [
    Row(
        "itertools",
        "symint",
        "accumulate batched chain combinations combinations_with_replacement compress count cycle dropwhile filterfalse groupby islice"
        " pairwise permutations product repeat starmap takewhile tee zip_longest _grouper _tee _tee_dataobject",
        reads="arguments",
    ),
    Row("_functools", "symint", "reduce cmp_to_key partial", reads="arguments"),
    *skips("PL0003", "a cache made by hand", {"_functools": "_lru_cache_wrapper"}),
    Row("_functools.partial", "symint", "*", reads="arguments"),
    *skips("PL0003", "the cache of an lru_cache is state", {"_functools._lru_cache_wrapper": "cache_info cache_clear"}),
    Row("_functools._lru_cache_wrapper", "inline", "*"),
    Row(
        "_collections",
        "symint",
        "deque defaultdict OrderedDict _count_elements _deque_iterator _deque_reverse_iterator _tuplegetter",
        reads="arguments",
    ),
    Row(
        "_heapq",
        "symint",
        "heapify heappop heappush heappushpop heapreplace _heapify_max _heappop_max _heapreplace_max",
        reads="arguments",
    ),
    Row("_bisect", "symint", "bisect_left bisect_right insort_left insort_right", reads="arguments"),
    Row("array", "native", "array ArrayType _array_reconstructor", reads="arguments"),
]

TEXT: list[Row] = [
    Row("_sre", "native", "*", reads="arguments"),  # with re.LOCALE, which is for bytes alone, the locale as well: see `NOT_ASKED`
    *rows("native", {"re.Pattern": "*", "re.Match": "*"}, reads="arguments"),
    Row("_string", "native", "formatter_field_name_split formatter_parser", reads="arguments"),
    Row("_struct", "native", "calcsize iter_unpack pack unpack unpack_from Struct", reads="arguments"),
    Row("_struct.Struct", "native", "pack unpack unpack_from", reads="arguments"),
    *skips("PL0006", "it writes into a buffer", {"_struct": "pack_into _clearcache"}),
    Row("_json", "native", "*", reads="arguments"),
    Row("unicodedata", "native", "*", reads="arguments"),
    Row("binascii", "native", "*", reads="arguments"),
    Row("zlib", "native", "adler32 compress crc32 decompress", reads="arguments"),
    *skips("PL0004", "a compressor carries hidden state", {"zlib": "compressobj decompressobj _ZlibDecompressor"}),
    Row("_hashlib", "native", "*", reads="arguments"),
    *rows("native", {m: "*" for m in ("_md5", "_sha1", "_sha2", "_sha256", "_sha512", "_sha3", "_blake2")}, reads="arguments"),
    *rows("native", {f"_hashlib.{t}": "*" for t in ("HASH", "HASHXOF", "HMAC")}, reads="arguments"),
    *rows("native", {m: "*" for m in ("_blake2.blake2b", "_blake2.blake2s")}, reads="arguments"),
    *skips("PL0022", "CSV readers and writers work on files", {"_csv": "*"}),
    *skips(
        "PL0004",
        "codecs are looked up in a registry that code may change",
        {"_codecs": "lookup lookup_error"},
    ),
    *skips("PL0006", "it registers a codec", {"_codecs": "register unregister register_error"}),
    *skips("PL0004", "codecs and their error handlers are looked up in registries that code may change", {"_codecs": "*"}),
    *skips("PL0003", "the locale is state of the process", {"_locale": "*"}),
]

INTROSPECTION: list[Row] = [
    *skips("PL0033", "it looks at frames, or reads source files", {
        "inspect": "currentframe stack trace getframeinfo getouterframes getinnerframes getsource getsourcelines getsourcefile getfile"
        " getabsfile findsource getmodule getcomments getdoc getargvalues getclosurevars getgeneratorstate getgeneratorlocals"
    }),
    *skips("PL0007", "it reads whole objects", {
        "inspect": "getmembers getmembers_static classify_class_attrs getmro getattr_static get_annotations unwrap"
        " getclasstree walktree getcallargs",
        "typing": "get_type_hints",
    }),
    *skips("PL0004", "it makes what knows the module that it is made in", {
        "typing": "NamedTuple TypedDict NewType _caller"
    }),
    Row("_abc", "constant", "get_cache_token", reads="itself"),
    *skips("PL0004", "it asks what is registered", {"_abc": "_abc_instancecheck _abc_subclasscheck _get_dump"}),
    *skips("PL0006", "it registers a class for good", {"_abc": "_abc_init _abc_register _reset_registry _reset_caches"}),
    *skips("PL0006", "it registers a class for good", {"abc.ABCMeta": "register _abc_caches_clear _abc_registry_clear _dump_registry"}),
    Row("abc", "inline", "update_abstractmethods"),
    Row("types", "inline", "new_class prepare_class resolve_bases _calculate_meta"),
    *skips("PL0006", "it registers how objects are copied", {"copyreg": "pickle constructor add_extension remove_extension"}),
    Row("_typing", "native", "*", reads="arguments"),
    Row("_stat", "native", "*", reads="arguments"),
    Row("_opcode", "native", "*", reads="arguments"),
    Row("_symtable", "native", "*", reads="arguments"),
    Row("_tokenize", "native", "*", reads="arguments"),
    Row("copyreg", "native", "_new_type", reads="arguments"),
    *skips("PL0032", "the import machinery", {"_imp": "*"}),
    Row(
        "sys",
        "native",
        "intern",
        reads="caches",
    ),
    Row("sys", "constant", "getdefaultencoding getfilesystemencoding getfilesystemencodeerrors _get_cpu_count_config", reads="process"),
    Row("sys", "constant", "_is_gil_enabled", reads="itself"),
    Row("sys", "constant", "getrecursionlimit getswitchinterval getdlopenflags is_finalizing get_int_max_str_digits", reads="itself"),
    *skips("PL0033", "it calls the hooks of whoever audits", {"sys": "audit"}),
    *skips(
        "PL0033",
        "it looks at the interpreter's own frames, counts or hooks, which differ while capturing",
        {
            "sys": "_getframe _current_frames _current_exceptions exc_info exception getrefcount getsizeof gettrace getprofile settrace"
            " setprofile call_tracing getallocatedblocks _getquickenedcount _debugmallocstats _clear_type_cache addaudithook excepthook"
            " displayhook breakpointhook unraisablehook __excepthook__ __displayhook__ __breakpointhook__ __unraisablehook__"
            " get_asyncgen_hooks set_asyncgen_hooks get_coroutine_origin_tracking_depth set_coroutine_origin_tracking_depth"
            " setrecursionlimit setswitchinterval setdlopenflags set_int_max_str_digits exit activate_stack_trampoline"
            " deactivate_stack_trampoline is_stack_trampoline_active getunicodeinternedsize _getframemodulename"
            " _setprofileallthreads _settraceallthreads _clear_internal_caches _is_interned _baserepl",
            "gc": "collect get_count get_objects get_referrers get_referents get_stats is_tracked is_finalized freeze unfreeze enable"
            " disable set_threshold set_debug",
            "_tracemalloc": "*",
            "faulthandler": "*",
            "atexit": "*",
        },
    ),
    *skips("PL0025", "context variables belong to the running task", {"_contextvars": "copy_context Context ContextVar Token"}),
    *skips("PL0025", "context variables belong to the running task", {"_contextvars.Context": "*", "_contextvars.Token": "*"}),
    Row("_contextvars.ContextVar", "skip", "*", "PL0025", "context variables belong to the running task"),
    *skips("PL0007", "what a weak reference gives is decided by the garbage collector", {"_weakref": "*", "_weakref.ReferenceType": "*"}),
    Row("gc", "constant", "isenabled get_threshold get_debug get_freeze_count", reads="itself"),
    *skips("PL0005", "a warning raised with a tensor or an explicit registry", {"_warnings": "warn warn_explicit"}),
    Row("_warnings", "symint", "_filters_mutated", reads="arguments"),
]

WORLD: list[Row] = [
    *skips("PL0023", "its answer changes from call to call", {"time": "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns"}),
    *skips(
        "PL0023", "its answer changes from call to call", {"time": "process_time process_time_ns thread_time thread_time_ns clock_gettime"}
    ),
    *skips(
        "PL0023", "its answer changes from call to call", {"time": "clock_gettime_ns pthread_getcpuclockid localtime gmtime ctime asctime"}
    ),
    *skips("PL0023", "it acts on or waits for the clock", {"time": "sleep clock_settime clock_settime_ns tzset"}),
    Row("time", "constant", "clock_getres get_clock_info", reads="process"),
    Row("time", "native", "struct_time", reads="arguments"),
    *skips("PL0023", "it reads the clock, the time zone or the locale", {"time": "mktime strftime strptime"}),
    Row("_datetime", "native", "date datetime time timedelta timezone tzinfo", reads="arguments"),
    *skips("PL0023", "its answer changes from call to call", {"_datetime.date": "today", "_datetime.datetime": "now utcnow today"}),
    *skips(
        "PL0023",
        "it reads the time zone or the locale",
        {
            "_datetime.date": "fromtimestamp strftime __format__",
            "_datetime.datetime": "timestamp astimezone fromtimestamp strptime strftime __format__",
            "_datetime.time": "strftime __format__",
        },
    ),
    *rows("native", {f"_datetime.{t}": "*" for t in ("date", "datetime", "time", "timedelta", "timezone", "tzinfo")}, reads="arguments"),
    *skips("PL0024", "it draws from Python's random number generator", {"_random": "Random", "_random.Random": "*"}),
    Row("genericpath", "inline", "_splitext _check_arg_types commonprefix"),
    *rows("native_python", {"pathlib._abc.PurePathBase": "*", "uuid.UUID": "*"}, reads="arguments"),
    *rows("native_python", {f"{of}.{name}": "*" for of in PATHS for name in ("PurePath", "_PathParents")}, reads="arguments"),
    *rows("native_python", {f"{of}.Path": "__new__ __init__" for of in PATHS}, reads="arguments"),
    *rows("native_python", {f"pathlib.{name}": "*" for name in ("_Flavour", "_PosixFlavour")}, reads="arguments"),
    *rows("native", dict.fromkeys(PATHS, "PurePath PurePosixPath PureWindowsPath Path PosixPath _PathParents"), reads="arguments"),
    Row("uuid", "native", "UUID", reads="arguments"),
    Row("posix", "native", "fspath _path_normpath major minor makedev strerror", reads="arguments"),
    Row("posix", "native", "WCOREDUMP WIFCONTINUED WIFSTOPPED WIFSIGNALED WIFEXITED", reads="arguments"),
    Row("posix", "native", "WEXITSTATUS WTERMSIG WSTOPSIG waitstatus_to_exitcode _path_splitroot _path_splitroot_ex", reads="arguments"),
    Row("posix", "constant", "cpu_count confstr sched_get_priority_max sched_get_priority_min", reads="process"),
    Row("posix", "constant", "getpid getcwd getcwdb uname sysconf", reads="itself"),
    Row(
        "posix", "native", "stat_result statvfs_result terminal_size times_result uname_result waitid_result sched_param",
        reads="arguments",
    ),
    *skips("PL0022", "it asks or changes the operating system", {"posix": "*"}),
    *skips("PL0022", "it reads from or writes to files", {"_io": "*"}),
    *skips(
        "PL0022",
        "it reads from or writes to files",
        {
            f"_io.{t}": "*"
            for t in "_IOBase _RawIOBase _BufferedIOBase _TextIOBase BytesIO StringIO FileIO TextIOWrapper BufferedReader BufferedWriter"
            " BufferedRandom BufferedRWPair IncrementalNewlineDecoder".split()
        },
    ),
    *skips("PL0025", "it starts, waits for or identifies threads", {"_thread": "*", "_thread.lock": "*", "_thread.RLock": "*"}),
    *skips("PL0025", "an object of its own in each thread", {"_thread._local": "*"}),
    *skips("PL0025", "a queue between threads", {"_queue": "*", "_queue.SimpleQueue": "*"}),
    *skips("PL0040", "it needs the running event loop", {"_asyncio": "*"}),
    *skips(
        "PL0022", "it talks to the network or to other processes", {"_socket": "*", "select": "*", "_posixsubprocess": "*", "_signal": "*"}
    ),
    *skips("PL0022", "it maps, locks or measures system resources", {"mmap": "*", "fcntl": "*", "resource": "*", "_uuid": "*"}),
    *skips("PL0022", "it reads or writes serialized objects", {"_pickle": "*", "marshal": "*"}),
    *skips("PL0004", "a compressor carries hidden state", {"_lzma": "*", "_bz2": "*"}),
    *skips("PL0004", "foreign code may do anything", {"_ctypes": "*"}),
    *skips("PL0022", "time zones are read from files", {"_zoneinfo": "*"}),
]

ROWS: list[Row] = ARITHMETIC + CONTAINERS + TEXT + INTROSPECTION + WORLD
