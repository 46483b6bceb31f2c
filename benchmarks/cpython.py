"""`python -m benchmarks.cpython [--modules list,dict]`: CPython's own tests (`Lib/test`), the body of every test method compiled.

Each module runs twice, in fresh worker processes: plainly, and with every `test_*` function of its classes given to `pliant.compile`
(`setUp` and its kind stay eager; what a method calls is captured by inlining). A method is called `--times` times, the later calls on
compiled code, and its outcomes (pass, fail, error, skip) have to be those of the plain run. Columns: `captured`, methods of which
something was compiled; `given up`, those of which pliant left some frame to CPython after an error of its own (with `--strict` that is a
difference). A method that takes too long, or ends the process, costs itself alone: the next worker goes on behind it. What is still
different, and why, is kept in `cpython_differences.json`; with `--state DIR` results of modules are kept there, and a run that was
stopped goes on.

python -m benchmarks.cpython --modules list,dict,set --json cpython.json
"""

from __future__ import annotations

import argparse
import collections
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pliant.cli import workers

METHOD_S = 60  # seconds for one method; another such time later its process ends
FIRST = "list dict set generators contextlib functools dataclasses enum"
OTHERS = """
abc array asyncgen augassign baseexception binascii binop bisect bool buffer builtin bytes call charmapcodec class cmath codecs
collections colorsys compare complex configparser contains context contextlib_async copy copyreg coroutines csv datetime decimal
decorators defaultdict deque descr descrtut dictcomps dictviews difflib dis dynamic dynamicclassattribute enumerate except_star
exception_group exception_hierarchy exception_variations exceptions extcall float flufl fnmatch format fractions frozen fstring funcattrs
generator_stop genericalias genericclass genexps getopt global grammar graphlib hash heapq hmac html htmlparser index int int_literal
ipaddress isinstance iter iterlen itertools json keyword keywordonlyarg listcomps long longexp math memoryview metaclass minidom module
named_expressions netrc ntpath numeric_tower opcodes operator optparse ordered_dict patma pep646_syntax pickle pickletools plistlib
positional_only_arg posixpath pow pprint print property pulldom quopri raise random range re reprlib richcmp sched scope secrets setcomps
shlex slice sort statistics strftime string string_literals stringprep strtod struct structseq subclassinit super symtable syntax textwrap
tomllib traceback tuple type_annotations type_comments typechecks types typing unary unicode unicode_identifiers unicodedata unpack
unpack_ex urlparse userdict userlist userstring weakref weakset with xdrlib yield_from
""".split()
MODULES = list(dict.fromkeys([*FIRST.split(), *OTHERS]))
DIFFERENCES = Path(__file__).with_name("cpython_differences.json")
Results = dict[str, dict[str, Any]]


# ------------------------------------------------------------------------------------------------------------------ one side
def side(module: str, how: str, times: int) -> tuple[Results, str]:
    """The outcomes of a module's methods, and what kept it from being loaded; a method that ends its worker has the outcome `died`."""
    found: Results = {}
    begun = ""
    while True:
        words = [module, how, "--times", str(times), "--behind", begun]
        outcome = workers.run("benchmarks.cpython_worker", words)
        for r in outcome.reports:
            if r["event"] == "begin":
                begun = r["name"]
            elif r["event"] == "method":
                found[r["name"]] = {k: v for k, v in r.items() if k not in ("event", "name")}
        if outcome.last("end") is not None:
            return found, ""
        if not begun:
            return found, (outcome.error.splitlines() or ["ended early"])[-1]
        if begun not in found:
            found[begun] = {"outcomes": ["died"], "texts": [outcome.error[-3000:]]}


