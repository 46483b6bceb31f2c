"""Functions of PyTorch that start a compiler or tracer of its own, in plain operators: what the interpreter runs in their place.

Nothing here is called by pliant. It is interpreted as if the program had written it (`higher_order.py`, `transforms.py` say for what).
What PyTorch refuses raises `Refused`: the real function is left to say so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.func import jvp, vmap
from torch.masked import _ops as masked
from torch.utils import _pytree as pytree

from pliant import native
from pliant.graph.originals import math, torch


class Refused(Exception):
    """PyTorch would not do it."""


class FunctionsOff:
    """`torch._C.DisableTorchFunctionSubclass()` and `torch._C.DisableTorchFunction()`."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def __enter__(self) -> None:
        self.before = torch._C._get_torch_function_state()  # type: ignore[attr-defined]
        torch._C._set_torch_function_state(self.state)  # type: ignore[attr-defined]

    def __exit__(self, *error: Any) -> None:
        torch._C._set_torch_function_state(self.before)  # type: ignore[attr-defined]


class Inference:
    """`torch._C._InferenceMode(mode)`, which is on from its `__enter__` to its `__exit__`."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        enter_inference(self.mode)

    def __exit__(self, *error: Any) -> None:
        leave_inference()


def enter_inference(mode: bool) -> None:
    raise NotImplementedError  # `defaults.py` has what is done


def leave_inference() -> None:
    raise NotImplementedError


# -- rows of many lengths ------------------------------------------------------------------------------------------------
def pad_sequence(sequences: Any, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right") -> Any:
    """`torch._C._nn.pad_sequence`, which asks for each row whether it is longer than those before it."""
    longest = sequences[0].size(0)
    for row in sequences[1:]:
        longest = torch.sym_max(longest, row.size(0))
    padded, whole = [], (0, 0) * (sequences[0].dim() - 1)
    for row in sequences:
        missing = longest - row.size(0)
        ends = (0, missing) if padding_side == "right" else (missing, 0)
        padded.append(torch.constant_pad_nd(row, (*whole, *ends), padding_value))
    return torch.stack(padded, 0 if batch_first else 1)


# -- jagged nested tensors -----------------------------------------------------------------------------------------------
def jagged_from_list(tensors: Any, dtype: Any, device: Any) -> Any:
    """`torch.nested.as_nested_tensor(list, layout=torch.jagged)`, which does not ask how long rows are if only their first dim differs."""
    if not tensors:
        raise Refused
    first = tensors[0]
    rank = first.dim()
    for t in tensors:
        if t.dtype != first.dtype or t.device != first.device or t.dim() != rank or rank == 0 or t.is_nested:
            raise Refused
    ragged = 0
    for d in range(1, rank):
        for t in tensors:
            if t.shape[d] != first.shape[d]:
                ragged = d
    for d in range(rank):
        for t in tensors:
            if ragged and d != ragged and t.shape[d] != first.shape[d]:
                raise Refused
    values = torch.cat(tensors, dim=ragged)
    if dtype is not None or device is not None:
        values = values.to(dtype=dtype, device=device)
    lengths = [t.shape[ragged] for t in tensors]
    ends = torch.tensor(lengths, device=values.device).cumsum(dim=0)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64, device=values.device), ends])
    shortest = longest = lengths[0]
    for n in lengths[1:]:
        shortest, longest = torch.sym_min(shortest, n), torch.sym_max(longest, n)
    return over_values(values, offsets, shortest, longest, ragged + 1)


def over_values(values: Any, offsets: Any, shortest: Any, longest: Any, ragged: int) -> Any:
    raise NotImplementedError  # `nested_lists.py` has what is done


def jagged_attention(query: Any, key: Any, value: Any, scale: float | None) -> Any:
    """`scaled_dot_product_attention` of jagged tensors (batch, heads, ragged, features) with the same offsets, on padded rows.

    PyTorch takes rows one by one on the CPU. What a padded row asks is dropped, and nobody is given what stands in one.
    """
    offsets = query.offsets()
    longest = query.transpose(1, 2)._get_max_seqlen()
    n = offsets.shape[0] - 1
    heads, width = query.shape[1], value.shape[3]

    total = value.transpose(1, 2).values().shape[0]
    places = torch.arange(longest, device=offsets.device)
    filled = places < offsets.diff()[:, None]
    index = (offsets[:-1, None] + places).clamp(max=total - 1).flatten()

    def padded(x: Any) -> Any:
        rows = x.transpose(1, 2).values()
        items = rows.index_select(0, index).reshape(n, longest, rows.shape[1], rows.shape[2])
        return torch.where(filled[:, :, None, None], items, 0.0).transpose(1, 2)

    there = filled[:, None, None, :]
    scores = padded(query) @ padded(key).transpose(2, 3) * (query.shape[3] ** -0.5 if scale is None else scale)
    out = scores.masked_fill(~there, float("-inf")).softmax(-1) @ padded(value)
    item = torch.arange(total, device=offsets.device)
    row = torch.searchsorted(offsets[1:], item, right=True)
    at = row * longest + item - offsets[row]
    kept = out.transpose(1, 2).reshape(n * longest, heads, width).index_select(0, at)
    return torch.nested.nested_tensor_from_jagged(kept, offsets).transpose(1, 2)


# -- transforms --------------------------------------------------------------------------------------------------------
def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """`torch.func.linearize`: the tangents are worked out together with the function's value, which is worked out once in the graph.

    PyTorch's graph holds what does not depend on tangents as constants, through which no gradients go: also what `func` closes over.
    """
    output = func(*primals)
    if has_gradients([output, primals]):
        return linearized(func, *primals)
    wanted, of_primals = pytree.tree_flatten(primals)
    for p in wanted:
        if not (p.is_floating_point() or p.is_complex()):
            raise ValueError(f"Expected primal to be floating point or complex, but got: {p.dtype}")

    def forward(*tangents: Any) -> Any:
        given, spec = pytree.tree_flatten(tangents)
        if any(isinstance(t, torch.Tensor) and (type(t) not in (torch.Tensor, torch.nn.Parameter) or 0 in t.stride()) for t in given):
            return linearized(func, *primals)[1](*tangents)  # PyTorch's graph keeps classes, and does not take what overlaps
        if spec != of_primals:
            raise RuntimeError(f"Expected the tangents {spec} to have the same argspec as the primals {of_primals}")
        for i, (t, p) in enumerate(zip(given, wanted)):
            for what in ("shape", "device", "dtype"):
                of_tangent, of_primal = getattr(t, what), getattr(p, what)
                if of_tangent != of_primal:
                    raise RuntimeError(
                        f"tangent:{i} with {what} {of_tangent} in flattened pytree doesn't match the {what} {of_primal} of the "
                        "corresponding primal."
                    )
        if has_gradients(given):
            return linearized(func, *primals)[1](*tangents)
        return jvp(func, primals, tangents)[1]

    return output, forward


def has_gradients(tree: Any) -> bool:
    return any(isinstance(t, torch.Tensor) and t.requires_grad for t in pytree.tree_leaves(tree))


def linearized(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """With PyTorch's graph. (The capture breaks at the call of whoever comes here.)"""
    native.push_disabled()
    try:
        return torch.func.linearize(func, *primals)
    finally:
        native.pop_disabled()


