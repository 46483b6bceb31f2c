"""Operators that make tensors: from sizes, or in the likeness of another tensor."""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import get_default_dtype, math, torch
from pliant.graph.rules.shape import category, new, number_dtype, preserved_strides, row_major, strided
from pliant.graph.rules.table import rule
from pliant.graph.traced import TracedTensor


def default_device(device: Any) -> Any:
    return device if device is not None else torch.device(torch._C._get_default_device())  # type: ignore[attr-defined]


def unusual(layout: Any, memory_format: Any = None) -> bool:
    return layout not in (None, torch.strided) or memory_format not in (None, torch.contiguous_format, torch.preserve_format)


def named(dtype: torch.dtype) -> str:
    """A dtype as PyTorch's words have it: `Long`."""
    return torch.empty(0, dtype=dtype, device="meta").type().rpartition(".")[2].removesuffix("Tensor")


UNIFORM, NORMAL = (f'"{kernel}" not implemented for \'{{}}\'' for kernel in ("check_uniform_bounds", "normal_kernel_cpu"))


def continuous(dtype: torch.dtype, words: str, error: type[Exception] = NotImplementedError, most: int = 3) -> None:
    """Raises what kernels raise that draw no whole numbers, or no complex ones. (Their shape functions do not ask.)"""
    if not 2 <= category(dtype) <= most:
        raise error(words.format(named(dtype)))


@rule("empty.memory_format", "zeros", "ones")
def from_size(
    trace: Any, size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, memory_format: Any = None,
    generator: Any = None,
) -> Any:  # fmt: skip
    if unusual(layout, memory_format) or pin_memory or any([type(s) is int and s < 0 for s in size]):
        return NotImplemented
    return new(trace, tuple(size), dtype or get_default_dtype(), default_device(device))


@rule("rand", "rand.generator")
def rand(trace: Any, size: Any, *, dtype: Any = None, **settings: Any) -> Any:
    continuous(dtype or get_default_dtype(), UNIFORM)
    return from_size(trace, size, dtype=dtype, **settings)


@rule("randn", "randn.generator")
def randn(trace: Any, size: Any, *, dtype: Any = None, **settings: Any) -> Any:
    continuous(dtype or get_default_dtype(), NORMAL)
    return from_size(trace, size, dtype=dtype, **settings)


