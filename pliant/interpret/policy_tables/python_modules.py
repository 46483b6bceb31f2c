"""Python functions, by the module whose globals they run in: the longest prefix wins. What no rule covers is interpreted.

Rules for functions one by one are in `torch_python.py` and win over these. The default is `inline` on purpose: interpreted code can
do no harm, because whatever acts on the world ends in a C function that has a row of its own. `native_python` is for plumbing
whose answer depends on its arguments alone, `skip` for code that is sure to break anyway (better at the call than deep inside).
"""

from __future__ import annotations

from pliant.interpret.policy_tables.row import Policy

INLINE, NATIVE, GRAPH = Policy("inline"), Policy("native_python"), Policy("graph")
INSTALLED = Policy("native_python", reads="process")  # asks which libraries are there, and in which versions
ASKED = Policy("native_python", reads="itself")  # answers settings of its own


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


def of(policy: Policy, names: str) -> dict[str, Policy]:
    """One policy for several modules."""
    return dict.fromkeys(names.split(), policy)


DISABLED = skip("PL0021", "it was excluded with torch.compiler.disable, or compiled with torch.compile")

STDLIB: dict[str, Policy] = {
    **of(
        INLINE,
        "functools contextlib collections _collections_abc dataclasses copy itertools operator heapq bisect statistics graphlib "
        "os fractions string pprint warnings reprlib __future__ typing_extensions posixpath ntpath calendar locale gettext codecs "
        "encodings linecache _pydecimal _weakrefset copyreg numbers enum abc _py_abc",
    ),
    **of(FRAMES, "bdb pdb cProfile profile trace tracemalloc dis gc unittest"),
    **of(INLINE, "unittest.case unittest.util"),  # assertions
    **of(
        NATIVE,
        "typing re sre_compile sre_parse inspect types textwrap keyword decimal datetime _pydatetime json base64 hashlib hmac struct "
        "colorsys html difflib shlex fnmatch urllib.parse token opcode stringprep unicodedata ipaddress ast",
    ),
    **of(INSTALLED, "importlib.metadata importlib.resources"),
    **of(skip("PL0032", "an import may run any code"), "importlib importlib._bootstrap importlib._bootstrap_external pkgutil runpy"),
    **of(RANDOM, "random secrets uuid"),
    **of(
        FILES,
        "tempfile genericpath pathlib shutil glob subprocess socket ssl select selectors signal io _pyio csv sqlite3 zipfile "
        "tarfile gzip bz2 lzma mmap urllib http email ftplib smtplib platform getpass configparser fileinput argparse",
    ),
    **of(SERIAL, "pickle shelve marshal dbm"),
    **of(THREADS, "threading _threading_local queue concurrent multiprocessing sched contextvars"),
    **of(skip("PL0040", "it needs the running event loop"), "asyncio"),
    **of(OUTPUT, "logging traceback"),
    **of(skip("PL0007", "what a weak reference gives is decided by the garbage collector"), "weakref"),
    **of(CLOCK, "time timeit"),
    **of(skip("PL0004", "foreign code may do anything"), "ctypes"),
}