def mapped(f: Callable[..., Any], xs: Any, args: tuple) -> Any:
    """`map(f, xs, *args)`: every slice at once."""
    return vmap(lambda x: f(x, *args), randomness="error")(xs)


def hook_of(body: Callable[..., Any], others: tuple) -> Callable[[Any], Any]:
    """The hook that `register_hook_op(tensor, body, *others)` sets."""
    return lambda grad: body(grad, *others)


# -- operators whose C++ code asks for sizes as numbers ------------------------------------------------------------------
def take_along_dim(input: Any, indices: Any, dim: Any = None) -> Any:
    if indices.dtype is not torch.int64:
        raise Refused
    if dim is None:
        return input.view(-1).gather(0, indices.view(-1))
    if type(dim) is not int or input.dim() != indices.dim() or not -input.dim() <= dim < input.dim():
        raise Refused
    dim = dim % input.dim()
    wanted, given = list(input.shape), list(indices.shape)
    wanted[dim] = indices.size(dim)
    indices = indices.broadcast_to(torch.broadcast_shapes(tuple(wanted), indices.shape))
    given[dim] = input.size(dim)
    spread = input.broadcast_to(torch.broadcast_shapes(tuple(given), input.shape))
    return spread.gather(dim, torch.remainder(indices, input.size(dim)))  # they wrap around, on both sides