@rule("full")
def full(trace: Any, size: Any, value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
    if unusual(layout) or pin_memory or any([type(s) is int and s < 0 for s in size]):
        return NotImplemented
    return new(trace, tuple(size), dtype or number_dtype(value), default_device(device))


@rule("scalar_tensor")
def scalar_tensor(trace: Any, value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
    if unusual(layout) or pin_memory:
        return NotImplemented
    return new(trace, (), dtype or get_default_dtype(), default_device(device))


@rule("empty_strided")
def empty_strided(
    trace: Any, size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    if unusual(layout) or pin_memory:
        return NotImplemented
    return strided(trace, tuple(size), tuple(stride), dtype or get_default_dtype(), default_device(device))


@rule("randint", "randint.low", "randint.generator", "randint.low_generator")
def randint(
    trace: Any, *args: Any, dtype: Any = torch.int64, layout: Any = None, device: Any = None, pin_memory: Any = None, generator: Any = None
) -> Any:
    return from_size(trace, args[-1], dtype=dtype or torch.int64, layout=layout, device=device, pin_memory=pin_memory)


@rule("randperm", "randperm.generator")
def randperm(trace: Any, n: Any, **settings: Any) -> Any:
    return randint(trace, (n,), **settings)


@rule("arange", "arange.start", "arange.start_step")
def arange(trace: Any, *args: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
    """Of ints with step 1, or of numbers that are all known. Everything else is left to PyTorch."""
    start, end, step = (0, args[0], 1) if len(args) == 1 else (args[0], args[1], args[2] if len(args) > 2 else 1)
    kinds = {type(start), type(end), type(step)}
    if kinds <= {int, float} and (float in kinds or step != 1) and not unusual(layout) and not pin_memory:
        if not step or not -(2**53) < (n := (end - start) / step) < 2**53 or n < 0:
            return NotImplemented
        of = get_default_dtype() if float in kinds else torch.int64
        return new(trace, (math.ceil(n),), dtype or of, default_device(device))
    if unusual(layout) or pin_memory or type(start) is not int or type(step) is not int or step != 1:
        return NotImplemented
    if type(end) is int:
        if end < start:
            return NotImplemented
    elif type(end) is not torch.SymInt or start != 0 or not end.node.scope.known_true(end.node.expr >= 0):
        return NotImplemented
    return new(trace, (end - start,), dtype or torch.int64, default_device(device))


@rule("linspace")
def linspace(
    trace: Any, start: Any, end: Any, steps: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    if unusual(layout) or pin_memory or complex in (type(start), type(end)):
        return NotImplemented
    if steps < 0 if type(steps) is int else not steps.node.scope.known_true(steps.node.expr >= 0):
        return NotImplemented
    return new(trace, (steps,), dtype or get_default_dtype(), default_device(device))


@rule("logspace")
def logspace(
    trace: Any, start: Any, end: Any, steps: Any, base: Any = 10.0, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None,
) -> Any:  # fmt: skip
    return linspace(trace, start, end, steps, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory)


@rule("kaiser_window.beta")
def kaiser_window(
    trace: Any, steps: Any, periodic: bool, beta: float, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None,
) -> Any:  # fmt: skip
    """A window that is not periodic: PyTorch makes a periodic one as a view of a longer one."""
    if periodic or not (dtype or get_default_dtype()).is_floating_point:
        return NotImplemented
    return linspace(trace, 0, 1, steps, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory)


def below(rows: Any, columns: Any, offset: int) -> Any:
    """How many elements of a matrix lie on and below a diagonal, as PyTorch counts them: a trapezoid, and rows that are there whole."""
    low, high = torch.sym_min, torch.sym_max
    first = low(columns, 1 + offset) if offset > 0 else (1 if rows + offset > 0 else 0)
    last = high(0, low(columns, rows + offset))
    reached = high(0, low(rows, rows + offset))
    slope = last - first + 1
    return (first + last) * slope // 2 + high(0, reached - slope) * columns


@rule("tril_indices")
def lower_triangle(
    trace: Any, rows: Any, columns: Any, offset: Any = 0, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None,
) -> Any:  # fmt: skip
    if unusual(layout) or pin_memory or type(offset) is not int:
        return NotImplemented
    return new(trace, (2, below(rows, columns, offset)), dtype or torch.int64, default_device(device))


@rule("triu_indices")
def upper_triangle(
    trace: Any, rows: Any, columns: Any, offset: Any = 0, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None,
) -> Any:  # fmt: skip
    if unusual(layout) or pin_memory or type(offset) is not int:
        return NotImplemented
    return new(trace, (2, rows * columns - below(rows, columns, offset - 1)), dtype or torch.int64, default_device(device))


@rule("eye", "eye.m")
def eye(trace: Any, n: Any, m: Any = None, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
    return from_size(trace, (n, n if m is None else m), dtype=dtype, layout=layout, device=device, pin_memory=pin_memory)


# in the likeness of a tensor --------------------------------------------------------------------------------
@rule(
    "empty_like", "zeros_like", "ones_like", "full_like", "randint_like", "randint_like.low_dtype", "randint_like.generator",
    "randint_like.low_generator_dtype",
)  # fmt: skip
def like(
    trace: Any, x: TracedTensor, *args: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
    memory_format: Any = None, generator: Any = None,
) -> Any:  # fmt: skip
    if unusual(layout, memory_format) or pin_memory:
        return NotImplemented
    strides = row_major(trace, x.sizes) if memory_format is torch.contiguous_format else preserved_strides(trace, x)
    return strided(trace, x.sizes, strides, dtype or x.dtype, device or x.device)


@rule("rand_like", "rand_like.generator")
def rand_like(trace: Any, x: TracedTensor, *, dtype: Any = None, **settings: Any) -> Any:
    continuous(dtype or x.dtype, UNIFORM)
    return like(trace, x, dtype=dtype, **settings)


@rule("randn_like", "randn_like.generator")
def randn_like(trace: Any, x: TracedTensor, *, dtype: Any = None, **settings: Any) -> Any:
    continuous(dtype or x.dtype, NORMAL)
    return like(trace, x, dtype=dtype, **settings)


@rule("uniform_")
def uniform(trace: Any, x: TracedTensor, *limits: Any, generator: Any = None) -> Any:
    continuous(x.dtype, UNIFORM)
    return x


@rule("exponential_")
def exponential(trace: Any, x: TracedTensor, rate: Any = 1.0, *, generator: Any = None) -> Any:
    continuous(x.dtype, EXPONENTIAL, RuntimeError, most=2)
    return x


EXPONENTIAL = "Exponential distribution is a continuous probability distribution. dtype must be a floating point but you specified {}"


@rule("new_empty", "new_zeros", "new_ones", "new_full")
def new_like(
    trace: Any, x: TracedTensor, size: Any, *args: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    if unusual(layout) or pin_memory or any([type(s) is int and s < 0 for s in size]):
        return NotImplemented
    return new(trace, tuple(size), dtype or x.dtype, device or x.device)


@rule("new_empty_strided")
def new_strided(
    trace: Any, x: TracedTensor, size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None,
) -> Any:  # fmt: skip
    if unusual(layout) or pin_memory:
        return NotImplemented
    return strided(trace, tuple(size), tuple(stride), dtype or x.dtype, device or x.device)


@rule("clone")
def clone(trace: Any, x: TracedTensor, *, memory_format: Any = None) -> Any:
    return like(trace, x, memory_format=memory_format)


@rule("_to_copy")
def to_copy(
    trace: Any, x: TracedTensor, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
    non_blocking: bool = False, memory_format: Any = None,
) -> Any:  # fmt: skip
    if type(x) is not TracedTensor:  # a number, which transforms give a dtype of its own
        return NotImplemented
    return like(trace, x, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory, memory_format=memory_format)


@rule("bernoulli", "bernoulli.p")
def bernoulli(trace: Any, x: TracedTensor, *args: Any, generator: Any = None) -> Any:
    return like(trace, x)


@rule("binomial")
def binomial(trace: Any, count: TracedTensor, prob: TracedTensor, generator: Any = None) -> Any:
    return from_size(trace, count.sizes, dtype=count.dtype, device=count.device) if prob.dtype is count.dtype else NotImplemented


@rule("_standard_gamma", "_sample_dirichlet", "poisson")
def drawn_by_each(trace: Any, x: TracedTensor, generator: Any = None) -> Any:
    return new(trace, x.sizes, x.dtype, x.device)


@rule("_standard_gamma_grad", "_dirichlet_grad")
def derivative_of_drawn(trace: Any, x: TracedTensor, *others: TracedTensor) -> Any:
    return new(trace, x.sizes, x.dtype, x.device)


@rule("native_dropout")
def native_dropout(trace: Any, x: TracedTensor, p: float, train: Any) -> Any:
    if category(x.dtype) != 2:
        return NotImplemented
    return like(trace, x), like(trace, x, dtype=torch.bool)


@rule("multinomial")
def multinomial(trace: Any, x: TracedTensor, num_samples: Any, replacement: bool = False, *, generator: Any = None) -> Any:
    if len(x.sizes) not in (1, 2) or type(num_samples) is not int or num_samples < 1:
        return NotImplemented
    return new(trace, (*x.sizes[:-1], num_samples), torch.int64, x.device)
