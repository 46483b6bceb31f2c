"""Programs whose code objects CPython 3.14 has made, and what they came to there: `test_bytecode_of_314.py` interprets these. Recorded
with `python tests/interpret/programs_of_314.py` there; written without annotations, and without what only some versions have."""

LOG = []


class Manager:
    def __init__(self, name, takes=()):
        self.name = name
        self.takes = takes

    def __enter__(self):
        LOG.append(f"+{self.name}")
        return self.name * 2

    def __exit__(self, kind, error, traceback):
        LOG.append(f"-{self.name}{'' if kind is None else kind.__name__}")
        return kind in self.takes


class Static:
    @staticmethod
    def __enter__():
        return "static"

    @classmethod
    def __exit__(cls, *told):
        LOG.append((cls.__name__, len(told), told[0]))


class ByAttribute(Manager):
    def __init__(self):
        super().__init__("a")
        self.__enter__ = self.__exit__ = None


class Computed:
    @property
    def __enter__(self):
        LOG.append("get enter")
        return lambda: "computed"

    @property
    def __exit__(self):
        LOG.append("get exit")
        return lambda *told: True


class NoExit:
    def __enter__(self):
        LOG.append("entered")


class NoEnter:
    def __exit__(self, *told):
        LOG.append("left")


class Asynchronous:
    async def __aenter__(self):
        pass

    async def __aexit__(self, *told):
        pass


class HalfAsynchronous:
    __aenter__ = __aexit__ = int


class Nothing:
    __enter__ = None
    __exit__ = None


class Raises(Manager):
    def __enter__(self):
        raise ValueError("enter")


class RaisesLeaving(Manager):
    def __exit__(self, *told):
        raise KeyError("exit")


def enters(n):
    with Manager("m") as m:
        LOG.append(m)
    with Manager("n"):
        n += 1
    return n


def suppresses(n):
    with Manager("m", (ZeroDivisionError,)):
        n = n // 0
    return n


def goes_on(n):
    try:
        with Manager("m", (KeyError,)) as m:
            n = [m][n]
    except IndexError as e:
        return str(e), n


def two_managers(n):
    with Manager("a", (TypeError,)) as a, Manager("b") as b:
        LOG.append(a + b)
        if n > 2:
            raise TypeError(n)
        return n
    return "behind"


def returns_inside(n):
    for i in range(n + 3):
        with Manager(str(i)):
            if i == 1:
                continue
            if i == 3:
                break
            LOG.append(i)
    else:
        return "else"
    with Manager("r"):
        return i


def nested_managers(n):
    with Manager("o", (IndexError,)):
        with Manager("i"):
            try:
                with Manager("t", (KeyError,)):
                    raise KeyError(n)
            finally:
                LOG.append("finally")
        raise IndexError
    return n


def methods_of_other_kinds(n):
    with Static() as s:
        n += 1
    with ByAttribute() as a:
        n += 1
    with Computed() as c:
        raise ValueError
    return n, s, a, c


def what_is_no_manager(n):
    found = []
    for made in (NoExit, NoEnter, Asynchronous, HalfAsynchronous, Nothing, int):
        try:
            with made():
                LOG.append("inside")
        except TypeError as e:
            found.append(str(e))
    return found


def raises_where_it_begins(n):
    try:
        with Raises("r"):
            n = 0
    except ValueError as e:
        return n, str(e), e.__context__


def raises_where_it_ends(n):
    try:
        with RaisesLeaving("r"):
            raise ValueError(n)
    except KeyError as e:
        return str(e), type(e.__context__).__name__


