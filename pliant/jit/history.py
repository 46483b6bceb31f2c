"""What failed guards taught: the memory that makes the number of compiled entries converge.

A capture is specialized where the program's own decisions made it so. When such a decision turns out differently on a later call,
its guard fails, and the guard says what to do differently next time:

| what changed                               | from then on                                                          |
|--------------------------------------------|-----------------------------------------------------------------------|
| an int read from an object                 | at once: symbolic, and with it the other ints of the same list, and   |
|                                            | of the same argument unless that is a module                          |
| the identity of a Python function          | at once: its code and its closure are guarded instead                 |
| the static sizes of parameters or buffers  | at once: dynamic, all that have changed                               |
| a size that is 0 or 1                      | a graph for each; in the end open to all (`small_sizes.py`)           |
| a relation over sizes that a loop rests on | after BACKOFF failures: the loop stays in Python, its body is compiled |
| a relation over sizes, elsewhere           | after BACKOFF failures: both sides are one operation of the graph, or |
|                                            | the graph breaks there, both sides compiled                           |
| the length, or the keys, of something that | the same; a graph for each of a few short ones (`short_lists.py`)     |
| a loop walks                               |                                                                       |
| the same in a function that does hardly    | the graph breaks where it is called (`functions_apart.py`)            |
| anything with tensors                      |                                                                       |
| the length, or an item, of a list of       | at once: the list is an input there (`whole_lists.py`)                |
| numbers that becomes a tensor              |                                                                       |
| what a question about the process answers  | after SHORT_CUTS failures: the graph breaks where the program asks    |
| an object that is guarded itself, since it | at once: where it is a key, its item is found by whichever is there   |
| equals itself alone                        |                                                                       |
| a class that captured code makes, or what  | at once: opaque behind graph breaks, as are all values of a class of  |
| is of one, behind a graph break            | its name, in all pieces                                               |
| another constant                           | after TOLERANCE failures: opaque, its value never enters the graph;   |
|                                            | of ITEMS items of a list: all of them                                 |
"""

from __future__ import annotations

import collections
import contextlib
import sys
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from pliant import events
from pliant.bytecode import instructions, kind_at
from pliant.bytecode import kinds as K
from pliant.bytecode.natural_loops import loop_around, ways
from pliant.config import BACKOFF
from pliant.graph.originals import torch
from pliant.guards.guard import Guard, Site
from pliant.guards.source import Source, WeakPath, ending, faded, holder, places, unfaded
from pliant.interpret.actions import ACTIONS
from pliant.interpret.opaque import ClassName, class_name
from pliant.jit import branches
from pliant.jit.branches import Branches
from pliant.jit.changes import BY_IDENTITY, module_state
from pliant.jit.functions_apart import FEW, Calls, Functions
from pliant.jit.left_loops import LeftLoops
from pliant.jit.plain_python import PlainPython
from pliant.jit.raising_lines import RaisingLines
from pliant.jit.rations import Ration
from pliant.jit.resume import origin_of
from pliant.jit.short_lists import ShortLists
from pliant.jit.small_sizes import SmallSizes
from pliant.jit.weak_ids import WeakIdDict
from pliant.jit.whole_lists import WholeLists
from pliant.native import made_in_python
from pliant.symbolic.dims import Dim

TOLERANCE = {float: 2, int: 2, bool: 8, range: 1}
SHORT_CUTS = 3  # decisions of PyTorch's own code on a size: 0, 1 and others may each want a graph, and then there is peace
ITEMS = 4  # of a list, others by now, before all of them are opaque
OTHERS = 3  # str, objects compared by identity, …
STRUCTURE = {"LENGTH", "EMPTY", "DICT_KEYS", "SET_EQUALS", "DICT_CONTAINS", "DICT_LACKS", "DICT_LACKS_ITEM"}
WALKED = {"LENGTH", "DICT_KEYS"}
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
"""Dicts of modules whose keys are serial numbers: hooks that a call registers have others than those of the call before."""
CONSTANTS = {"EQ_MATCH", "ID_MATCH"}
BREAKABLE = ACTIONS.keys() - {K.FOR_ITER}
TO_LOOP = {
    K.CALL, K.NOP, K.GET_ITER, K.KEYWORDS, K.LOAD_LOCAL, K.LOAD_GLOBAL, K.LOAD_CONST, K.LOAD_METHOD, K.LOAD_ATTR, K.PUSH_NULL,
    K.LOAD_ITEM, K.COPY, K.LOAD_DEREF,
}  # fmt: skip
LEARNED = {"PL0015", "PL0016", "PL0017"}
"""Codes of graph breaks that are there for the number of versions alone."""
JUMPS = K.JUMPS - {K.FOR_ITER, K.SEND}
REACH = 16  # instructions


