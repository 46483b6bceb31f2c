"""The `pliant` command: one row of `COMMANDS` per subcommand.

A subcommand is a module with `add_arguments(parser)` and `run(args) -> exit status`. It is imported only when asked for,
because each needs packages that the others do not.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from pliant.errors import PliantError

COMMANDS = {
    "cache": ("pliant.cli.cache", "what was compiled and is kept on disk: list, verify, prune"),
    "demo": ("pliant.cli.demo", "embed real sentences with a real model, eager and compiled, and search them"),
    "export": ("pliant.cli.export", "a model to a file, torch.export, ONNX or StableHLO, and whether it answers as eager does"),
    "operator": ("pliant.cli.operator", "what pliant knows of an ATen operator: its row, and where each part is written"),
    "run": ("pliant.cli.run", "a script of yours, unchanged, with pliant in the place of torch.compile"),
}


def usage() -> str:
    rows = "\n".join(f"  {name:<10}{summary}" for name, (_, summary) in COMMANDS.items())
    return f"usage: pliant COMMAND [options]\n\ncommands:\n{rows}\n\n`pliant COMMAND --help` tells the options of one."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit status (2 for a wrong command line, as argparse does)."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        return 0 if words else 2
    if words[0] not in COMMANDS:
        print(f"pliant: there is no command {words[0]!r}\n\n{usage()}", file=sys.stderr)
        return 2
    module_name, summary = COMMANDS[words[0]]
    module = importlib.import_module(module_name)
    parser = argparse.ArgumentParser(prog=f"pliant {words[0]}", description=summary)
    module.add_arguments(parser)
    try:
        return module.run(parser.parse_args(words[1:]))
    except PliantError as error:
        if words[0] == "run":
            raise  # the script's own
        print(f"pliant: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
