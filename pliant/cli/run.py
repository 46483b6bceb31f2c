"""`pliant run script.py …`: a script, unchanged, with pliant in the place of `torch.compile`."""

from __future__ import annotations

import argparse
import pathlib
import runpy
import sys

import pliant


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stats", action="store_true", help="print captures, recompiles, graph breaks and fallbacks at the end")
    parser.add_argument("-m", dest="module", action="store_true", help="the script is the name of a module, as for python -m")
    parser.add_argument("script", help="a Python file (or a module, with -m)")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")


def run(args: argparse.Namespace) -> int:
    """Run the script as `__main__`. Its exceptions and its exit status are its own."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [args.script, *args.arguments]
    try:
        with pliant.install():
            if args.module:
                sys.path[0] = ""
                runpy.run_module(args.script, run_name="__main__", alter_sys=True)
            else:
                sys.path[0] = str(pathlib.Path(args.script).resolve().parent)
                runpy.run_path(args.script, run_name="__main__")
    finally:
        sys.argv, sys.path[:] = argv, path
        if args.stats:
            told = {k: v for k, v in pliant.stats().items() if v}
            print("pliant:", ", ".join(f"{k} {v}" for k, v in told.items()) or "nothing was compiled", file=sys.stderr)
    return 0