class Sites:
    """Instructions (by code object and byte offset) that are treated specially wherever they are interpreted in a region, and what else
    all of it shares."""

    def __init__(self) -> None:
        self.breaks: WeakIdDict[set[int]] = WeakIdDict()
        self.loops: WeakIdDict[set[int]] = WeakIdDict()
        self.failures: WeakIdDict[collections.Counter[int]] = WeakIdDict()
        self.branches = Branches()
        self.left_loops = LeftLoops()
        self.lists = ShortLists()
        self.numbers = WholeLists()
        self.plain = PlainPython()
        self.functions = Functions()
        self.made: set[ClassName] = set()  # classes that captured code makes: each of its calls makes others
        self.anew: set[ClassName] = set()  # those of which one was met behind a graph break, and then another one
        self.raising = RaisingLines()
        self.ration = Ration()
        self.endings: set[tuple | None] = set()  # of numbers that changed: the same attribute is found by other paths behind a break

    def fail(self, site: Site) -> int:
        counter = self.failures.get(site.code)
        if counter is None:
            counter = self.failures[site.code] = collections.Counter()
        counter[site.offset] += 1
        return counter[site.offset]

    def put(self, table: WeakIdDict[set[int]], code: CodeType, offsets: Iterable[int]) -> None:
        """Add instructions of a code object to `breaks` or `loops`."""
        found = table.get(code)
        if found is None:
            found = table[code] = set()
        found.update(offsets)


