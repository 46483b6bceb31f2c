"""pliant: a compiler for PyTorch programs whose shapes change. `pliant.compile(model)`, and nothing else to learn."""

import gc

from pliant import versions  # first: it refuses what the rest cannot run on

_collects = gc.isenabled()
gc.disable()  # nothing that modules make is garbage, and to look through all that PyTorch has made takes as long as the rest
try:
    from pliant.config import Config
    from pliant.dropin.install import install, uninstall
    from pliant.errors import PliantError
    from pliant.export import Program, export, load
    from pliant.jit.compile import compile, reset, stats, synchronize
    from pliant.jit.decorators import allow_in_graph, disable, graph_break, inline, is_compiling, skip
    from pliant.jit.dims import Dim, mark_dynamic, mark_static, mark_unbacked, maybe_mark_dynamic
    from pliant.jit.persist.archive import load_cache, save_cache
    from pliant.jit.stance import set_stance
    from pliant.report.explain import explain
    from pliant.report.logs import set_logs, set_logs_from_environment
finally:
    if not gc.get_freeze_count():  # what modules made counts as old at once, or the next two collections would look through it
        gc.freeze()
        gc.unfreeze()
    if _collects:
        gc.enable()
del gc, _collects

__version__ = "0.1.0.dev0"
__all__ = [
    "Config", "Dim", "PliantError", "Program", "__version__", "allow_in_graph", "compile", "disable", "explain", "export", "graph_break",
    "inline", "install", "is_compiling", "load", "load_cache", "mark_dynamic", "mark_static", "mark_unbacked", "maybe_mark_dynamic",
    "reset", "save_cache", "set_logs", "set_stance", "skip", "stats", "synchronize", "uninstall", "versions",
]  # fmt: skip

set_logs_from_environment()