def masked_select(input: Any, mask: Any) -> Any:  # noqa: A002
    """The derivative alone asks for sizes; that of an index by a mask does not."""
    if not (torch.is_grad_enabled() and input.requires_grad) or mask.dtype is not torch.bool:
        raise Refused
    try:
        sizes = torch.broadcast_shapes(input.shape, mask.shape)
    except RuntimeError:
        raise Refused from None
    return input.expand(sizes)[mask.expand(sizes)]


def sgn(input: Any) -> Any:  # noqa: A002
    """Of real numbers it is `sign`, whose derivative does not ask for sizes."""
    if not (torch.is_grad_enabled() and input.requires_grad) or input.is_complex():
        raise Refused
    return torch.sign(input)


def kron(input: Any, other: Any) -> Any:
    n = max(input.dim(), other.dim())
    if n == 0:
        raise Refused
    a, b = [1] * (n - input.dim()) + list(input.shape), [1] * (n - other.dim()) + list(other.shape)
    spread = [s for size in a for s in (size, 1)], [s for size in b for s in (1, size)]
    return torch.ops.aten._unsafe_view(input.reshape(spread[0]) * other.reshape(spread[1]), [p * q for p, q in zip(a, b)])


def cov(input: Any, *, correction: Any = 1, fweights: Any = None, aweights: Any = None) -> Any:
    if fweights is not None or aweights is not None or type(correction) is not int:
        raise Refused
    if not 0 < input.dim() <= 2 or not input.is_floating_point():
        raise Refused
    x = input if input.dim() == 2 else input.view(1, -1)
    n = x.size(1)
    if n - correction <= 0:  # it warns
        raise Refused
    x = x - x.mean(1).unsqueeze(1)
    return torch.true_divide(torch.mm(x, x.t()), torch.scalar_tensor(n, dtype=torch.int64, device=x.device) - correction).squeeze()


def corrcoef(input: Any) -> Any:
    c = cov(input)
    if c.dim() == 0:
        return c / c
    deviations = c.diag().sqrt()
    return (c / deviations.view(-1, 1) / deviations.view(1, -1)).clip(-1, 1)


# -- other higher-order operators ------------------------------------------------------------------------------------------
def out_dtype(op: Any, output_dtype: Any, *args: Any) -> Any:
    """`out_dtype`: the operator on arguments of the dtype that they and the result have in common, and the result as asked for."""
    promoted = output_dtype
    for a in args:
        if isinstance(a, torch.Tensor):
            if a.dim() == 0 or a.requires_grad:
                raise Refused
            promoted = torch.promote_types(promoted, a.dtype)
        elif not isinstance(a, int):
            raise Refused
    return op(*[a.to(promoted) if isinstance(a, torch.Tensor) else a for a in args]).to(output_dtype)


# -- backward hooks of modules -------------------------------------------------------------------------------------------
class Hooked(torch.autograd.Function):
    """What a module is given, or gives: the identity, whose backward is a hook on a node of `torch.utils.hooks.BackwardHook`."""

    @staticmethod
    def forward(ctx: Any, holder: Any, *args: Any) -> Any:
        ctx.holder = holder
        ctx.mark_non_differentiable(*[a for a in args if not a.requires_grad])
        return args

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        inputs = tuple([g if needed else None for g, needed in zip(grads, ctx.needs_input_grad[1:])])
        out = ctx.holder.hook(inputs, grads)
        return (None, *(inputs if out is None else out))