class History:
    """The memory of one code object that has entries: what the interpreter asks, and `learn`, which a miss feeds."""

    whole_loops = False  # whether loops on data may become operations of the graph
    on_mesh = False  # whether graphs run on the workers of a mesh
    joins = False  # whether both sides of a branch on data may be one operation of the graph (`joins_at`)
    gives_memory = False  # whether tensors from outside may be given other memory in the graph (`p.data = u`)
    counts_rounds = False  # whether loops over symbolic ranges do, and loops that write to memory from before (export)
    keeps_ones = False  # whether sizes of 0 and 1 stay so, though they are dynamic (export)
    open_dim: Dim | None = None  # the promise that sizes make which are open to 0 and 1 (export); None: what is asked of them is guarded
    unbroken = False  # whether what was learned may not break the graph (`fullgraph`): then there is one more version

    def __init__(self, sites: Sites, in_loop: bool = False) -> None:
        self.sites = sites
        self.in_loop = in_loop  # the body of a region loop: the ints of its state (counters, items) change from turn to turn
        self.dynamic: set[Source] = set()
        self.kin: set[Source] = set()  # lists and arguments of which some int has changed
        self.opaque: set[Source] = set()
        self.calls = Calls()
        self.places: dict[tuple, set[Source] | None] = {}  # items of lists that have changed (`source.places`); None: all there are opaque
        self.sometimes: dict[tuple, set[Source] | None] = {}  # the same of those that are tensors in some calls, and None in others
        self.once: dict[tuple, dict[Source, Any]] = {}  # items that were others at one miss
        self.keyed: set[Source] = set()  # where objects come from that equal themselves alone, and are others in each call
        self.small = SmallSizes()
        self.failures: collections.Counter[Source] = collections.Counter()
        self.joined: set[tuple[int, int]] = set()  # (id of a code, offset) of branches on numbers that the latest capture has whole

    # -- the interpreter's questions ----------------------------------------------------------------------------------------
    def is_dynamic(self, source: Source) -> bool:
        if source in self.dynamic or self.sites.endings and ending(source) in self.sites.endings:
            return True
        return self.in_loop and source.op == "index" and source.base is not None and source.base.op == "local"

    @property
    def anew(self) -> frozenset[ClassName]:
        """Names of classes that are others in each call. What an earlier part of the frame hands on of them is opaque."""
        return frozenset(self.sites.anew)

    @property
    def listed(self) -> frozenset[tuple]:
        """Places (`source.places`) in lists where flags, texts and what may be None are opaque."""
        return frozenset([where for where, items in self.places.items() if items is None])

    @property
    def absent(self) -> frozenset[tuple]:
        """Those where tensors are, too: each call has None in the place of others."""
        return frozenset([where for where, items in self.sometimes.items() if items is None])

    def saw_sizes(self, source: Source, shape: Iterable[int]) -> None:
        """The capture reads a tensor of this shape, whose sizes of 0 and 1 would be part of what is compiled."""
        for size in self.small.observe(source, shape):
            if size not in self.dynamic:
                self.note(self.dynamic, size, "open to 0 and 1")

    def varies(self, source: Source) -> bool:
        """Whether this int is known to be another in each call: it has changed, or it is carried by a loop that stays in Python."""
        s = source
        while self.in_loop and s.op == "index" and s.base is not None:
            s = s.base
        return s.op == "local" and s is not source or self.is_dynamic(source)

    def one_side(self, relations: Iterable[tuple[Any, Site | None]]) -> bool:
        """Whether an entry with these relations has one side alone of a branch that is captured whole by now."""
        return any([site is not None and (id(site.code), site.offset) in self.joined for _, site in relations])

    def is_static(self, source: Source) -> bool:
        """Whether the sizes of this tensor are part of what is compiled (the state of an export)."""
        return False

    def takes_whole(self, site: Site, likely: bool) -> bool:
        """Whether a list of numbers is one input at this instruction, which makes a tensor of it. `likely`: others will come."""
        return self.sites.numbers.takes(site, likely)

    def oracle(self) -> Any:
        """What answers questions that only the run could, one side of a branch after the other (export). None: nobody does."""
        return None

    def hot_side(self, site: Site) -> bool | None:
        """The side of a branch on data behind which the graph goes on. None: it ends there."""
        return self.sites.branches.hot_side(site)

    def joins_at(self, site: Site) -> bool:
        """Whether both sides of this branch are tried as one operation."""
        return branches.joins and self.hot_side(site) is None and not self.sites.branches.at(site).nested

    def counter_at(self, site: Site) -> Any:
        """What counts the sides that runs of this branch take, both of them being one operation. None: nothing is to be decided."""
        branch = self.sites.branches.at(site)
        return branch if branch.begins_joined() else None

    def branch_at(self, site: Site) -> Any:
        """What is known of the branch on data at this site."""
        return self.sites.branches.at(site)

    def python_behind(self, code: CodeType) -> bool:
        """Whether nothing is done with tensors behind the graph breaks of this code."""
        return self.sites.plain.alone(code)

    def refuse_exit(self, site: Site, why: str) -> None:
        """The other side of this branch cannot be an exit."""
        self.sites.branches.refuse(site, why)

    def watches(self, code: CodeType) -> bool:
        if self.unbroken:
            return False
        breaks, loops = self.sites.breaks, self.sites.loops
        if self.sites.functions.apart(code):
            return True
        return bool(breaks) and breaks.get(code) is not None or bool(loops) and loops.get(code) is not None

    def called_apart(self, code: CodeType) -> bool:
        """Whether the graph breaks in front of calls of this function."""
        return not self.unbroken and self.sites.functions.apart(code)

    def breaks_at(self, code: CodeType, offset: int) -> bool:
        return not self.unbroken and offset in (self.sites.breaks.get(code) or ())

    @property
    def ended(self) -> set[tuple]:
        """Lines (`Site.calls`) in front of which the graph ends, since it has raised there."""
        return set() if self.unbroken else self.sites.raising.ended

    def is_loop(self, code: CodeType, header: int) -> bool:
        return not self.unbroken and header in (self.sites.loops.get(code) or ())

    # -- learning -----------------------------------------------------------------------------------------------------------
    def learn(self, guards: Iterable[tuple[Guard, bool]], sites: Iterable[Site]) -> None:
        """What failed on one miss, over all entries, the newest first: guards (and whether it was the newest entry's), the
        sites of relations over sizes.

        Older entries were made before some lesson was learned: what they fail on says less.
        """
        first: dict[Source, tuple[Guard, bool]] = {}
        for guard, newest in guards:
            first.setdefault(guard.source, (guard, newest))
        for guard, newest in first.values():
            self.learn_guard(guard, newest)
        for site in {(id(s.code), s.offset): s for s in sites}.values():
            self.learn_site(site)

    def learn_guard(self, guard: Guard, newest: bool) -> None:
        source, kind, value = guard.source, guard.kind, guard.value
        if kind == "TENSOR_MATCH":
            if source not in self.dynamic and module_state(source) and any(n is not None for n in value.sizes):
                self.note(self.dynamic, source, "dynamic")
        elif (kind == "LENGTH" or source.op == "index") and self.sites.numbers.changed(guard.site):
            return
        elif kind == "EQ_MATCH" and type(value) in (int, float) and not self.is_dynamic(source):
            self.note(self.dynamic, source, "dynamic")
            self.remember((source,))
            if type(value) is int:
                self.kin.update(s for s in (source.base if source.op == "index" else None, holder(source)) if s is not None)
        elif kind == "ID_MATCH" and value is FunctionType:  # a function made anew: its code counts, not its identity
            if source not in self.dynamic:
                self.note(self.dynamic, source, "dynamic")
        elif not newest or (kind == "ID_MATCH" and (type(value) is ClassName or issubclass(value, type)) and not carried(source)):
            return  # a class that is made anew each time has no use as an unknown, unless an earlier part of the frame made it
        elif type(value) is ClassName and value in self.sites.made - self.sites.anew and carried(source):
            self.sites.anew.add(value)
            events.emit("policy", what="another class in each call", where=".".join(value))
        elif kind in WALKED and guard.site is not None and self.comes_and_goes(guard.site):
            self.sites.fail(guard.site)  # counted, so that it is split at once when there are too many
        elif kind in WALKED and guard.site is not None and (kind == "LENGTH" or value) and self.leaves_apart(guard.site):
            return  # (a dict that was empty is filled once)
        elif kind == "ID_MATCH" and equals_itself_alone(value) and self.comes_anew(source):
            return
        elif kind == "DICT_KEYS" and value and source.arg in HOOKS and guard.site is not None and self.learn_site(guard.site, True):
            return
        elif kind in STRUCTURE or kind == "ANSWER":
            if (guard.site is None or not self.learn_site(guard.site)) and kind != "ANSWER":
                self.tolerate(source, BACKOFF)
        elif source.op == "attr" and source.arg == "grad":
            return  # a tensor or None: a graph for each, and then there is peace
        elif kind in CONSTANTS or (kind == "TYPE_MATCH" and type(value) is ClassName and carried(source)):
            self.tolerate(source, TOLERANCE.get(type(value), OTHERS), few=kind == "EQ_MATCH" and type(value) is bool)

    def comes_anew(self, source: Source) -> bool:
        """Another object is at this source in each call. False: that was known, or it is no key that a call brings along."""
        if source.root.op != "local" or source in self.keyed:
            return False
        self.note(self.keyed, source, "another key in each call")
        return True

    def learn_pinned(self, lessons: Iterable[Lesson]) -> None:
        """A number is another than the one that was pinned where no instruction is to blame: nothing but the number can be left out."""
        for guard in [found.guard() for found in lessons]:
            if guard is not None:
                self.tolerate(guard.source, OTHERS)

    def learn_unread(self, source: Source) -> None:
        """An item was not there: keys that are worked out from what changes are others in each call, and none of them fails twice."""
        by_key = source.op == "key" or source.op == "item" and source.arg not in self.keyed
        if by_key and source.base is not None and source.base.op != "dict":
            self.tolerate(source.base, OTHERS)

    def tolerate(self, source: Source, times: int, few: bool = False) -> None:
        """Count a failure; beyond `times` the value is kept out of the graph. `few`: it has two values at most."""
        self.failures[source] += 1
        if carried(source) and not few:
            times = BACKOFF  # what a graph break or a loop carries along changes as a rule
        if self.failures[source] >= times and source not in self.opaque:
            self.note(self.opaque, source, "opaque")
        for where in places(source):
            self.learn_place(self.places, where, {source})

    def learn_places(self, changed: Iterable[tuple[Source, Any]]) -> None:
        """On one miss, flags, texts and what may be None were others at these sources in lists (and what they are: `changes.other_flag`).
        A list that is another once may have two ways to be; at the second miss it has many, of which a capture would know one each."""
        found: dict[tuple, dict[Source, Any]] = {}
        for source, what in changed:
            for where in places(source):
                found.setdefault(where, {})[source] = what
        for where, items in found.items():
            before = self.once.get(where)
            if before is None:
                self.once[where] = items
                continue
            before.update(items)
            self.learn_place(self.places, where, set(before))
            if {"comes", "goes"} <= {*before.values()}:
                self.learn_place(self.sometimes, where, {source for source, what in before.items() if what != "other"})

    def learn_place(self, known: dict[tuple, set[Source] | None], where: tuple, sources: set[Source]) -> None:
        """What is at these sources in one list is another by now."""
        items = known.setdefault(where, set())
        if items is not None:
            items |= sources
            if len(items) >= ITEMS:
                known[where] = None
                what = "opaque, as all items there are" if known is self.places else "opaque, as all tensors there are"
                events.emit("policy", what=what, where=next(iter(sources)).name)

    def learn_site(self, site: Site, at_once: bool = False) -> bool:
        """What the instruction at `site` rests on does not hold this time. False if nothing more can be done there. `at_once`: it will not
        hold again."""
        code = site.code
        if code is None or site.offset < 0:
            return False
        patience = 1 if self.sites.functions.impatient(origin_of(code)[0]) else BACKOFF
        n = self.sites.fail(site)
        if at_once:
            n = max(n, SHORT_CUTS, BACKOFF)
        header = loop_from(code, site.offset)
        if header is not None and not self.is_loop(code, header):
            if n >= patience:
                self.add(self.sites.loops, code, header, f"the loop at line {site.lineno} stays in Python")
                if kind_at(code, site.offset) in BREAKABLE:  # what is iterated is made by CPython as well: nothing rests on its length
                    self.add(self.sites.breaks, code, site.offset, f"what the loop at line {site.lineno} walks is made in Python")
            return True
        if kind_at(code, site.offset) not in BREAKABLE or self.breaks_at(code, site.offset):
            return False
        if n >= (patience if kind_at(code, site.offset) in JUMPS else SHORT_CUTS):
            self.add(self.sites.breaks, code, site.offset, f"the graph breaks at line {site.lineno}")
        return True

    def comes_and_goes(self, site: Site) -> bool:
        """Whether each length (each list of keys) that is met here gets a graph of its own."""
        return not self.sites.functions.impatient(origin_of(site.code)[0]) and self.sites.lists.come_and_go(site)

    def leaves_apart(self, site: Site) -> bool:
        """Whether the function that this instruction is in is called apart from now on: none of its operations, or none of what walks from
        there on, is given tensors."""
        if site.code is None:
            return False
        idle = self.calls.idle(site.code, site.offset) and self.sites.lists.many(site)
        found = self.calls.around(site.code, FEW if idle else 0)
        if found is None:
            return False
        self.sites.functions.call_apart(found)
        return True

    def breaks_in_loop(self, code: CodeType, offset: int) -> None:
        """The graph breaks at this instruction. If a `while` loop is around it, the loop is driven from outside of the code that is
        resumed: else each round would be called by the one before, and a thousand rounds are too deep a stack."""
        origin, shift = origin_of(code)
        header = loop_around(origin, offset - shift)
        if header is not None and kind_at(origin, header) is not K.FOR_ITER:
            self.add(self.sites.loops, origin, header, "the graph breaks in a while loop, which stays in Python")

    def remember(self, sources: Iterable[Source]) -> None:
        """The numbers at these sources change."""
        self.sites.endings.update(found for found in map(ending, sources) if found is not None)

    def note(self, where: set[Source], source: Source, what: str) -> None:
        where.add(source)
        events.emit("policy", what=what, where=source.name)

    def add(self, table: WeakIdDict[set[int]], code: CodeType, offset: int, what: str) -> None:
        if offset not in (table.get(code) or ()):
            if self.sites.functions.split(origin_of(code)[0]):
                self.sites.plain.leave(origin_of(code)[0])
            self.sites.put(table, code, (offset,))
            events.emit("policy", what=what, where=f"{code.co_filename}:{code.co_qualname}+{offset}")


