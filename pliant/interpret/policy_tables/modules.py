"""Python functions, by the module whose globals they run in: the longest prefix wins. What no rule covers is interpreted.

Rules for functions one by one are in `torch_python.py` and win over these. The default is `inline` on purpose: interpreted code can
do no harm, because whatever acts on the world ends in a C function that has a row of its own. `native_python` is for plumbing
whose answer depends on its arguments alone, `skip` for code that is sure to break anyway (better at the call than deep inside).
"""

from __future__ import annotations

from pliant.interpret.policy_tables.row import Policy

INLINE, NATIVE, GRAPH = Policy("inline"), Policy("native_python"), Policy("graph")


def skip(code: str, why: str) -> Policy:
    return Policy("skip", "new", code, why)


FILES = skip("PL0022", "it works on files, processes or the network")
THREADS = skip("PL0025", "it works with threads or other processes")
RANDOM = skip("PL0024", "it uses Python's random number generator")
SERIAL = skip("PL0022", "it reads or writes serialized objects")
TRANSFORMS = skip("PL0030", "a function transform captures by itself")
COMPILERS = skip("PL0030", "another compiler or tracer")
ARRAYS = skip("PL0026", "it works on arrays that the graph does not see")
EXOTIC = skip("PL0034", "sparse, nested and quantized tensors are not captured")
OUTPUT = skip("PL0005", "it writes to a log or formats a report")
FRAMES = skip("PL0033", "it looks at the interpreter's own frames")
CLOCK = skip("PL0023", "it reads the clock")

STDLIB: dict[str, Policy] = {
    # interpreted: small, plain, often called with callables or containers of the program
    "functools": INLINE, "contextlib": INLINE, "collections": INLINE, "_collections_abc": INLINE, "dataclasses": INLINE, "copy": INLINE,
    "itertools": INLINE, "operator": INLINE, "heapq": INLINE, "bisect": INLINE, "statistics": INLINE, "graphlib": INLINE, "os": INLINE,
    "fractions": INLINE, "string": INLINE, "pprint": INLINE, "warnings": INLINE, "reprlib": INLINE, "bdb": FRAMES, "__future__": INLINE,
    # plumbing
    "enum": NATIVE, "typing": NATIVE, "typing_extensions": INLINE, "abc": NATIVE, "_py_abc": NATIVE, "re": NATIVE, "sre_compile": NATIVE,
    "sre_parse": NATIVE, "inspect": NATIVE, "types": NATIVE, "numbers": NATIVE, "textwrap": NATIVE, "keyword": NATIVE, "posixpath": NATIVE,
    "ntpath": NATIVE, "importlib": NATIVE, "_weakrefset": NATIVE, "_pydecimal": NATIVE, "decimal": NATIVE, "calendar": NATIVE,
    "datetime": NATIVE, "_pydatetime": NATIVE, "json": NATIVE, "base64": NATIVE, "hashlib": NATIVE, "hmac": NATIVE, "struct": NATIVE,
    "colorsys": NATIVE, "html": NATIVE, "difflib": NATIVE, "shlex": NATIVE, "fnmatch": NATIVE, "urllib.parse": NATIVE, "token": NATIVE,
    "opcode": NATIVE, "stringprep": NATIVE, "unicodedata": NATIVE, "ipaddress": NATIVE, "copyreg": NATIVE, "linecache": NATIVE,
    "codecs": NATIVE, "encodings": NATIVE, "ast": NATIVE, "gettext": NATIVE, "locale": NATIVE,
    # the world
    "random": RANDOM, "secrets": RANDOM, "uuid": RANDOM, "tempfile": FILES, "genericpath": FILES, "pathlib": FILES, "shutil": FILES, "glob": FILES,
    "subprocess": FILES, "socket": FILES, "ssl": FILES, "select": FILES, "selectors": FILES, "signal": FILES, "io": FILES, "_pyio": FILES,
    "csv": FILES, "sqlite3": FILES, "zipfile": FILES, "tarfile": FILES, "gzip": FILES, "bz2": FILES, "lzma": FILES, "mmap": FILES, "urllib": FILES,
    "http": FILES, "email": FILES, "ftplib": FILES, "smtplib": FILES, "platform": FILES, "getpass": FILES, "configparser": FILES, "fileinput": FILES,
    "pickle": SERIAL, "shelve": SERIAL, "marshal": SERIAL, "dbm": SERIAL,
    "threading": THREADS, "_threading_local": THREADS, "queue": THREADS, "concurrent": THREADS, "multiprocessing": THREADS, "sched": THREADS,
    "contextvars": THREADS, "asyncio": skip("PL0040", "it needs the running event loop"),
    "logging": OUTPUT, "traceback": OUTPUT, "pdb": FRAMES, "cProfile": FRAMES, "profile": FRAMES, "trace": FRAMES, "tracemalloc": FRAMES,
    "dis": FRAMES, "gc": FRAMES, "weakref": skip("PL0007", "what a weak reference gives is decided by the garbage collector"),
    "time": CLOCK, "timeit": CLOCK, "ctypes": skip("PL0004", "foreign code may do anything"), "unittest": FRAMES, "argparse": FILES,
}  # fmt: skip