class Holder:
    """In the place of a node of the tape, for whoever sets a hook on it."""

    def register_hook(self, hook: Any) -> None:
        self.hook = hook


def try_out(first: Any, hook: Any, tensors: Any) -> None:
    """Interprets the hooks for their guards: that of what a module gives, and the one of what it is given."""


def apply_on_tensors(self: Any, fn: Any, args: Any) -> Any:
    """`BackwardHook._apply_on_tensors`: of what a module is given first, then of what it gives."""
    behind = hasattr(self, "first")
    if not behind:
        self.first = None
    positions = [i for i, arg in enumerate(args) if isinstance(arg, torch.Tensor)]
    tensors = [args[i] for i in positions]
    if not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
        return args, None
    holder = Holder()
    fn(holder)
    if behind:  # the caller says so when this returns; the hook, which is interpreted once before that, wants to know
        self.n_outputs, self.output_tensors_index = len(args), positions
        try_out(self.first, holder.hook, tensors)
    else:
        self.first = holder.hook, tensors
    made = Hooked.apply(holder, *tensors)
    new = list(args)
    for i, t in zip(positions, made):
        new[i] = t
    return tuple(new) if type(args) is tuple else type(args)(*new), positions


# -- a layer in Python ----------------------------------------------------------------------------------------------------
class CrossMapLRN2d(torch.autograd.Function):
    """What `nn.CrossMapLRN2d` applies, which steps through channels, and in its backward part through images."""

    @staticmethod
    def forward(ctx: Any, input: Any, size: int, alpha: Any = 1e-4, beta: Any = 0.75, k: Any = 1) -> Any:
        x, n, width = input.contiguous(), input.size(1), int((size - 1) / 2 + 1)
        squares = torch.pow(x, 2)
        sums = of_neighbours(squares, width - 1, 2 * width - 1)
        behind = torch.arange(n, device=x.device).view(1, -1, 1, 1) >= width  # there PyTorch has never taken away the first channel
        sums = sums + torch.where(behind, squares.narrow(1, 0, 1), 0.0)
        ctx.size, ctx.alpha, ctx.beta, ctx.scale = size, alpha, beta, sums * (alpha / size) + k
        output = torch.pow(ctx.scale, -beta) * x
        ctx.save_for_backward(input, output)
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        input, output = ctx.saved_tensors
        if torch.is_grad_enabled():
            raise RuntimeError("mul(): functions with out=... arguments don't support automatic differentiation, "
                               "but one of the arguments requires grad.")  # fmt: skip
        grad, size, factor = grad_output.contiguous(), ctx.size, 2 * ctx.alpha * ctx.beta / ctx.size
        sums = of_neighbours(grad * output / ctx.scale, int(size - (size - 1) / 2), size)
        return torch.pow(ctx.scale, -ctx.beta) * grad - input.contiguous() * sums * factor, None, None, None, None


def of_neighbours(x: Any, before: int, number: int) -> Any:
    """For each channel, the sum of `number` of them, of which `before` stand in front of it."""
    n, padded = x.size(1), torch.constant_pad_nd(x, (0, 0, 0, 0, before, number - 1 - before))
    sums = padded.narrow(1, 0, n)
    for i in range(1, number):
        sums = sums + padded.narrow(1, i, n)
    return sums


# -- higher-order operators that run a function ---------------------------------------------------------------------------
def itself(model: Any) -> Any:
    """`torch.compile()` as a decorator."""
    return model