def made_inside(cls: type) -> bool:
    """Whether a function made this class, so that each of its calls makes another. Exceptions are looked at while they fly: never."""
    return ("<locals>" in cls.__qualname__ or not_where_it_says(cls)) and not issubclass(cls, BaseException)


def equals_itself_alone(cls: Any) -> bool:
    """Whether a guard may be about the objects of this class because they are keys."""
    return type(cls) is not ClassName and made_in_python(cls) and cls.__hash__ in BY_IDENTITY


def is_class(value: Any) -> bool:
    return issubclass(type(value), type)  # `isinstance` would ask the value for its class


def not_where_it_says(cls: type) -> bool:
    """Whether its module has another thing under the name of this class, or none: `namedtuple("P", "a b")` in a function says `P`."""
    name, space = cls.__qualname__, getattr(sys.modules.get(cls.__module__), "__dict__", None)
    return type(space) is dict and "." not in name and space.get(name) is not cls


def carried(source: Source) -> bool:
    """Whether this value comes from an earlier part of the frame: a graph break or a loop carries it along."""
    return source.root.op == "local" and source.root.arg[1] == "state"


def origin(site: Site) -> tuple[CodeType, int]:
    """The user's instruction at a site."""
    code, shift = origin_of(site.code)
    return code, site.offset - shift