TORCH: dict[str, Policy] = {
    # torch itself: what is not listed below or in torch_python.py is interpreted
    "torch": INLINE,
    "torch.functional": GRAPH, "torch.nn.functional": GRAPH, "torch._tensor": GRAPH, "torch._linalg_utils": GRAPH, "torch._lowrank": GRAPH,
    "torch._lobpcg": GRAPH, "torch.signal": GRAPH, "torch.nn.init": GRAPH, "torch._refs": GRAPH, "torch._decomp": GRAPH, "torch._prims": GRAPH,
    "torch._meta_registrations": GRAPH, "torch._ops": GRAPH, "torch._VF": GRAPH, "torch.special": GRAPH, "torch.linalg": GRAPH, "torch.fft": GRAPH,
    "torch.masked": INLINE,
    "torch._custom_op": GRAPH, "torch._library": GRAPH, "torch.library": skip("PL0006", "it registers an operator for good"),
    "torch.nn": INLINE, "torch.nn.modules": INLINE, "torch.nn.utils": INLINE, "torch.nn.utils.rnn": INLINE, "torch.nn.attention": INLINE,
    "torch.nn.parameter": INLINE, "torch.nn.grad": GRAPH, "torch.nn.modules.lazy": skip("PL0006", "a lazy module changes its class at its first call"),
    "torch.nn.modules._functions": INLINE,
    "torch.nn.parallel": THREADS, "torch.nn.attention.flex_attention": TRANSFORMS,
    "torch.optim": INLINE, "torch.distributions": INLINE, "torch.amp": INLINE, "torch.cpu.amp": INLINE, "torch.cuda.amp": INLINE,
    "torch.utils._contextlib": INLINE, "torch.utils._pytree": INLINE, "torch.utils._cxx_pytree": INLINE, "torch.utils.checkpoint": INLINE,
    "torch.utils.data": THREADS, "torch.utils.hooks": skip("PL0027", "hooks on tensors or modules change what a call means"),
    "torch.utils._python_dispatch": TRANSFORMS, "torch.utils._foreach_utils": INLINE, "torch.utils._device": skip("PL0037", "a default device"),
    "torch.utils.tensorboard": FILES, "torch.utils.dlpack": ARRAYS, "torch.utils.benchmark": CLOCK, "torch.utils.cpp_extension": FILES,
    "torch.utils.model_zoo": FILES, "torch.utils.mobile_optimizer": COMPILERS, "torch.utils._triton": NATIVE, "torch.utils.backend_registration": NATIVE,
    "torch.utils._sympy": NATIVE, "torch.utils._traceback": FRAMES, "torch.utils._stats": NATIVE, "torch.utils._mode_utils": NATIVE,
    "torch.autograd": skip("PL0020", "it starts the autograd engine"),
    "torch.autograd.grad_mode": INLINE, "torch.autograd.function": INLINE, "torch.autograd.variable": INLINE, "torch.autograd.anomaly_mode": INLINE,
    "torch.autograd.graph": skip("PL0027", "it hooks into the autograd graph"),
    "torch.autograd.forward_ad": TRANSFORMS, "torch.autograd.functional": TRANSFORMS, "torch.autograd.profiler": skip("PL0033", "a profiler"),
    "torch.autograd.gradcheck": FRAMES,
    "torch._functorch": TRANSFORMS, "torch.func": TRANSFORMS, "torch._higher_order_ops": TRANSFORMS,
    "torch._dynamo": COMPILERS, "torch._inductor": COMPILERS, "torch._export": COMPILERS, "torch.export": COMPILERS, "torch.fx": COMPILERS,
    "torch._compile": INLINE, "torch.compiler": COMPILERS, "torch.jit": COMPILERS, "torch.onnx": COMPILERS, "torch._lazy": COMPILERS,
    "torch._subclasses": TRANSFORMS, "torch._guards": COMPILERS, "torch._logging": OUTPUT, "torch._tensor_str": skip("PL0005", "the text of a tensor"),
    "torch._prims_common": NATIVE, "torch.overrides": NATIVE, "torch._jit_internal": NATIVE, "torch._utils": NATIVE, "torch._utils_internal": NATIVE,
    "torch.types": NATIVE, "torch._sources": NATIVE, "torch.torch_version": NATIVE, "torch.version": NATIVE, "torch.return_types": NATIVE,
    "torch._environment": NATIVE, "torch._vendor": NATIVE, "torch._namedtensor_internals": EXOTIC, "torch._classes": COMPILERS,
    "torch.fx.experimental.symbolic_shapes": NATIVE, "torch.fx.experimental._config": NATIVE, "torch._streambase": THREADS,
    "torch._weights_only_unpickler": SERIAL, "torch.serialization": SERIAL, "torch.storage": skip("PL0039", "storages are not captured"),
    "torch.package": SERIAL, "torch.hub": FILES, "torch.multiprocessing": THREADS, "torch.distributed": skip("PL0028", "a collective"),
    "torch.futures": THREADS, "torch.random": skip("PL0024", "it reads or sets the state of torch's generators"),
    "torch.profiler": skip("PL0033", "a profiler"), "torch.monitor": OUTPUT, "torch.testing": INLINE, "torch.mtia": THREADS, "torch.mps": THREADS,
    "torch.xpu": THREADS, "torch.accelerator": skip("PL0029", "it acts on a device's streams or memory"),
    "torch.cuda": skip("PL0029", "it acts on the GPU's streams, memory or settings"), "torch.cpu": skip("PL0029", "it acts on streams"),
    "torch.backends": INLINE, "torch.backends._nnapi": COMPILERS,
    "torch.sparse": EXOTIC, "torch.nested": EXOTIC, "torch.quantization": EXOTIC, "torch.ao": INLINE, "torch.ao.quantization": EXOTIC,
    "torch._awaits": COMPILERS, "torch._numpy": ARRAYS, "torch._higher_order_ops.utils": TRANSFORMS, "torch._strobelight": FRAMES,
    "torch._thread_safe_fork": THREADS, "torch._python_dispatcher": TRANSFORMS, "torch._deploy": SERIAL, "torch._appdirs": FILES,
    "torch._size_docs": NATIVE, "torch._tensor_docs": NATIVE, "torch._torch_docs": NATIVE, "torch._opaque_base": NATIVE,
    "torch._native": NATIVE, "torch._openreg": THREADS,
}  # fmt: skip

