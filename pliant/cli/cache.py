"""`pliant cache list|verify|prune`: what was compiled and is kept on this machine's disk."""

from __future__ import annotations

import argparse
import os

from rich.console import Console
from rich.table import Table

from pliant.codegen import cache
from pliant.jit.persist import inventory
from pliant.jit.persist.inventory import CODE, REFUSAL, Item

UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=["list", "verify", "prune"], help="show what is there; look for damage; remove what is of no use")
    parser.add_argument("--days", type=float, help="prune: also what was not used for so long")
    parser.add_argument("--mb", type=float, help=f"prune: then the least recently used, beyond so much ({cache.LIMIT_BYTES >> 20})")


def age(seconds: float) -> str:
    for unit, name in UNITS:
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name}"
    return "now"


def state(item: Item) -> str:
    return f"not kept: {item.state}" if item.kind == REFUSAL and not item.damaged else item.state


def show(found: list[Item], console: Console) -> None:
    entries = [i for i in found if i.kind != CODE]
    table = Table("function", "line", "ends with", "KB", "used", "")
    for i in sorted(entries, key=lambda i: (i.file, i.line)):
        where = f"{os.path.relpath(i.file) if i.file.startswith(os.getcwd()) else i.file}:{i.line}" if i.file else ""
        table.add_row(i.function or i.name, where, i.ends, f"{i.size / 1024:.0f}", age(i.used), state(i))
    if entries:
        console.print(table)
    kept = sum(i.kind == inventory.ENTRY for i in found)
    code = sum(i.kind == CODE for i in found)
    size = sum(i.size for i in found) / 2**20
    console.print(f"{cache.directory()}: {kept} entries, {code} files of machine code, {size:.1f} MB", soft_wrap=True, highlight=False)


def run(args: argparse.Namespace) -> int:
    console = Console()
    if why := cache.refusal():
        console.print(why, soft_wrap=True, highlight=False)
        return 1
    if args.what == "prune":
        count, size = inventory.prune(None if args.days is None else args.days * 86400, None if args.mb is None else int(args.mb * 2**20))
        console.print(f"{count} files removed, {size / 2**20:.1f} MB")
        return 0
    found = list(inventory.items())
    if args.what == "list":
        show(found, console)
        return 0
    damaged = [i for i in found if i.damaged]
    for i in damaged:
        console.print(f"{i.path}: {i.state}", soft_wrap=True, highlight=False)
    old = sum(bool(i.state) for i in found if i.kind == inventory.ENTRY and not i.damaged)
    console.print(f"{len(found)} files, {len(damaged)} damaged, {old} entries stale")
    return 1 if damaged else 0