def numbers(n):
    return [n + 1, n - 256, n * 1000, -n, ~n, n**2, n // 2, n % 5, n << 3, n | 8, n & 3, n ^ 1, not n, 1 < n <= 7, n is None, n in (4, 3)]


def in_place(n):
    a, b = [n], n
    a += [b]
    b *= 3
    b -= 1
    a[0] += b
    a[1:] = [b, b]
    del a[-1]
    return a, b, a[0], a[0:1], a[-1]


def containers(n):
    t = (n, *[1, 2], n)
    d = {"a": n, **{"b": 2}, n: t}
    s = {n, 1, *t}
    a, *b, c = t
    return t, d, sorted(s), a, b, c, f"{n:>4}|{n!r}|{t!s}|{n}", len(d)


def comprehensions(n):
    return [i * n for i in range(4) if i != 2], {i: n for i in "ab"}, {n for _ in "aa"}, [[j for j in range(i)] for i in range(3)]


def generators(n):
    found = sum(i + n for i in range(4)), all(i < n for i in range(3)), any(i > n for i in (1, 5)), tuple(i for i in "ab")
    return found, max(each(n), default=0)


def each(n):
    try:
        yield n
        yield from (n + 1, n + 2)
        yield from reversed([n, n - 1])
    finally:
        LOG.append("done")


def calls(n):
    a, k = [n, 2], {"c": 3}
    found = takes(1, 2), takes(*a), takes(*a, **k), takes(n, b=4, **k), takes(b=1, a=n), takes(**{"a": 1, "b": n})
    return found, "x".join(map(str, a)), max(*a, n)


def takes(a, b, *rest, c=0, **more):
    return a, b, rest, c, more


def inner_functions(n):
    total = n

    def add(k, scale=2, *, plus=1):
        nonlocal total
        total += k * scale + plus
        return total

    return add(1), add(2, plus=5), (lambda: total)(), add.__defaults__


def makes_classes(n):
    class K(Manager):
        k = n

        def of(self):
            return self.k, super().__enter__(), __class__ is K

    return K("k").of()


def handles(n):
    found = []
    for error in (KeyError(n), ValueError("v"), IndexError(), RuntimeError("r")):
        try:
            try:
                raise error
            except (KeyError, IndexError) as e:
                found.append(type(e).__name__)
            except ValueError as e:
                raise TypeError("t") from e
            else:
                found.append("else")
            finally:
                found.append("finally")
        except TypeError as e:
            found.append(repr(e.__cause__))
        except Exception as e:
            found.append(repr(e))
    return found


def asserts(n):
    try:
        assert n == 0, f"not {n}"
    except AssertionError as e:
        return str(e)


def loops(n):
    found, i = [], 0
    while i < 10:
        i += 1
        if i % 2:
            continue
        if i > 6 + n:
            break
        found.append(i)
    else:
        found.append("else")
    while n:
        n -= 1
    for a, (b, c) in [(1, (2, 3)), (4, (5, 6))]:
        found += [a, b, c]
    return found, i, n, [x for x, y in zip("ab", "cd") if y != "c"]


def matches(n):
    found = []
    for v in (n, "s", [1, 2, 3], {"k": 1, "z": 2}, Manager("q"), None, (1,), 2.5):
        match v:
            case 3 | 4:
                found.append("number")
            case str() as s:
                found.append(s)
            case [a, *rest]:
                found.append((a, rest))
            case {"k": k, **more}:
                found.append((k, more))
            case Manager(name=name):
                found.append(name)
            case None:
                found.append(None)
            case x if x > 2:
                found.append(x)
    return found


def names(n):
    global made
    made = n
    del LOG[:]
    if (k := made + 1) > 2:
        LOG.append(k)
    del made
    try:
        return made
    except NameError as e:
        return str(e)


def unbound(n):
    if n > 100:
        x = 1
    try:
        return x
    except UnboundLocalError as e:
        return type(e).__name__


def deletes(n):
    d = {"a": 1, "b": 2}
    x = Manager("x")
    del d["a"], x.takes
    x.name = n
    y = x
    del x
    return d, y.name, hasattr(y, "takes"), y.name if n else None, n and 5, n or 6


PROGRAMS = (
    enters, suppresses, goes_on, two_managers, returns_inside, nested_managers, methods_of_other_kinds, what_is_no_manager,
    raises_where_it_begins, raises_where_it_ends, numbers, in_place, containers, comprehensions, generators, each, calls, takes,
    inner_functions, makes_classes, handles, asserts, loops, matches, names, unbound, deletes,
)  # fmt: skip


def functions():
    """All functions of this module that programs may run, those of classes among them."""
    found = list(PROGRAMS)
    for cls in (Manager, Static, ByAttribute, Computed, NoExit, NoEnter, Raises, RaisesLeaving):
        for v in vars(cls).values():
            v = getattr(v, "__func__", getattr(v, "fget", v))
            found += [v] if hasattr(v, "__code__") else []
    return found


def outcome(fn, *args):
    """What a program came to, as text: its result or error, and what it has written down."""
    LOG.clear()
    try:
        found = fn(*args)
    except Exception as e:
        found = e
    return repr((found, LOG))


def record():
    import dis
    import json
    import sys

    def of(code):
        consts = [["code", of(c)] if hasattr(c, "co_code") else ["value", repr(c)] for c in code.co_consts]
        handlers = [list(map(int, (e.start, e.end, e.target, e.depth, e.lasti))) for e in dis._parse_exception_table(code)]
        return {
            "name": code.co_qualname, "code": code.co_code.hex(), "names": code.co_names, "consts": consts, "handlers": handlers,
            "variables": [code.co_varnames, code.co_cellvars, code.co_freevars],
        }  # fmt: skip

    found = {
        "python": sys.version.split()[0],
        "outcomes": {fn.__name__: outcome(fn, 3) for fn in PROGRAMS if fn not in (each, takes)},
        "codes": [of(fn.__code__) for fn in functions()],
    }
    return json.dumps(found, separators=(",", ":")).replace('{"name"', '\n{"name"').replace('"codes"', '\n"codes"') + "\n"


if __name__ == "__main__":
    print(record(), end="")