def both(module: str, how: str, times: int, state: Path | None) -> dict[str, Any]:
    """One module: `{"plain", "compiled"}`, from the state folder if it is there."""
    kept = state / f"{module}.json" if state is not None else None
    if kept is not None and kept.exists():
        return dict(json.loads(kept.read_text()))
    before = state / f"{module}.plain.json" if state is not None else None
    if before is not None and before.exists():
        plain, failed = json.loads(before.read_text())
    else:
        plain, failed = side(module, "plain", times)
        if before is not None:
            before.write_text(json.dumps((plain, failed)))
    compiled = side(module, how, times)[0] if not failed else {}
    result = {"module": module, "plain": plain, "compiled": compiled, "not loaded": failed}
    if kept is not None:
        kept.write_text(json.dumps(result))
    return result


# ---------------------------------------------------------------------------------------------------------------- comparison
def compare(result: dict[str, Any], reasons: dict[str, str], times: int) -> dict[str, Any]:
    """How many methods came out the same, and each that did not."""
    counts: collections.Counter[str] = collections.Counter()
    different = []
    for name, plain in result["plain"].items():
        if set(plain["outcomes"]) & {"skip", "died", "slow"}:
            counts["not run"] += 1
            continue
        mine = result["compiled"].get(name, {"outcomes": ["missing"], "texts": []})
        counts["methods"] += 1
        counts["captured"] += bool(mine.get("captures"))
        counts["given up"] += bool(mine.get("fallbacks"))
        n = min(len(plain["outcomes"]), times)  # a state folder may know of more calls
        if mine["outcomes"][:n] == plain["outcomes"][:n]:
            counts["same"] += 1
            continue
        counts["different"] += 1
        counts["explained"] += name in reasons
        different.append({"name": name, "plain": plain["outcomes"], "compiled": mine["outcomes"], "texts": mine["texts"][:2]})
        if name in reasons:
            different[-1]["reason"] = reasons[name]
    return {"module": result["module"], **counts, "differences": different, "not loaded": result["not loaded"]}


def show(rows: list[dict[str, Any]], console: Console) -> None:
    columns = ("methods", "same", "different", "explained", "captured", "given up", "not run")
    total = {c: sum(r.get(c, 0) for r in rows) for c in columns}
    share = 100 * total["same"] / max(total["methods"], 1)
    shown = Table(title=f"{total['same']} of {total['methods']} methods the same ({share:.2f}%)")
    for heading in ("module", *columns):
        shown.add_column(heading, justify="left" if heading == "module" else "right")
    for r in rows:
        if r["not loaded"]:
            shown.add_row(r["module"], r["not loaded"][:60])
        else:
            shown.add_row(r["module"], *[str(r.get(c, "") or "") for c in columns])
    shown.add_row("all", *[str(total[c]) for c in columns], style="bold")
    console.print(shown)
    for r in rows:
        for d in r["differences"]:
            last = (" ".join(d["texts"][0].split()) if d["texts"] else "")[-230:]
            why = d.get("reason") or last
            console.print(f"{d['name']}: {d['plain']} -> {d['compiled']}: {why}", markup=False, soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", help="names without `test_`, comma separated; `first`: the eight that come first (all)")
    parser.add_argument("--times", type=int, default=2, help="calls of each method")
    parser.add_argument("--strict", action="store_true", help="pliant's own errors are errors of the method")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="worker processes")
    parser.add_argument("--state", type=Path, help="folder in which results of modules are kept")
    parser.add_argument("--json", help="every difference with its text")
    args = parser.parse_args()
    names = MODULES if not args.modules else FIRST.split() if args.modules == "first" else args.modules.split(",")
    if args.state is not None:
        args.state.mkdir(parents=True, exist_ok=True)
    reasons = {k: v for group in json.loads(DIFFERENCES.read_text()) for k, v in dict.fromkeys(group["methods"], group["reason"]).items()}
    how = "strict" if args.strict else "compiled"
    with ThreadPoolExecutor(args.jobs) as pool:
        rows = [compare(r, reasons, args.times) for r in pool.map(lambda m: both(m, how, args.times, args.state), names)]
    show(rows, Console(width=180))
    if args.json:
        with open(args.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