TORCH: dict[str, Policy] = {
    **of(DISABLED, "torch._compile torch._dynamo.eval_frame"),
    # it patches `nn.Module.__init__` when it is imported
    **of(INLINE, "torch._dynamo.comptime"),  # in eager nothing, or what it is told to do there
    **of(INLINE, "torch._dynamo.mutation_guard torch._dynamo.external_utils torch._functorch.functional_call torch.nn.utils.stateless"),
    **of(INLINE, "torch._functorch.apis torch._functorch.eager_transforms torch._functorch.vmap torch._functorch.predispatch"),
    **of(INLINE, "torch._export.db.examples"),  # models, which show what exporting takes
    **of(INLINE, "torch.func torch.autograd.forward_ad torch.autograd.functional torch._vmap_internals"),
    **of(
        INLINE,
        "torch torch.masked torch.nn torch.nn.modules torch.nn.utils torch.nn.utils.rnn torch.nn.attention torch.nn.parameter "
        "torch.nn.modules._functions torch.optim torch.distributions torch.amp torch.cpu.amp torch.cuda.amp "
        "torch.utils._contextlib torch.utils._pytree torch.utils._cxx_pytree torch.utils.checkpoint torch.utils._foreach_utils "
        "torch.autograd.grad_mode torch.autograd.function torch.autograd.variable torch.autograd.anomaly_mode "
        "torch.testing torch.backends torch.ao torch.signal",
    ),
    **of(
        GRAPH,
        "torch.functional torch.nn.functional torch._tensor torch._linalg_utils torch._lowrank torch._lobpcg "
        "torch.nn.init torch._refs torch._decomp torch._prims torch._meta_registrations torch._ops torch._VF torch.special "
        "torch.linalg torch.fft torch._custom_op torch._library torch.nn.grad",
    ),
    **of(skip("PL0006", "it registers an operator for good"), "torch.library"),
    **of(skip("PL0006", "a lazy module changes its class at its first call"), "torch.nn.modules.lazy"),
    **of(
        THREADS,
        "torch.nn.parallel torch.utils.data torch._streambase torch.multiprocessing torch.futures torch.mtia torch.mps torch.xpu "
        "torch._thread_safe_fork torch._openreg",
    ),
    **of(
        TRANSFORMS,
        "torch.utils._python_dispatch "
        "torch._functorch torch.func torch._higher_order_ops torch._subclasses torch._higher_order_ops.utils "
        "torch._python_dispatcher",
    ),
    **of(skip("PL0027", "hooks on tensors or modules change what a call means"), "torch.utils.hooks"),
    **of(skip("PL0037", "a default device"), "torch.utils._device"),
    **of(FILES, "torch.utils.tensorboard torch.utils.cpp_extension torch.utils.model_zoo torch.hub torch._appdirs"),
    **of(ARRAYS, "torch.utils.dlpack torch._numpy"),
    **of(CLOCK, "torch.utils.benchmark"),
    **of(
        COMPILERS,
        "torch.utils.mobile_optimizer torch._dynamo torch._inductor torch._export torch.export torch.fx torch.compiler torch.jit "
        "torch.onnx torch._lazy torch._guards torch._classes torch.backends._nnapi torch._awaits",
    ),
    **of(
        NATIVE,
        "torch.utils._triton torch.utils.backend_registration torch.utils._sympy torch.utils._stats torch.utils._mode_utils "
        "torch._prims_common torch.overrides torch._jit_internal torch._utils torch._utils_internal torch.types torch._sources "
        "torch.torch_version torch.version torch.return_types torch._environment torch._vendor "
        "torch.fx.experimental.symbolic_shapes torch.fx.experimental.sym_node torch.fx.experimental._config torch._size_docs "
        "torch._tensor_docs "
        "torch._torch_docs torch._opaque_base torch._native",
    ),
    **of(FRAMES, "torch.utils._traceback torch.autograd.gradcheck torch._strobelight"),
    **of(skip("PL0020", "it starts the autograd engine"), "torch.autograd"),
    **of(skip("PL0027", "it hooks into the autograd graph"), "torch.autograd.graph"),  # `torch_python.py` has those that do not break
    **of(skip("PL0033", "a profiler"), "torch.autograd.profiler torch.profiler"),
    **of(OUTPUT, "torch._logging torch.monitor"),
    **of(skip("PL0005", "the text of a tensor"), "torch._tensor_str"),
    **of(EXOTIC, "torch._namedtensor_internals torch.sparse torch.nested torch.quantization torch.ao.quantization"),
    **of(SERIAL, "torch._weights_only_unpickler torch.serialization torch.package torch._deploy"),
    **of(skip("PL0039", "storages are not captured"), "torch.storage"),
    **of(skip("PL0028", "a collective"), "torch.distributed"),
    **of(INLINE, "torch.distributed._functional_collectives torch.distributed.tensor.parallel.style"),
    **of(skip("PL0024", "it reads or sets the state of torch's generators"), "torch.random"),
    **of(skip("PL0029", "it acts on a device's streams or memory"), "torch.accelerator"),
    **of(skip("PL0029", "it acts on the GPU's streams, memory or settings"), "torch.cuda"),
    **of(skip("PL0029", "it acts on streams"), "torch.cpu"),
}

OTHERS: dict[str, Policy] = {
    **of(ARRAYS, "numpy scipy pandas cv2 jax jaxlib cupy sklearn"),
    **of(
        FILES,
        "PIL transformers.utils.hub transformers.dynamic_module_utils huggingface_hub requests httpx urllib3 aiohttp tensorboard "
        "wandb tokenizers sentencepiece datasets safetensors yaml",
    ),
    **of(NATIVE, "packaging regex sympy"),
    **of(INSTALLED, "transformers.utils.import_utils transformers.utils.versions"),
    **of(ASKED, "transformers.utils.logging"),
    **of(INLINE, "optree einops six attr attrs transformers transformers.utils.deprecation huggingface_hub.dataclasses"),
    **of(THREADS, "filelock joblib ray dask"),
    **of(OUTPUT, "tqdm rich loguru absl.logging matplotlib"),
    **of(FRAMES, "pytest _pytest pluggy hypothesis IPython"),
    **of(COMPILERS, "triton"),
    **of(GRAPH, "fbgemm_gpu"),
    **of(skip("PL0003", "pliant does not compile itself"), "pliant"),
    **of(INLINE, "pliant.cli pliant.jit.compiled_module pliant.interpret.in_torch pliant.interpret.in_python"),
    **of(NATIVE, "pliant.graph pliant.symbolic pliant.interpret.wrapped_functions"),
}

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