def wrap(op: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    """`wrap`, which only tells tracers that a call is one unit."""
    return func(*args, **kwargs)


def wrap_with_set_grad_enabled(op: Any, enable_grad: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(enable_grad)
    out = func(*args, **kwargs)
    torch.set_grad_enabled(before)
    return out


def wrap_with_autocast(op: Any, device: Any, dtype: Any, enabled: Any, cache_enabled: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    with torch.autocast(device, dtype, enabled, cache_enabled):
        return func(*args, **kwargs)


def bypassing_wrapper(op: Any, wrapper: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(wrapper, str):
        raise Refused
    return wrapper(func)(*args, **kwargs)


def hints_wrapper(op: Any, body_fn: Any, args: Any, kwargs: Any, hints: Any) -> Any:
    """`hints_wrapper`. It has no derivative, which PyTorch says in the backward part."""
    if kwargs or not isinstance(hints, dict):
        raise Refused
    for a in args:
        if not isinstance(a, (torch.Tensor, int, float)) or (isinstance(a, torch.Tensor) and a.requires_grad and torch.is_grad_enabled()):
            raise Refused
    for name, hint in hints.items():
        if not isinstance(name, str) or not isinstance(hint, (int, float, bool, str)):
            raise Refused
    return body_fn(*args)


# -- attention -----------------------------------------------------------------------------------------------------------
def over_positions(f: Callable[..., Any], scored: bool) -> Callable[..., Any]:
    """A function of (score, batch, head, query, key), or of the last four, for all positions."""
    first = (0,) if scored else ()
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        f = vmap(f, in_dims=first + dims)
    return f


def create_mask(mod: Callable[..., Any], scored: bool, batch: Any, heads: Any, queries: Any, keys: Any, device: Any) -> torch.Tensor:
    """The dense mask of a `mask_mod`, or of where a `score_mod` leaves scores that are finite."""
    sizes = (1 if batch is None else batch, 1 if heads is None else heads, queries, keys)
    places = [torch.arange(0, n, device=device) for n in sizes]
    if not scored:
        return over_positions(mod, False)(*places)
    out = over_positions(mod, True)(torch.zeros(*sizes, device=device), *places)
    return torch.where(torch.isneginf(out), False, True)


def attention(query: Any, key: Any, value: Any, score_mod: Any, mask_mod: Any, scale: Any) -> tuple[Any, Any, Any]:
    """`flex_attention` with the scores as a tensor: (result, logarithms of the sums of exponentials, maxima), the latter two over ln 2."""
    if scale is None:
        scale = 1.0 / math.sqrt(query.size(-1))
    groups = query.size(1) // key.size(1)
    value = torch.repeat_interleave(value, groups, dim=1)
    key = torch.repeat_interleave(key, groups, dim=1)
    batch = query.size(0)
    if key.size(0) != batch:
        if key.size(0) != 1:
            raise Refused
        key = key.expand((batch, *key.size()[1:]))
        value = value.expand((batch, *value.size()[1:]))
    precision = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = query.to(precision) @ key.to(precision).transpose(-2, -1)
    places = [torch.arange(0, n, device=scores.device) for n in scores.size()]
    scores = (scores * scale).to(precision)
    if score_mod is not None:
        scores = over_positions(score_mod, True)(scores, *places)
    if mask_mod is not None:
        never = torch.tensor(-float("inf"), dtype=precision, device=scores.device)
        scores = torch.where(over_positions(mask_mod, False)(*places), scores, never)
    sums = scores.logsumexp(dim=-1)
    sums = torch.where(torch.all(scores == -float("inf"), dim=-1), -float("inf"), sums)
    maxima = torch.max(scores, dim=-1)[0]
    weights = torch._safe_softmax(scores, dim=-1)
    out = weights.to(query.dtype) @ value.to(query.dtype)
    return laid_out_as(out, query.stride()), sums / math.log(2), maxima / math.log(2)


def laid_out_as(out: Any, strides: Any) -> Any:
    """`_permute_strides` of `flex_attention`: the dims in memory as those of the query are, but for the last, which has to be innermost."""
    order: list[int] = []
    for d in (3, 2, 1, 0):
        at = 0
        while at < len(order) and strides[order[at]] <= strides[d]:
            at += 1
        order.insert(at, d)
    found = strides_in(order, out.shape)
    if found[3] != 1:
        order.remove(3)
        order.insert(0, 3)
        found = strides_in(order, out.shape)
    if order == [3, 2, 1, 0] and all([n != 0 for n in out.shape]):
        return out
    new = torch.empty_strided(out.shape, found, dtype=out.dtype, device=out.device)
    new.copy_(out)
    return new


def strides_in(order: list[int], sizes: Any) -> list[Any]:
    """The strides of a tensor of four dims whose dims are in this order in memory, innermost first."""
    step: Any = 1
    found: list[Any] = [1, 1, 1, 1]
    for d in order:
        found[d] = step
        step = step * sizes[d]
    return found

# -- torch.masked ----------------------------------------------------------------------------------------------------------
def combine_input_and_mask(op: Any, input: Any, mask: Any, *args: Any) -> Any:  # noqa: A002
    """`torch.masked._ops._combine_input_and_mask` of a plain tensor, without the class that it makes for others."""
    if mask is None:
        return input
    if not callable(op):
        raise Refused
    fill = masked._reduction_identity(op.__name__, input, *args)
    return masked._where(masked._input_mask(input, mask=mask), input, fill)


class Combined(torch.autograd.Function):
    """The function that it makes for a `MaskedTensor`, whose own mask counts, for every operator."""

    @staticmethod
    def forward(ctx: Any, input: Any, mask: Any, op: Any, args: tuple) -> Any:  # noqa: A002
        ctx.save_for_backward(mask)
        return combine_input_and_mask(op, input, mask, *args)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (mask,) = ctx.saved_tensors
        return torch.masked.as_masked_tensor(grad.get_data() if torch.masked.is_masked_tensor(grad) else grad, mask), None, None, None


def combine_masked_tensor(op: Any, input: Any, mask: Any, *args: Any) -> Any:  # noqa: A002
    """The same of a `MaskedTensor`."""
    data = input.get_data()
    if data.requires_grad and torch.is_grad_enabled():
        return Combined.apply(data, input.get_mask(), op, args)
    return combine_input_and_mask(op, data, input.get_mask(), *args)


def tensor_of(values: list, dtype: Any, shape: tuple) -> Any:
    """`torch.tensor` of nested lists of numbers and tensors without dims: what C++ code would read from memory one by one."""
    parts = []
    for v in values:
        if not isinstance(v, torch.Tensor):
            v = torch.tensor(v, dtype=dtype)
        elif v.dtype != dtype:
            v = v.to(torch.float64).to(dtype)  # as a number of Python, on its way
        parts.append(v)
    return torch.stack(parts).reshape(shape)


def untied(module: Any, given: Any) -> Any:
    """`torch.nn.utils.stateless._untie_named_tensors_map`, which walks sets of names: in another order in each process."""
    named: dict[str, Any] = {}
    named.update(module.named_parameters(remove_duplicate=False))
    named.update(module.named_buffers(remove_duplicate=False))
    names_of: dict[Any, dict[str, None]] = {}
    for name, tensor in named.items():
        if tensor not in names_of:
            names_of[tensor] = {}
        names_of[tensor][name] = None
    tied: dict[str, dict[str, None]] = {}
    for names in names_of.values():
        if len(names) > 1:
            for name in names:
                tied[name] = names
    asked: dict[str, None] = {}
    for name in given.keys():  # noqa: SIM118 (what it is decides what that means)
        if name in tied:
            asked[name] = None
    for name in asked:
        names = tied[name]
        if len([n for n in names if n in asked]) == 1:
            continue
        for n in names:
            if n not in given:
                raise Refused(n)
        if len({given[n] for n in names}) != 1:
            found = sorted(names)
            raise ValueError(f"functional_call got multiple values for keys {found}, which are tied. Consider using tie_weights=False")
    made = given.copy()
    for name in asked:
        for n in tied[name]:
            made[n] = given[name]
    return made
