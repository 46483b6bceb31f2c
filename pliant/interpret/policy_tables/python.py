"""Python's builtins: functions, types and the methods of types.

Rows here say what happens when nothing better is known; the interpreter replaces many of them by lookasides (`len`, `isinstance`,
`getattr`, `print`…), which win over every row.
"""

from __future__ import annotations

from pliant.interpret.policy_tables.row import Row, rows, skips

# Methods that change the object they belong to. On an object of the outside world they may run only on its shadow.
MUTATORS: dict[str, str] = {
    "builtins.list": "append clear extend insert pop remove reverse sort __setitem__ __delitem__ __iadd__ __imul__ __init__",
    "builtins.dict": "clear pop popitem setdefault update __setitem__ __delitem__ __ior__ __init__",
    "builtins.set": "add clear difference_update discard intersection_update pop remove symmetric_difference_update update"
    " __iand__ __ior__ __isub__ __ixor__ __init__",
    "builtins.bytearray": "append clear extend insert pop remove reverse __setitem__ __delitem__ __iadd__ __imul__ __init__",
    "collections.deque": "append appendleft clear extend extendleft insert pop popleft remove reverse rotate"
    " __setitem__ __delitem__ __iadd__ __imul__ __init__",
    "collections.OrderedDict": "clear move_to_end pop popitem setdefault update __setitem__ __delitem__ __ior__ __init__",
    "collections.defaultdict": "__missing__ __ior__ __init__",
    "array.array": "append byteswap extend frombytes fromfile fromlist fromunicode insert pop remove reverse"
    " __setitem__ __delitem__ __iadd__ __imul__",
}

CHANGING = frozenset(name for names in MUTATORS.values() for name in names.split())

FUNCTIONS: list[Row] = [
    # They call operators and hold results, so a symbolic int passes through.
    Row("builtins", "symint", "abs all any divmod max min pow round sum sorted len iter next aiter anext", reads="arguments"),
    Row("builtins", "native", "ascii bin chr format hash hex oct ord repr id isinstance issubclass callable", reads="arguments"),
    Row("builtins", "symint", "getattr setattr hasattr delattr print __build_class__", reads="arguments"),
    *skips(
        "PL0014",
        "it reads or makes whole namespaces or code, which cannot be guarded name by name",
        {"builtins": "exec eval compile globals locals vars dir"},
    ),
    *skips("PL0032", "an import may run any code", {"builtins": "__import__"}),
    *skips("PL0022", "it reads from or writes to the terminal or a file", {"builtins": "input open breakpoint"}),
    *skips("PL0022", "it talks to the terminal", {"_sitebuiltins": "Helper Quitter _Printer"}),
]

TYPES: list[Row] = [
    # Holders: they keep what they are given, symbolic ints included.
    Row(
        "builtins",
        "symint",
        "list tuple dict set frozenset enumerate zip map filter reversed slice object property staticmethod classmethod",
        reads="arguments",
    ),
    Row("builtins", "symint", "int float bool complex super type", reads="arguments"),
    Row("builtins", "native", "str bytes bytearray range", reads="arguments"),
    *skips("PL0004", "a memoryview shares memory with what it views", {"builtins": "memoryview"}),
    Row("types", "symint", "SimpleNamespace MappingProxyType MethodType CellType GenericAlias", reads="arguments"),
    Row("types", "native", "FunctionType CodeType UnionType", reads="arguments"),
    *skips("PL0004", "a module is made, which emitted code could only share", {"types": "ModuleType"}),
]

# Every method of these types is a function of the object and the arguments (mutators act on objects the program made, or on shadows).
CONTAINER_TYPES = (
    "builtins.list builtins.dict builtins.set builtins.frozenset builtins.tuple builtins.bytearray builtins.slice builtins.range"
    " collections.deque collections.OrderedDict collections.defaultdict types.SimpleNamespace types.MappingProxyType"
    " array.array types.MethodType types.FunctionType types.CellType types.GeneratorType"
)
VALUE_TYPES = (
    "builtins.int builtins.float builtins.complex builtins.bool builtins.str builtins.bytes types.NoneType types.EllipsisType"
    " types.NotImplementedType types.CodeType types.GenericAlias types.UnionType builtins.property builtins.super"
    " builtins.staticmethod builtins.classmethod types.TracebackType"
)
ITERATOR_TYPES = (
    "builtins.enumerate builtins.zip builtins.map builtins.filter builtins.reversed"
    " itertools.accumulate itertools.batched itertools.chain itertools.combinations itertools.combinations_with_replacement"
    " itertools.compress itertools.count itertools.cycle itertools.dropwhile itertools.filterfalse itertools.groupby itertools.islice"
    " itertools.pairwise itertools.permutations itertools.product itertools.repeat itertools.starmap itertools.takewhile"
    " itertools.zip_longest itertools._grouper itertools._tee itertools._tee_dataobject"
)

METHODS: list[Row] = [
    *rows("symint", {space: "*" for space in (CONTAINER_TYPES + " " + ITERATOR_TYPES).split()}, reads="arguments"),
    *rows("native", {space: "*" for space in VALUE_TYPES.split()}, reads="arguments"),
    *rows("symint", {"builtins.BaseException": "*", "builtins.BaseExceptionGroup": "*"}, reads="arguments"),
    Row(
        "builtins.object",
        "native",
        "__new__ __init__ __init_subclass__ __subclasshook__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__",
        reads="arguments",
    ),
    Row("builtins.object", "native", "__repr__ __str__ __format__ __getattribute__ __setattr__ __delattr__", reads="arguments"),
    *skips(
        "PL0007",
        "it reads the whole object at once",
        {"builtins.object": "__reduce__ __reduce_ex__ __getstate__ __sizeof__ __dir__"},
    ),
    Row(
        "builtins.type",
        "native",
        "__new__ __init__ __call__ __prepare__ mro __instancecheck__ __subclasscheck__ __repr__ __or__ __ror__",
        reads="arguments",
    ),
    Row("builtins.type", "native", "__getattribute__ __setattr__ __delattr__", reads="arguments"),
    *skips("PL0007", "it reads the live class graph", {"builtins.type": "__subclasses__ __dir__ __sizeof__"}),
]

ROWS: list[Row] = FUNCTIONS + TYPES + METHODS