OTHERS: dict[str, Policy] = {
    "numpy": ARRAYS, "scipy": ARRAYS, "pandas": ARRAYS, "PIL": FILES, "cv2": ARRAYS, "jax": ARRAYS, "jaxlib": ARRAYS, "cupy": ARRAYS, "sklearn": ARRAYS,
    "packaging": NATIVE, "regex": NATIVE, "sympy": NATIVE, "optree": INLINE, "einops": INLINE, "six": INLINE, "attr": INLINE, "attrs": INLINE,
    "transformers": INLINE, "transformers.utils.logging": NATIVE, "transformers.utils.import_utils": NATIVE, "transformers.utils.versions": NATIVE,
    "transformers.utils.hub": FILES, "transformers.dynamic_module_utils": FILES, "transformers.utils.deprecation": INLINE,
    "huggingface_hub": FILES, "requests": FILES, "httpx": FILES, "urllib3": FILES, "aiohttp": FILES, "filelock": THREADS, "tqdm": OUTPUT, "rich": OUTPUT,
    "loguru": OUTPUT, "absl.logging": OUTPUT, "tensorboard": FILES, "wandb": FILES, "matplotlib": OUTPUT, "pytest": FRAMES, "_pytest": FRAMES,
    "pluggy": FRAMES, "hypothesis": FRAMES, "IPython": FRAMES, "joblib": THREADS, "ray": THREADS, "dask": THREADS, "triton": COMPILERS,
    "tokenizers": FILES, "sentencepiece": FILES, "datasets": FILES, "safetensors": FILES, "yaml": FILES, "fbgemm_gpu": GRAPH,
    "pliant": skip("PL0003", "pliant does not compile itself"),
}  # fmt: skip

MODULE_RULES: dict[str, Policy] = {**STDLIB, **TORCH, **OTHERS}
DEFAULT = Policy("inline", explicit=False)


def module_policy(module: str | None) -> Policy:
    """The rule for functions whose globals belong to `module`."""
    while module:
        rule = MODULE_RULES.get(module)
        if rule is not None:
            return rule
        module = module.rpartition(".")[0]
    return DEFAULT