class TensorReference:
    """Which tensor it was, by its place alone: `swap_tensors` refuses tensors to which anybody has a weak reference. Another one in that
    place is taken for it, which keeps something from being learned, and makes nothing wrong."""

    __slots__ = ("place",)
    by_place = True
    gone = False  # nobody knows

    def __init__(self, t: Any) -> None:
        self.place = id(t)

    def holds(self, o: Any) -> bool:
        return id(o) == self.place


class Reference:
    """A weak reference to anything else."""

    __slots__ = ("there",)
    by_place = False

    def __init__(self, o: Any) -> None:
        self.there = weakref.ref(o)

    def holds(self, o: Any) -> bool:
        return self.there() is o

    @property
    def gone(self) -> bool:
        return self.there() is None


@dataclass(slots=True)
class Lesson:
    """What `learn` needs of a guard, without keeping the user's objects alive."""

    path: Source | WeakPath
    kind: str
    value: Any
    site: Site | None
    one: Reference | TensorReference | None = None  # the function, or whatever may be a key, that has to be there

    @property
    def gone(self) -> bool:
        return self.one is not None and self.one.gone

    def guard(self) -> Guard | None:
        """None: what it was about is gone."""
        source = unfaded(self.path)
        return None if source is None else Guard(source, self.kind, self.value, self.site)


