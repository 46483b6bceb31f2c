"""Graph breaks, by code: what each means and what to do about it.

A graph break is not an error: the code before it is one compiled graph, the breaking instruction runs in CPython, and the code after
it is another compiled graph. Each costs a little time per call and stops fusion across it. `docs/graph-breaks.md` is made from this
table and from what `benchmarks.break_codes` has counted, and a test keeps them in step.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import NamedTuple

from pliant.guards.guard import Site


class BreakInfo(NamedTuple):
    """What a code means: a title, why the graph cannot go on, and what the user can do (best first)."""

    title: str
    explanation: str
    hints: tuple[str, ...]


BREAKS: dict[str, BreakInfo] = {
    "PL0001": BreakInfo(
        "Branch on the value of a tensor",
        "Python asked whether a tensor is true (`if`, `while`, `assert`, `and`, `bool()`), and the answer is known only when the graph"
        " runs.",
        (
            "Compute both sides and choose with `torch.where(condition, a, b)`.",
            "If the condition must hold, say so with `torch._check(...)` or drop the assertion from compiled code.",
        ),
    ),
    "PL0002": BreakInfo(
        "Python needs a number that only the data knows",
        "A value read from a tensor (`item()`, `tolist()`, a size that depends on data) decided something that Python must know now: a"
        " branch, a loop count, an index of a list.",
        (
            "Keep the value in tensors: index, mask or scatter instead of looping over it.",
            "State what is known of it with `torch._check(...)`, for instance that it is at least 0 or at most another size.",
        ),
    ),
    "PL0003": BreakInfo(
        "Call of a function that is not captured",
        "The function acts on state that the compiler does not model, so it must run in CPython.",
        (
            "Move the call out of the compiled function, before or after it.",
            "If it only computes its result from its arguments, mark it with `pliant.allow_in_graph(fn)`.",
        ),
    ),
    "PL0004": BreakInfo(
        "Call of a C function that nobody has vouched for",
        "It is implemented in C, so it cannot be interpreted, and it is not in the table of functions known to be pure.",
        (
            "If it depends only on its arguments and changes nothing, mark it with `pliant.allow_in_graph(fn)`.",
            "Otherwise call it outside the compiled function.",
            "If it belongs to Python or PyTorch, a row in `pliant/interpret/policy_tables/` teaches it to pliant.",
        ),
    ),
    "PL0005": BreakInfo(
        "Output that cannot wait for the end of the graph",
        "What is printed, warned of or logged is told in order when the graph has run. It cannot wait where its text needs the data of a"
        " tensor, or where code of the program hears of it: a stream, a logger, a handler or a `showwarning` of its own.",
        (
            "Print shapes and dtypes (`x.shape`), or numbers: `print(f'{loss.item():.3f}')` does not break.",
            "Print the value after the compiled function has returned it.",
            "Streams and handlers of Python's own library do not break the graph.",
        ),
    ),
    "PL0006": BreakInfo(
        "Write to an object that cannot be shadowed",
        "Writes are held back until the graph has run, so that a capture can always be abandoned. This object keeps its state where pliant"
        " cannot hold a write back: slots, C fields, a class, a function, a module being rebuilt.",
        (
            "Keep the state in an attribute of a plain Python object, in a list or in a dict.",
            "Do the write before or after the compiled function.",
        ),
    ),
    "PL0007": BreakInfo(
        "Read of state that cannot be guarded",
        "The object keeps its state in C, or hands it out all at once, so the compiled code could not notice a later change.",
        (
            "Read it before the compiled function and pass the value in.",
            "Use a plain list, dict or attribute in its place.",
        ),
    ),
    "PL0008": BreakInfo(
        "Generator that outlives its frame",
        "A generator or coroutine that existed before the capture, or that must stay suspended across a graph break, holds a frame of"
        " CPython"
        " that cannot be taken apart.",
        (
            "Create and exhaust the generator inside one compiled region.",
            "Make a list of its items where the number of items is small.",
        ),
    ),
    "PL0009": BreakInfo(
        "Instruction that is not interpreted",
        "The bytecode holds an instruction that pliant's interpreter does not know for this version of Python.",
        ("Please report it with the line shown: every instruction that the compiler of Python emits should be known.",),
    ),
    "PL0010": BreakInfo(
        "Calls nested too deep",
        "Interpreted calls are nested deeper than pliant follows, most often because of recursion.",
        (
            "Turn the recursion into a loop.",
            "Exclude the recursive function with `pliant.disable(fn)`.",
        ),
    ),
    "PL0011": BreakInfo(
        "Operation or tensor that cannot be traced",
        "A tensor subclass of which docs/subclasses.md says so, or an operator for which no shape can be computed without running it,"
        " met the graph.",
        (
            "Give a custom operator a shape function with `torch.library.register_fake`.",
            "Under autocast, say what it is to do with a custom operator (`torch.library.register_autocast`): graphs run without it.",
            "Convert the subclass to a plain tensor before the compiled function.",
        ),
    ),
    "PL0012": BreakInfo(
        "Attribute of a tensor outside the graph",
        "The program read or changed something of a tensor that is not its data: `.grad`, `requires_grad`, `.data`, its identity.",
        (
            "Do it before or after the compiled function.",
            "Use `x.detach()` in place of `x.data`, and `copy_` in place of assigning `.data`.",
        ),
    ),
    "PL0013": BreakInfo(
        "Class made while running",
        "A `class` statement is captured like other code, and the class is made anew in each call. Not so where the metaclass, the bases or"
        " a decorator run code that is not interpreted, or where the class cannot be made again behind the graph."
        " The bound or default of a type parameter, and what a `type` statement stands for, are worked out where they are first asked for:"
        " there the graph breaks, too.",
        ("Define the class at module level.",),
    ),
    "PL0014": BreakInfo(
        "Whole namespaces, `exec` or `eval`",
        "`locals()`, `exec`, `eval`, `compile`, and what works on all of `globals()`, use a whole namespace: no guard names it.",
        (
            "Name the variables that you need.",
            "Make the code object or table once, outside the compiled function.",
        ),
    ),
    "PL0015": BreakInfo(
        "Decision that kept changing",
        "A branch on a size or on a plain value went the other way several times. Instead of making one more version of the whole function,"
        " the graph was split at the branch; both sides are compiled and no further recompile happens here.",
        (
            "Nothing must be done: this is how the number of versions stays bounded.",
            "Where its sides only compute tensors and numbers, both are in one graph instead: `PLIANT_LOGS=loops` says what is in the way.",
            "If the branch only chooses between equivalent code paths, remove it.",
        ),
    ),
    "PL0016": BreakInfo(
        "Loop whose trip count keeps changing",
        "The loop was unrolled once, then its number of rounds changed. Now the loop itself runs in Python and its body is a compiled"
        " region.",
        (
            "Nothing must be done: the body stays compiled for every trip count.",
            "Replace the loop by a batched operation (stack the items first) to compile it whole.",
        ),
    ),
    "PL0017": BreakInfo(
        "Value that changes on every call",
        "An attribute, global or argument had another value on almost every call (a step counter, a name, a time stamp). It is no longer"
        " guarded, and the graph ends where the value itself is used.",
        (
            "Pass the value as a tensor or as an int or float argument if it takes part in arithmetic.",
            "Use it outside the compiled function (logging, bookkeeping).",
        ),
    ),
    "PL0018": BreakInfo(
        "A real tensor slipped into the capture",
        "A tensor reached the graph through a door that cannot be guarded (a cache, a C iterator, thread-local storage). Taking it as a"
        " constant could give a wrong answer later, so the graph ends.",
        (
            "Pass the tensor as an argument, or keep it as an attribute of a module or in a global variable.",
            "Call the function that hands it out before the compiled function.",
        ),
    ),
    "PL0019": BreakInfo(
        "A break that you asked for",
        "The program called `graph_break()`, which ends the graph at that line.",
        ("Remove the call when you no longer need it.",),
    ),
    "PL0020": BreakInfo(
        "The autograd engine is started inside",
        "`backward()` runs hooks and writes `.grad` fields in an order that the engine decides when it runs.",
        (
            "Compile the forward pass and the loss, and call `backward()` on the result: the backward pass is compiled too.",
            "Use `torch.autograd.grad(...)`, which returns the gradients, inside compiled code.",
        ),
    ),
    "PL0021": BreakInfo(
        "Function that you excluded",
        "It was marked with `pliant.disable` or `pliant.skip`, so it runs in CPython.",
        ("Remove the mark, or use `pliant.inline(fn)`, to have it captured.",),
    ),
    "PL0022": BreakInfo(
        "Files, processes, the network or the terminal",
        "Input and output must happen at the time and in the order that the program says, every time it runs.",
        (
            "Read inputs before, and write results after the compiled function.",
            "`print` and `logging` of plain values do not break; use them for progress messages.",
        ),
    ),
    "PL0023": BreakInfo(
        "Reading or waiting for the clock",
        "The answer differs at every call, so it cannot be part of a graph, and waiting cannot be reordered with computing.",
        (
            "Take times around the compiled function.",
            "Use `torch.profiler` to see time inside it.",
        ),
    ),
    "PL0024": BreakInfo(
        "State of a random number generator",
        "A read or write of the state of a generator of a device, of NumPy or of Python, or a draw that picks an object (`choice`,"
        " `shuffle`, `sample`) or bits from the shared one."
        " Random tensors (`torch.rand`, dropout…) do not break, nor numbers of Python's `random` (`random()`,"
        " `randint`, `uniform`, `gauss`, `seed`).",
        (
            "Draw random numbers with torch operators: `torch.rand`, `torch.randint`, `torch.randperm`.",
            "Seed before the compiled function.",
        ),
    ),
    "PL0025": BreakInfo(
        "Threads, locks and context variables",
        "What happens depends on which thread or task runs the code, and on others that run at the same time.",
        (
            "Take the lock, or start the thread, outside the compiled function.",
            "Pass the value of a context variable or of a `threading.local` as an argument.",
        ),
    ),
    "PL0026": BreakInfo(
        "Arrays of another library",
        "Arrays of NumPy are inputs of the graph, and most of its functions run in it; this function, keyword, dtype or value does not. "
        "DLPack and other libraries see memory directly, and the graph has no memory until it runs.",
        (
            "Write this step with torch operators, or with a function of NumPy that runs in the graph (`pliant.interpret.arrays`).",
            "Convert with `torch.from_numpy` before, and with `.numpy()` after the compiled function.",
        ),
    ),
    "PL0027": BreakInfo(
        "Hooks on tensors, modules or the autograd graph",
        "A hook is Python code that runs at another time than where it is written.",
        (
            "Register hooks before compiling; hooks of modules that exist by then are interpreted like other code.",
            "Hooks on tensors that are made inside, and `saved_tensors_hooks`, do not break the graph if they do nothing but compute.",
            "A hook on a result that another result comes from does: gradients that are asked of it pass by the hook.",
            "Write what the hook does into `forward`, or use a `torch.autograd.Function`.",
        ),
    ),
    "PL0028": BreakInfo(
        "Communication between processes",
        "A collective of `torch.distributed` must be started by every process at the same place.",
        (
            "Call it between compiled regions.",
            "Functional collectives (`torch.distributed._functional_collectives`) are ordinary operators.",
            "Distributed tensors (`DTensor`) are in the graph; what of them breaks it is in docs/distributed.md.",
        ),
    ),
    "PL0029": BreakInfo(
        "Streams, synchronization and device memory",
        "It acts on the order of work on a device, or on its memory, and not on tensors.",
        ("Choose device and stream, and synchronize, outside the compiled function.",),
    ),
    "PL0030": BreakInfo(
        "Another tracer or transform",
        "`torch.fx`, `torch.export` and their like capture a function by themselves. Transforms of `torch.func`, `torch.cond`,"
        " `while_loop`, `map`, `scan` and `flex_attention` are captured, but for what PyTorch refuses and what docs/transforms.md lists.",
        (
            "Apply the transform to the function first, and run it outside the compiled region.",
            "Inside compiled code, write plain Python: control flow on sizes needs no `torch.cond`.",
        ),
    ),
    "PL0032": BreakInfo(
        "Import with side effects",
        "The imported module is not loaded yet, so importing it runs its code. Imports of modules that are loaded already do not break.",
        ("Import at the top of the file.",),
    ),
    "PL0033": BreakInfo(
        "Looking at the interpreter itself",
        "Frames, reference counts, profilers and the garbage collector look different while pliant captures.",
        ("Do it outside the compiled function.", "Use `pliant.explain` to see what was compiled."),
    ),
    "PL0034": BreakInfo(
        "Sparse, nested or quantized tensor",
        "These layouts have no symbolic form in the graph.",
        ("Convert to a dense tensor before the compiled function (`to_dense()`, `to_padded_tensor(...)`, `dequantize()`).",),
    ),
    "PL0035": BreakInfo(
        "Value that cannot be carried over",
        "A value that is alive at this point (in a variable or on the stack) cannot be rebuilt by the code that follows the graph.",
        ("Move the value into a tensor, a number, a string, a list, tuple or dict, or a plain Python object.",),
    ),
    "PL0037": BreakInfo(
        "Global setting of torch",
        "It changes how every later operation behaves: matmul precision, dispatch keys, a default dtype inside of a transform.",
        ("Set it once, before compiling. Grad mode, autocast, default dtype and device, and determinism may be set inside.",),
    ),
    "PL0038": BreakInfo(
        "TorchScript",
        "A scripted function is run by an interpreter of its own, which takes fixed sizes.",
        ("Call the Python function that was scripted.",),
    ),
    "PL0039": BreakInfo(
        "The memory behind a tensor",
        "`resize_`, `set_`, storages and data pointers change or show memory, which the graph plans by itself.",
        ("Make a new tensor (`torch.empty`, `x.new_zeros`) and copy into it.",),
    ),
    "PL0040": BreakInfo(
        "Coroutines and the event loop",
        "`async` code is suspended and resumed by an event loop. It runs uncompiled, and correctly.",
        ("Compile the plain functions that the coroutine calls.",),
    ),
    "PL0041": BreakInfo(
        "Exception raised by an operator inside `try`",
        "A torch operator refused its arguments and the program has a handler for it. The real call is left to raise the real exception, so"
        " that the handler sees the message and type that eager PyTorch gives. Also: the line has raised when graphs ran, more than once"
        " where the frame handled it, or often; in front of it the graph ends, or each such call would run as a graph and in CPython.",
        ("Check the condition (a shape, a dtype) before the call in place of catching the error.",),
    ),
    "PL0042": BreakInfo(
        "Code that runs when an object ends",
        "When the last reference to a generator half way through or to an object with a `__del__` goes, code of the program runs. That has"
        " to happen at its place among everything else that the program does.",
        (
            "Close the generator (`g.close()`) or let it run to its end.",
            "Use a context manager in place of `__del__`.",
        ),
    ),
    "PL0043": BreakInfo(
        "List that a loop on data has grown",
        "How long it is only the run knows. The graph makes the list; behind the break it is an ordinary one.",
        ("Make a tensor of it first (`torch.stack`, `torch.cat`, `torch.tensor`), or ask for its length or for an item alone.",),
    ),
}


def format_break(code: str, reason: str, site: Site | None = None, user_stack: Sequence[str | Site] = ()) -> str:
    """One readable page on one graph break: what happened, where, why and what to do.

    `user_stack` holds the user's frames, outermost first; without it, the outer sites of `site` are shown. An unknown code is
    printed with its reason alone.
    """
    info = BREAKS.get(code)
    lines = [f"Graph break {code}: {info.title if info else reason}"]
    if info is not None and reason:
        lines.append(f"  what: {reason}")
    if site is not None:
        lines.append(f"  where: {site}")
    stack = list(user_stack)
    if not stack and site is not None and site.outer is not None:
        outer: Site | None = site.outer
        while outer is not None:
            stack.insert(0, outer)
            outer = outer.outer
    if stack:
        lines.append("  called from:")
        lines += [f"    {s}" for s in stack]
    if info is not None:
        lines.append(f"  why: {info.explanation}")
        lines += [f"  fix: {hint}" for hint in info.hints]
        lines.append(f"  more: docs/graph-breaks.md#{code.lower()}")
    return "\n".join(lines)


def docs_page(corpora: dict[str, dict]) -> str:
    """`docs/graph-breaks.md`, made from the table and from what `benchmarks.break_codes` has counted: for each corpus the `programs` that
    it has, those `without` a break, and those that have `met` each code."""
    out = [
        "# Graph breaks",
        "",
        "A graph break ends one compiled graph and starts another. It is not an error: the code before it is compiled, the breaking",
        "instruction runs in CPython, and the code after it is compiled. `fullgraph=True` turns breaks into errors, `PLIANT_LOGS=breaks`",
        "prints each with its line, and `pliant.explain(fn, *args)` lists those of one call.",
        "",
        "This page is made from `pliant/interpret/breaks.py` and `benchmarks/break_codes.json`, which says how many programs of each",
        "corpus meet a code in their first two or three calls (`benchmarks.break_codes`): other people's models, the programs of the",
        "benchmarks, and those of the tests and random ones, which ask for breaks. After a change of either:",
        "`python -m pliant.interpret.breaks docs/graph-breaks.md benchmarks/break_codes.json`.",
        "",
        "| code | what | " + " | ".join(f"{name}, of {c['programs']:,}" for name, c in corpora.items()) + " |",
        "|---|---|" + "---:|" * len(corpora),
    ]

    def row(first: str, numbers: list[int]) -> str:
        return f"| {first} | " + " | ".join(f"{n:,}" if n else "" for n in numbers) + " |"

    for code, info in BREAKS.items():
        out.append(row(f"[{code}](#{code.lower()}) | {info.title}", [c["met"].get(code, 0) for c in corpora.values()]))
    out.append(row(" | no break", [c["without"] for c in corpora.values()]))
    for code, info in BREAKS.items():
        out += ["", f"## {code}", "", f"**{info.title}.** {info.explanation}", "", "What to do:", ""]
        out += [f"- {hint}" for hint in info.hints]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    with open(sys.argv[2], encoding="utf-8") as counts, open(sys.argv[1], "w", encoding="utf-8") as page:
        page.write(docs_page(json.load(counts)))
