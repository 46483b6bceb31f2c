"""What a tensor is beside its values: its memory, version, history, flags, and the settings under which it is made.

Each program gives back values and what can be asked of tensors; gradients are compared where inputs have them.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch
from torch import nn

import pliant
from tests.helpers import compiled
from tests.programs.registry import cases, each, listed, programs

ROWS = each(3, 5, 2, tail=(4,))
GRADS = each(3, 5, 2, tail=(4,), grad=True)
WHOLE = {"breaks": 0, "captures": 1}
BACK = {"grad": True, **WHOLE}


def about(*tensors):
    """What can be asked of tensors without their values."""
    return [(x.shape, x.stride(), x.storage_offset(), x.dtype, x.requires_grad, x.is_leaf, x.is_inference(), type(x)) for x in tensors]


# -- `.data` -------------------------------------------------------------------------------------------------------------
def data_set(x):
    y = x.clone()
    y.data = y * 2
    return y, y + 1


def data_set_other_sizes(x):
    y = x.clone()
    y.data = x[0] * 2
    return y, y.shape, y + 1


def data_set_other_dtype(x):
    y = x.clone()
    y.data = x.double()
    return y, y.dtype


def data_set_shares(x):
    y, u = x.clone(), x * 2
    y.data = u
    u.add_(1)
    return y, u


def data_set_view(x):
    y = x.clone()
    y.data = (x * 2).t()
    return y, y.stride(), y + 1


def data_set_version(x):
    y = x.clone()
    v = y._version
    y.data = x * 2
    return y._version - v


def data_set_of_input(x):
    x.data = x.data * 2
    return x + 1


def data_set_keeps_views(x):
    y = x.clone()
    v = y[0]
    y.data = x * 2
    y.add_(1)
    return v, y


def data_written(x):
    y = x.clone()
    y.data.mul_(3)
    return y


def data_written_twice(x):
    y = x.clone()
    y.data.mul_(3)
    y.data[0].add_(1)
    return y, y.data.sum()


def data_written_of_leaf(x):
    y = x.detach().clone().requires_grad_()
    y.data.add_(1)
    return (y * x).sum()


def data_written_after_use(x):
    y = x * 2
    z = y * y
    y.data.mul_(3)
    return z.sum(), y


def data_version(x):
    y = x.clone()
    d = y.data
    d.add_(1)
    return y, d, y._version, d._version


def data_of_input_written(x):
    x.data.mul_(2)
    return x + 1


def data_of_parameter_decays(x):
    p = nn.Parameter(x.detach().clone())
    p.data.mul_(0.9).add_(x.detach(), alpha=-0.1)
    return (p * x).sum()


def data_flags(x):
    d = x.data
    return d.requires_grad, d.is_leaf, d.grad_fn is None, d is x, d.shape, about(d)


def data_copy(x):
    y = x.clone()
    y.data.copy_(x * 3)
    return y


def data_item_set(x):
    y = x.clone()
    y.data[0] = 5.0
    return y


def detach_written(x):
    y = x.clone()
    y.detach().mul_(3)
    return y, y._version


def detached_in_place(x):
    y = x * 2
    y.detach_()
    return y * x, y.requires_grad, y.is_leaf


# -- `set_`, `as_strided_`, `resize_` ---------------------------------------------------------------------------------------
def set_to_tensor(x):
    y = torch.empty(0)
    y.set_(x.clone())
    return y * 2


def set_shares(x):
    y, u = torch.empty(0), x.clone()
    y.set_(u)
    u.add_(1)
    return y, u


def set_returns_itself(x):
    y = torch.empty(0)
    return y.set_(x.clone()) is y, y.shape, y.stride()


def set_to_nothing(x):
    y = x.clone()
    y.set_()
    return y.shape, y


def set_to_view(x):
    y = torch.empty(0)
    y.set_((x * 2).t())
    return y, y.stride(), y.sum(0)


def set_to_part(x):
    y, u = torch.empty(0), x.clone()
    y.set_(u, 1, (2, 2), (4, 1))
    y.add_(1)
    return y, u


def set_to_storage(x):
    y, u = torch.empty(0), x.clone()
    y.set_(u.untyped_storage(), 0, u.shape, u.stride())
    return y


def set_version(x):
    y = torch.empty(0)
    y.set_(x.clone())
    return y._version


def restrided(x):
    y = x.clone()
    y.as_strided_((2, 2), (1, 2))
    return y, y.stride(), y + 1


def restrided_with_offset(x):
    y = x.clone()
    z = y.as_strided_((2, 3), (3, 1), 1)
    z.mul_(2)
    return z is y, y


def resized_smaller(x):
    y = x.clone()
    y.resize_(2, 2)
    return y, y.shape


def resized_larger(x):
    y = x.clone()
    y.resize_(x.shape[0] + 1, 4)
    return y[: x.shape[0]], y.shape


def resized_as(x):
    y = x.clone()
    y.resize_as_(x[:1])
    return y


def resized_empty(x):
    y = torch.empty(0)
    y.resize_(x.shape).fill_(2)
    return y + x


def resized_keeps_memory(x):
    y = x.clone()
    v = y[0]
    y.resize_(1, 4)
    y.add_(1)
    return v, y


def transposed_in_place(x):
    y = x.clone()
    y.t_().add_(1)
    y.unsqueeze_(0).squeeze_(0).transpose_(0, 1)
    return y, y.stride(), y._version


# -- made through classes ----------------------------------------------------------------------------------------------------
def parameter_flags(x):
    p = nn.Parameter(x.detach().clone())
    q = nn.Parameter(x.detach().clone(), requires_grad=False)
    return about(p, q), isinstance(p, nn.Parameter), isinstance(p, torch.Tensor)


def parameter_shares(x):
    u = x.detach().clone()
    p = nn.Parameter(u, requires_grad=False)
    u.add_(1)
    return p * 1, u


def parameter_given_back(x):
    return nn.Parameter(x.detach() * 2)


def parameter_of_input(x):
    p = nn.Parameter(x.detach())
    return (p * x).sum(), p.requires_grad


def parameter_without_gradients_given_back(x):
    return nn.Parameter(x.detach() * 2, requires_grad=False)


def parameter_without_arguments(x):
    return nn.Parameter().shape, x * 2


def parameter_trained(x):
    p = nn.Parameter(torch.ones(4))
    ((x.detach() * p).sum()).backward()
    with torch.no_grad():
        p -= 0.1 * p.grad
    return p.detach().clone(), p.grad


def buffer_made(x):
    b = nn.Buffer(x.detach() * 2)
    return b + 1, isinstance(b, nn.Buffer)


def module_made(x):
    m = nn.Linear(4, 2)
    with torch.no_grad():
        m.weight.fill_(0.5)
        m.bias.zero_()
    return m(x)


def tensor_of_list(x):
    return torch.Tensor([1.0, 2.0]) + x[0, :2], torch.Tensor([[1, 2], [3, 4]]).dtype


def tensor_of_sizes(x):
    return torch.Tensor(2, x.shape[0]).shape, torch.Tensor().shape, torch.Tensor(x.shape).shape


def tensor_of_tensor(x):
    return torch.Tensor(x) + 1


def float_tensor(x):
    return torch.FloatTensor([1.0, 2.0]), torch.LongTensor([1, 2]), torch.DoubleTensor(2, x.shape[0]).shape


def new_of_tensor(x):
    return x.new([1.0, 2.0]), x.new_tensor([x.shape[0]]), x.new(2, 3).shape, x.new_tensor(3)


def tensor_copied(x):
    y = torch.tensor([[1.0, 2.0]], requires_grad=False)
    return torch.as_tensor(y) is y, torch.asarray(x).shape


def tensor_with_gradients(x):
    w = torch.ones(4, requires_grad=True)
    return (x.detach() * w).sum(0).detach(), w.requires_grad, w.is_leaf


# -- weak references ---------------------------------------------------------------------------------------------------------
def weak_reference(x):
    y = x * 2
    r = weakref.ref(y)
    return r() is y, r() + 1


def weak_reference_to_input(x):
    r = weakref.ref(x)
    return r() is x, r() * 2


def weak_reference_dead(x):
    r = weakref.ref(x * 2)
    return r() is None, x + 1


def weak_reference_deleted(x):
    y = x * 2
    z = y + 1
    r = weakref.ref(y)
    alive = r() is not None
    del y
    return alive, r() is None, z


def weak_reference_given_back(x):
    y = x * 2
    return y, weakref.ref(y)() is y


class Node:
    """What programs refer to."""


def weak_reference_returned(x):
    y, o = x * 2, Node()
    o.y = y
    return y, weakref.ref(y), o, weakref.ref(o), weakref.ref(Node())


def weak_reference_in_place(x):
    y = x * 2
    r = weakref.ref(y)
    y += 1
    y.mul_(2)
    return r() + 1, r() is y, weakref.ref(y) is r


def weak_references_to_objects(x):
    owner, part = Node(), Node()
    part.owner, owner.part, owner.v = weakref.ref(owner), part, x * 2
    return owner.part.owner().v + 1, part.owner() is owner


def weak_references_to_gone(x):
    refs = []
    for i in range(3):
        o = Node()
        o.i = i
        refs.append(weakref.ref(o))
    return [r() is None for r in refs[:2]], refs[2]().i + x


def weak_reference_as_key(x):
    d = {weakref.ref(x): 1}
    return d[weakref.ref(x)], isinstance(weakref.ref(x), weakref.ref), x + 1


def weak_reference_over_a_break(x):
    y, o = x * 2, Node()
    r, s = weakref.ref(y), weakref.ref(o)
    print(float(y.sum()))
    return r() + 1, s() is o


def weak_reference_of_a_subclass(x):
    class Named(weakref.ref):
        pass

    o = Node()
    return Named(o)() is o, x + 1


def weak_reference_refused(x):
    try:
        weakref.ref(3)
    except TypeError as e:
        return str(e), x + 1


def weak_reference_that_calls(x):
    seen, o = [], Node()
    r = weakref.ref(o, lambda _: seen.append(len(seen)))
    del o
    n = len(seen)
    return n, r() is None, seen, x + n


def weak_proxy(x):
    o = Node()
    o.v = x
    p = weakref.proxy(o)
    return p.v + 1


def weak_keys(x):
    d = torch.utils.weak.WeakTensorKeyDictionary()
    y = x * 2
    d[y] = y + 1
    return d[y], len(d), y in d, x in d


def weak_id_keys(x):
    d = torch.utils.weak.WeakIdKeyDictionary()
    d[x] = 3
    return x * d[x], len(d)


def weak_values(x):
    d = weakref.WeakValueDictionary()
    y = x * 2
    d["a"] = y
    return d["a"] + 1, len(d)


# -- defaults ----------------------------------------------------------------------------------------------------------------
def default_dtype(x):
    torch.set_default_dtype(torch.float64)
    y = torch.ones(3)
    torch.set_default_dtype(torch.float32)
    return y, torch.ones(2), x * 2


def default_dtype_asked(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    now = torch.get_default_dtype(), torch.tensor(1.5).dtype, torch.arange(0.0, 1.0, 0.5).dtype, (x.long() / 2).dtype
    torch.set_default_dtype(before)
    return now, torch.get_default_dtype()


def default_dtype_try(x):
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        return torch.zeros(x.shape), torch.linspace(0, 1, 3), torch.complex(torch.ones(1), torch.ones(1)).dtype
    finally:
        torch.set_default_dtype(before)


def default_dtype_wrong(x):
    try:
        torch.set_default_dtype(torch.int64)
    except TypeError as e:
        return str(e), x * 2


def default_tensor_type(x):
    torch.set_default_tensor_type(torch.DoubleTensor)
    y = torch.ones(2)
    torch.set_default_tensor_type(torch.FloatTensor)
    return y, x + 1


def default_device(x):
    torch.set_default_device("cpu")
    z = torch.zeros(4)
    torch.set_default_device(None)
    return x + z, torch.get_default_device()


def device_block(x):
    with torch.device("cpu"):
        y = torch.ones(4)
        d = torch.get_default_device()
    return x + y, d


def device_block_meta(x):
    with torch.device("meta"):
        y = torch.ones(x.shape)
    return y.shape, y.device.type, torch.ones(2), x * 2


def device_decorated(x):
    @torch.device("cpu")
    def make():
        return torch.ones(4)

    return x + make()


def device_block_nested(x):
    with torch.device("meta"):
        with torch.device("cpu"):
            y = torch.arange(4.0)
    return x + y


# -- inference mode ------------------------------------------------------------------------------------------------------------
def inference(x):
    with torch.inference_mode():
        return x * 2 + 1


def inference_flags(x):
    with torch.inference_mode():
        y = x * 2
        inside = torch.is_inference_mode_enabled(), torch.is_grad_enabled(), y.is_inference(), x.is_inference()
        v = x[0].is_inference(), x[0].requires_grad
    return inside, v, y.is_inference(), y.requires_grad, torch.is_inference_mode_enabled(), (x * 2).is_inference()


def inference_then_outside(x):
    with torch.inference_mode():
        y = x * 2
    return y + x.detach(), y


def inference_off(x):
    with torch.inference_mode(False):
        return x * 2


def inference_inside_off(x):
    with torch.inference_mode():
        with torch.inference_mode(False):
            y = x * 2
        z = x * 3
    return y, z, y.requires_grad, z.requires_grad


def inference_written(x):
    with torch.inference_mode():
        y = x * 2
        y.add_(1)
        y[0] = 3.0
    return y


def inference_saved(x):
    with torch.inference_mode():
        y = x.detach() * 2
    try:
        return y * x.detach().clone().requires_grad_()
    except RuntimeError as e:
        return str(e)


def inference_cloned(x):
    with torch.inference_mode():
        y = x * 2
    z = y.clone()
    return z * x, z.is_inference(), z.requires_grad


@torch.inference_mode()
def decorated(x):
    return x * 2 + 1


def inference_decorated(x):
    y = decorated(x)
    return y, y.is_inference()


def inference_decorated_inside(x):
    @torch.inference_mode()
    def f(u):
        return u.sin()

    return f(x)


def inference_of_input_written(x):
    y = x.clone()
    with torch.inference_mode():
        y.add_(1)
    return y, y.is_inference(), y._version


# -- versions --------------------------------------------------------------------------------------------------------------------
def versions(x):
    y = x * 2
    a = y._version
    y.add_(1)
    b = y._version
    y[0].mul_(2)
    return a, b, y._version, y


def versions_of_views(x):
    y = x.clone()
    v = y.t()
    v.add_(1)
    return y._version, v._version, y[0]._version, y.detach()._version, y.clone()._version


def versions_of_inputs(x):
    before = x._version
    x.add_(1)
    return x._version - before


def version_changed_by_hand(x):
    y = x * 2
    torch.autograd.graph.increment_version(y)
    return y._version, y


def version_kept(x):
    y = x * 2
    with torch.autograd._unsafe_preserve_version_counter(y):
        y.add_(1)
    return y._version, y


def versions_without_gradients(x):
    y = x * 2
    with torch.no_grad():
        y.add_(1)
        y.zero_()
    return y._version


def versions_of_results(x):
    y = x.clone()
    torch.add(x, 1, out=y)
    return y._version, y


def versions_of_lists(x):
    y = [x.clone(), x * 2]
    torch._foreach_add_(y, 1)
    return [v._version for v in y]


# -- history --------------------------------------------------------------------------------------------------------------------
def nodes_asked(x):
    y = (x * 2).sin()
    return y.grad_fn is not None, y.grad_fn.name(), type(y.grad_fn).__name__, y.sum()


def nodes_followed(x):
    y = (x * 2).sin()
    n = y.grad_fn
    names = []
    while n is not None:
        names.append(n.name())
        n = n.next_functions[0][0] if n.next_functions else None
    return names, y.sum()


def node_given_back(x):
    return (x * 2).grad_fn.name()


def node_of_input(x):
    return x.grad_fn, x.is_leaf, x * 2


def node_shown(x):
    y = x * 2
    return bool(y.grad_fn), y.grad_fn is y.grad_fn, y


def leaves(x):
    y = x * 2
    return x.is_leaf, y.is_leaf, y.detach().is_leaf, x.detach().is_leaf, torch.ones(2).is_leaf, y


def retained(x):
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward()
    return y.grad, y.retains_grad


def retained_twice(x):
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    z = y.sin()
    z.retain_grad()
    z.sum().backward()
    return y.grad, z.grad


def retained_not_reached(x):
    y = x * 2
    y.retain_grad()
    return y.retains_grad, x.retains_grad, y.grad, y.sum()


def retained_leaf(x):
    x.retain_grad()
    return x.retains_grad, x * 2


def retained_given_back(x):
    y = x * 2
    y.retain_grad()
    return y


def grad_flag_set(x):
    y = x.detach() * 2
    y.requires_grad_()
    z = (y * x).sum()
    return z, y.requires_grad, y.is_leaf


def grad_flag_attribute(x):
    y = x.detach() * 2
    y.requires_grad = True
    return (y * x).sum()


def grad_flag_given_back(x):
    return (x.detach() * 2).requires_grad_()


def grad_flag_off(x):
    y = x.detach().clone().requires_grad_()
    y.requires_grad_(False)
    return y * 2, y.requires_grad


def grad_flag_off_result(x):
    y = x * 2
    try:
        y.requires_grad_(False)
    except RuntimeError as e:
        return str(e), y
    return y


def grad_flag_of_ints(x):
    y = x.long()
    try:
        y.requires_grad_()
    except RuntimeError as e:
        return str(e), y


def gradient_by_inputs(x):
    a = x.detach().clone().requires_grad_()
    b = x.detach().clone().requires_grad_()
    (a * b).sum().backward(inputs=[a])
    return a.grad, b.grad


def gradient_by_input(x):
    a = x.detach().clone().requires_grad_()
    (a * a).sum().backward(inputs=a)
    return a.grad


def gradient_by_inputs_not_leaves(x):
    y = x * 2
    (y * y).sum().backward(inputs=[y])
    return y.grad


def gradient_accumulated(x):
    a = x.detach().clone().requires_grad_()
    for _ in range(3):
        (a * a).sum().backward()
    g = a.grad.clone()
    a.grad = None
    return g, a.grad


def gradient_set(x):
    a = x.detach().clone().requires_grad_()
    a.grad = x.detach() * 2
    (a * a).sum().backward()
    return a.grad


def gradient_zeroed(x):
    a = x.detach().clone().requires_grad_()
    (a * a).sum().backward()
    a.grad.zero_()
    return a.grad, a


def gradient_of_result(x):
    y = x * 2
    return y.grad is None, y


# -- hooks ----------------------------------------------------------------------------------------------------------------------
def hooked(x):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return y.sum()


def hooks_twice(x):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    y.register_hook(lambda g: g + 1)
    return y.sin().sum()


def hook_removed(x):
    y = x * 2
    h = y.register_hook(lambda g: g * 3)
    h.remove()
    return y.sum()


def hook_that_keeps(x):
    kept = []
    y = x * 2
    y.register_hook(lambda g: kept.append(g))
    y.sum().backward()
    return kept, x.grad


def hook_that_only_looks(x):
    y = x * 2
    y.register_hook(lambda g: None)
    return y.sum()


def hook_on_leaf(x):
    a = x.detach().clone().requires_grad_()
    a.register_hook(lambda g: g * 2)
    (a * a).sum().backward()
    return a.grad


def hook_after_accumulation(x):
    a = x.detach().clone().requires_grad_()
    kept = []
    a.register_post_accumulate_grad_hook(lambda p: kept.append(p.grad.sum()))
    (a * a).sum().backward()
    return a.grad, kept


def hook_refused(x):
    try:
        x.detach().register_hook(lambda g: g)
    except RuntimeError as e:
        return str(e), x * 2


# -- grad mode ---------------------------------------------------------------------------------------------------------------------
@torch.no_grad()
def without(x):
    return x * 2


@torch.enable_grad()
def with_gradients(x):
    return x * 2


@torch.set_grad_enabled(False)
def set_off(x):
    return x * 2


def mode_block(x):
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            z = x * 3
    return about(y, z), z.sum()


def mode_decorated(x):
    return about(without(x), with_gradients(x), set_off(x)), x * 2


def mode_decorated_in_mode(x):
    with torch.no_grad():
        y = with_gradients(x)
    return y.sum(), y.requires_grad


def mode_function(x):
    f = torch.no_grad()(lambda u: u * 2)
    return f(x), f(x).requires_grad


def mode_by_flag(x):
    out = []
    for flag in (True, False):
        with torch.set_grad_enabled(flag):
            out.append((x * 2).requires_grad)
    return out, torch.is_grad_enabled(), x * 1


def mode_called(x):
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(True)
    return y.requires_grad, (x * y).sum()


def mode_left_by_exception(x):
    try:
        with torch.no_grad():
            raise ValueError("left")
    except ValueError:
        return torch.is_grad_enabled(), x * 2


def mode_generator(x):
    @torch.no_grad()
    def rows(u):
        for i in range(2):
            yield u[i] * 2

    return [r.requires_grad for r in rows(x)], torch.is_grad_enabled(), x * 2


def mode_class(x):
    @torch.no_grad
    def f(u):
        return u * 2

    return f(x).requires_grad, x * 1


PLAIN = [
    data_set, data_set_other_sizes, data_set_other_dtype, data_set_shares, data_set_view, data_set_version, data_set_of_input,
    data_set_keeps_views, data_written, data_written_twice, data_version, data_of_input_written, data_flags, data_copy, data_item_set,
    detach_written, set_to_tensor, set_shares, set_returns_itself, set_to_nothing, set_to_view, set_to_part, set_to_storage,
    set_version, restrided, restrided_with_offset, resized_smaller, resized_larger, resized_as, resized_empty, resized_keeps_memory,
    transposed_in_place, parameter_flags, parameter_shares, parameter_given_back, parameter_without_gradients_given_back,
    parameter_without_arguments, parameter_trained, buffer_made, module_made, tensor_of_list, tensor_of_sizes, tensor_of_tensor,
    float_tensor, new_of_tensor, tensor_copied, tensor_with_gradients, weak_reference, weak_reference_to_input, weak_reference_dead,
    weak_reference_deleted, weak_reference_given_back, weak_reference_returned, weak_reference_in_place, weak_references_to_objects,
    weak_references_to_gone, weak_reference_as_key, weak_reference_over_a_break, weak_reference_of_a_subclass, weak_reference_refused,
    weak_reference_that_calls, weak_proxy, weak_keys, weak_id_keys, weak_values, default_dtype, default_dtype_asked,
    default_dtype_try, default_dtype_wrong, default_tensor_type, default_device, device_block, device_block_meta, device_decorated,
    device_block_nested, inference, inference_flags, inference_then_outside, inference_off, inference_inside_off, inference_written,
    inference_saved, inference_cloned, inference_decorated, inference_decorated_inside, inference_of_input_written, versions,
    versions_of_views, versions_of_inputs, version_changed_by_hand, version_kept, versions_without_gradients, versions_of_results,
    versions_of_lists, leaves, grad_flag_given_back, grad_flag_of_ints, hook_refused, mode_left_by_exception,
]  # fmt: skip
WITH_GRADIENTS = [
    data_written_of_leaf, data_written_after_use, data_of_parameter_decays, detached_in_place, parameter_of_input, inference_cloned,
    nodes_asked, nodes_followed, node_given_back, node_of_input, node_shown, leaves, retained, retained_twice, retained_not_reached,
    retained_leaf, retained_given_back, grad_flag_set, grad_flag_attribute, grad_flag_given_back, grad_flag_off, grad_flag_off_result,
    gradient_by_inputs, gradient_by_input, gradient_by_inputs_not_leaves, gradient_accumulated, gradient_set, gradient_zeroed,
    gradient_of_result, hooked, hooks_twice, hook_removed, hook_that_keeps, hook_that_only_looks, hook_on_leaf, hook_after_accumulation,
    mode_block, mode_decorated, mode_decorated_in_mode, mode_function, mode_by_flag, mode_called, mode_generator,
    mode_class, inference_flags, inference_inside_off, versions, versions_without_gradients, data_set, data_written, data_flags,
    weak_reference,
]  # fmt: skip
programs(__name__, *ROWS, **WHOLE)({f.__name__: f for f in PLAIN})
programs(__name__, *GRADS, **BACK)({f"d_{f.__name__}": f for f in WITH_GRADIENTS})
listed(__name__, {
    "d_data_set": "a tensor with a history is given other memory",
    "set_to_storage": "a storage is handed about",
    "resized_keeps_memory": "what is resized shares its memory",
    "tensor_of_sizes": "a tensor is made by its class of a size",
    "tensor_of_tensor": "a tensor is made by its class of a tensor",
    "weak_reference_dead": "the garbage collector decides",
    "weak_reference_deleted": "the garbage collector decides",
    "weak_reference_of_a_subclass": "a class over one of C",
    "weak_reference_refused": "an int, of which eager says that there is none",
    "weak_reference_that_calls": "a callback",
    "weak_proxy": "the garbage collector decides",
    "weak_keys": "the garbage collector decides",
    "weak_id_keys": "the garbage collector decides",
    "weak_values": "the garbage collector decides",
    "default_dtype_asked": "a quotient of integers is of the default dtype",
    "default_tensor_type": "it is deprecated, and warns",
    "inference_saved": "an operator raises inside `try`",
    "version_changed_by_hand": "the engine is told to count",
    "d_data_written_after_use": "a result that another one comes from is written through .data",
    "d_retained_given_back": "a tensor whose gradient is retained outlives the graph",
    "d_hook_that_keeps": "a hook changes a list",
    "d_hook_after_accumulation": "a hook that runs after the engine",
}, breaks=(1, 9))
listed(__name__, {"new_of_tensor": "sizes are pinned"}, breaks=0)
listed(__name__, {"device_decorated": "it raises"}, must_compile=False)


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


def detached_or_not(x):
    x.data.mul_(2)
    y = x.detach() if x.sum() else x
    return y + 1


def a_row_or_another(x):
    x.data.mul_(2)
    return x[0] if x.sum() else x[1]


def made_or_computed(x):
    x.data.mul_(2)
    return torch.full_like(x, 1) if torch.rand(()) else x * 2


@pytest.mark.parametrize("fn", [detached_or_not, a_row_or_another, made_or_computed])
def test_writes_through_data_beside_branches_that_give_views(fn):
    """The tensor itself does not count them, however the graph is run."""
    compiled = pliant.compile(fn, background=False)
    for n in (2, 3, 2):
        said = []
        for run in (fn, compiled):
            x = torch.ones(n, 2)
            out = run(x)
            said.append((x._version, x.tolist(), out.tolist()))
        assert said[0] == said[1]


# -- tensors over arrays, in inference mode ----------------------------------------------------------------------------------
OVER_ARRAYS = {
    "from_numpy": lambda a: torch.from_numpy(a),
    "as_tensor": lambda a: torch.as_tensor(a),
    "asarray": lambda a: torch.asarray(a),
    "part": lambda a: torch.from_numpy(a[1:]),
    "made": lambda a: torch.from_numpy(a + 1),
    "copy": lambda a: torch.tensor(a),
}


@pytest.mark.parametrize("name", OVER_ARRAYS)
@pytest.mark.parametrize("around", [False, True])
def test_tensors_over_arrays_are_of_the_mode_that_they_are_made_in(name, around):
    make = OVER_ARRAYS[name]

    def inside(a):
        with torch.inference_mode():
            x = make(a)
        return x, x.is_inference(), (x + 1).is_inference()

    def outside(a):
        with torch.inference_mode(False):
            x = make(a)
        with torch.inference_mode():
            y = make(a)
        return x, y, x.is_inference(), y.is_inference()

    for fn in (inside, outside):
        f = compiled(fn)
        for rows in (3, 4, 3):
            with torch.inference_mode(around):
                a, b = np.ones(rows), np.ones(rows)
                want, got = fn(a), f(b)
                for v, w in zip(want, got, strict=True):
                    if type(v) is bool:
                        assert v is w
                        continue
                    assert v.is_inference() is w.is_inference() and torch.equal(v, w)
                    assert np.shares_memory(v.numpy(), a) is np.shares_memory(w.numpy(), b)


# -- versions ------------------------------------------------------------------------------------------------------------------
LISTS = {
    "transposed": lambda v: [v, v.t()],
    "rows": lambda v: list(v.unbind(0)),
    "twice": lambda v: [v, v],
    "of data": lambda v: [v.data, v],
    "detached": lambda v: [v.detach(), v.view(-1)],
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("made", [False, True])
def test_operators_on_lists_count_each_tensor(name, made):
    def written(v):
        v = v * 1 if made else v
        parts = LISTS[name](v)
        torch._foreach_add_(parts, [p.clone() for p in parts])
        torch._foreach_mul_(parts, 2)
        return v, parts, v._version, [p._version for p in parts]

    def told(result):
        v, parts, *said = result
        return v.tolist(), v._version, [(p.tolist(), p._version) for p in parts], said

    f = compiled(written)
    for _ in range(2):
        assert told(written(torch.ones(2, 2))) == told(f(torch.ones(2, 2)))


# -- nodes ---------------------------------------------------------------------------------------------------------------------
def told_by_a_hook(x):
    heard, y = [], x * 2
    y.grad_fn.register_hook(lambda given, got: heard.append((len(given), len(got))))
    y.sum().backward()
    return heard


def doubled_by_a_hook(x):
    y = x * 3
    y.grad_fn.register_prehook(lambda gs: tuple(g * 2 for g in gs))
    return torch.autograd.grad(y.sum(), x)[0].tolist()


NODES = {
    "hook before": doubled_by_a_hook,
    "hook": told_by_a_hook,
    "saved": lambda x: (x * x).grad_fn._saved_self is not None,
    "text": lambda x: str((x * 2).grad_fn).split(" at ")[0],
    "kind": lambda x: type((x * 2).grad_fn).__name__,
    "of a layer": lambda x: nn.functional.linear(x, torch.ones(2, 3)).grad_fn.next_functions[0][0].name(),
}


@pytest.mark.parametrize("name", NODES)
def test_nodes_that_the_function_asks_are_eagers(name):
    f = compiled(NODES[name])
    for rows in (2, 3, 2):
        want, got = (g(torch.ones(rows, 3, requires_grad=True)) for g in (NODES[name], f))
        assert want == got


COUNTS = {
    "a norm": lambda a, b: torch.ops.aten._batch_norm_with_update(torch.ones(3, 2, 2), None, None, a, b, 0.1, 1e-5),
    "noise": lambda a, b: torch.ops.aten.rrelu_with_noise(torch.ones(2) - 2, a, 0.1, 0.3, True),
    "noise in place": lambda a, b: torch.ops.aten.rrelu_with_noise_(a, b, 0.1, 0.3, True),
    "a check of a list": lambda a, b: torch._amp_foreach_non_finite_check_and_unscale_([a], b[:1], torch.ones(1)),
    "a scale": lambda a, b: torch._amp_update_scale_(a[:1], b[:1].view(torch.int32), torch.zeros(1), 2.0, 0.5, 3),
    "an observer": lambda a, b: torch.fused_moving_avg_obs_fake_quant(
        torch.ones(3), torch.ones(1).long(), torch.ones(1).long(), a[:1], b[:1], torch.ones(1), torch.zeros(1).int(), 0.1, 0, 255, 0),
    "a step": lambda a, b: torch._fused_sgd_([a], [b], [], weight_decay=0.0, momentum=0.0, lr=0.1, dampening=0.0, nesterov=False,
        maximize=False, is_first_step=False),
    "lists": lambda a, b: torch._foreach_add_([a], [b]),
    "one in place": lambda a, b: a.mul_(b),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTS)
def test_writes_are_counted_as_pytorch_counts_them(name):
    op = COUNTS[name]

    def f(x, a, b):
        y = x * 3
        op(a, b)
        return y.sum()

    found = []
    for run in (f, compiled(f)):
        x, a, b = torch.ones(2, requires_grad=True), torch.ones(2), torch.ones(2)
        torch.manual_seed(0)
        run(x, a, b)
        found.append((a._version, b._version, a, b))
    assert found[0][:2] == found[1][:2]
    torch.testing.assert_close(found[0], found[1])