def lesson(guard: Guard) -> Lesson:
    kind, value = guard.kind, guard.value
    one: Reference | TensorReference | None = None
    if kind == "ID_MATCH":
        if type(value) is FunctionType or equals_itself_alone(type(value)):
            with contextlib.suppress(TypeError):  # it has slots
                one = (TensorReference if issubclass(type(value), torch.Tensor) else Reference)(value)
        value = class_name(value) if is_class(value) and made_inside(value) else type(value)
    elif kind == "TYPE_MATCH":
        value = class_name(value) if made_inside(value) else None
    elif kind == "TENSOR_MATCH":
        value = value.bare()
    elif kind == "DICT_KEYS":
        value = bool(value)
    elif kind not in ("EQ_MATCH", "DICT_LACKS"):
        value = None
    return Lesson(faded(guard.source), kind, value, guard.site, one)


def pinned_numbers(relations: list[tuple[Any, Site | None]], symbols: dict[str, Source]) -> dict[int, tuple[Lesson, ...]]:
    """The floats that a relation without an instruction is about, by the relation's place: code that derives a graph has pinned them."""
    found = {}
    for i, (relation, site) in enumerate(relations):
        if site is None:
            floats = [symbols[s.name] for s in relation.symbols() if s.kind is float and s.name in symbols]
            if floats:
                found[i] = tuple(Lesson(faded(source), "EQ_MATCH", 0.0, None) for source in floats)
    return found


def changed_arguments(lessons: Iterable[Lesson], args: tuple) -> list[Guard]:
    """Constants among the arguments that are others by now: what a name or a key is worked out from, where nothing is found under it."""
    found = []
    for given in lessons:
        if given.kind == "EQ_MATCH" and type(given.path) is Source and given.path.op == "local":
            now = args[given.path.arg[0]]
            if type(now) is not type(given.value) or now != given.value:
                found.append(Guard(given.path, given.kind, given.value, given.site))
    return found


def loop_from(code: CodeType, offset: int) -> int | None:
    """The header of the loop that the instruction at `offset` begins or repeats, if it does."""
    code, shift = origin_of(code)
    offset -= shift
    found = instructions(code)
    at = next((k for k, i in enumerate(found) if i.offset >= offset), len(found))
    for n, i in enumerate(found[at:]):
        if n == 0 and i.kind in JUMPS and ways(found, at)[0] <= i.offset:
            return ways(found, at)[0]
        if i.kind is K.FOR_ITER:
            return i.offset
        if n >= REACH or i.kind not in TO_LOOP:
            return None
    return None
