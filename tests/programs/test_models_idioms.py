"""Idioms of other people's models, met by `benchmarks.crawl`: what each needed of pliant, without their libraries."""

from __future__ import annotations

import collections
import copy
import functools
import logging

import pytest
import torch

import pliant
from tests.programs.registry import cases, each, program, t


class Factory(collections.OrderedDict):
    """Makes what is asked for: what it holds is not what it gives (activations of transformers)."""

    def __getitem__(self, key):
        cls, scale = super().__getitem__(key)
        return cls(scale)


class Scaled:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, x):
        return x * self.scale


@program(*each(4, 5, 1, n=1), world=True, captures=(1, 2), breaks=0)
def dict_that_makes_its_values():
    table = Factory(a=(Scaled, 2), b=(Scaled, 3))

    def run(x):
        return table["a"](x) + table["b"](x)

    return run, table


class Counting(dict):
    """A dict whose stores count, and which lists its keys backwards."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setitem__("stores", self.get("stores", 0) + 1)

    def __iter__(self):
        return reversed(list(super().__iter__()))


@program(*each(4, 5, 6, n=1), world=True, breaks=0)
def dict_that_counts_its_stores():
    table = Counting(a=1)

    def run(x):
        table["a"] = x.shape[0]
        return x + len(table) + table["stores"]

    return run, table


class Reversed(list):
    def __iter__(self):
        return reversed(list(super().__iter__()))


@program(*each(4, 5, n=1), world=True)
def list_that_goes_backwards():
    steps = Reversed([1, 2, 3])

    def run(x):
        for s in steps:
            x = x * 2 + s
        return x

    return run, steps

# -- text that nobody reads -------------------------------------------------------------------------------------------------
def check_that(condition, message):
    """As transformers' `torch_compilable_check`: the message is made by the caller whether it is needed or not."""
    if isinstance(message, str) and not torch.compiler.is_compiling() and not condition:
        raise ValueError(message)


@program(*each(4, 5, 6, n=1), breaks=0, captures=1)
def message_of_a_tensor(x):
    total = x.sum()
    check_that(total < 100, f"{total} is too much for {x.shape[0]} rows, of {total!r:>20}")
    return x + 1


@program(*each(4, 5, 6, n=1), breaks=0, captures=1)
def message_of_a_size_kept_a_while(x):
    messages = [f"{x.shape[0]} rows"]
    messages.append("none" + "!")
    return x * 2, messages.pop()


@program(*[([t(n, 2), t(n + 1, 3)],) for n in (4, 5, 6, 7)], breaks=0, captures=(1, 2))
def message_of_shapes(images):
    for image in images:
        torch._assert(image.dim() == 2, f"height and width expected, got {image.shape[-2:]} and {tuple(image.shape)!r}")
    return [image * 2 for image in images]


@program(*[(t(2), f"part {n}") for n in range(8)], world=False)
def names_that_change(x, name):
    text = f"{name} of {x.shape}"
    return x + 1, text, f"<{name}>"


@program(*each(4, 5, n=1), breaks=1)
def message_of_a_tensor_read(x):
    text = f"{x.sum()}"
    return x + len(text)


@program(*each(4, 5, n=1), breaks=0)
def message_of_a_tensor_returned(x):
    return x + 1, {"text": f"sum {x.sum()}"}


@program(*each(4, 5, n=1), breaks=0)
def message_of_a_tensor_among_others(x):
    return x + 1, ", ".join(["a", f"{x.sum()}"])


@program(*each(4, 5, n=1), breaks=1)
def message_before_a_break(x):
    text = f"{x.sum()}"
    pliant.graph_break()
    return x + 1, text


@program(*each(4, 5, n=1))
def message_raised_and_caught(x):
    try:
        raise ValueError(f"{x.shape[0]} rows")
    except ValueError as e:
        return x + 1, str(e)


@program(*each(4, 5, n=1))
def message_printed(x):
    print(f"{x.shape[0]} rows")
    return x + 1


@program(*each(4, 5, n=1), breaks=0)
def message_compared(x):
    return x + (1 if f"{x.shape[0]}" == "4" else 2)


# -- copies -----------------------------------------------------------------------------------------------------------------
class Config:
    defaults = {"rate": 0.5}

    def __init__(self, **settings):
        self.__dict__.update(settings)

    def __setattr__(self, name, value):
        raise AttributeError("settings are fixed")


class Versioned(Config):
    def __getstate__(self):
        return self.__dict__ | {"copied": True}


class Noted(Config):
    def __deepcopy__(self, memo):
        return type(self)(**copy.deepcopy(self.__dict__, memo), noted=True)


@program(*each(4, 5, 1, n=1), world=True, breaks=0)
def configuration_copied():
    inner = Config(depth=2, kinds=["a", "b"], shape=(1, [2]))
    config = Config(width=3, inner=inner, same=inner, table={"x": [1, 2]}, kind=torch.float32)
    config.__dict__["me"] = config

    def run(x):
        mine = copy.deepcopy(config)
        mine.__dict__["width"] += 1
        mine.inner.kinds.append("c")
        mine.table["x"].append(len(mine.inner.kinds))
        twin = copy.copy(config)
        twin.__dict__["width"] = 7
        parts = mine.inner is mine.same, mine.me is mine, mine.inner is inner, twin.inner is inner, twin.table is config.table
        return x * mine.width + config.width + twin.width, mine.table, mine.inner.kinds, parts, mine.defaults is Config.defaults

    return run, config


@program(*each(4, 5, n=1), world=True)
def copies_with_protocols():
    config = Config(a=Versioned(n=1), b=Noted(n=[2]), c={1, 2}, d=frozenset([3]), e=collections.OrderedDict(x=[1]))

    def run(x):
        mine = copy.deepcopy(config)
        mine.b.n.append(3)
        mine.e["x"].append(2)
        return x + 1, mine.a.copied, mine.b.noted, mine.b.n, config.b.n, mine.c, mine.d, mine.e

    return run, config


# -- loggers that speak once ------------------------------------------------------------------------------------------------
@program(*each(4, 5, 6, n=1), world=True, breaks=0, captures=1)
def warned_once():
    logger = logging.getLogger("program")

    @functools.lru_cache(None)
    def warning_once(self, *args):
        self.warning(*args)

    def run(x):
        warning_once(logger, "%s is old", "it")
        logger.info("it runs")
        return x + 1

    return run, None

# -- modules and operators --------------------------------------------------------------------------------------------------
@program(*each(2, 3, 1, tail=(5, 4), n=1), world=True, grad=True, breaks=0, captures=(1, 2))
def weights_known_by_weak_references():
    """`nn.LSTM` looks whether its parameters are still those that it holds weak references to."""
    torch.manual_seed(0)
    model = torch.nn.LSTM(4, 3, batch_first=True)
    return (lambda x: model(x)[0]), model


def replace_weight(i, model):
    if i == 1:
        model.weight_ih_l0 = torch.nn.Parameter(model.weight_ih_l0.detach() * 2)


@program(*each(2, 2, 2, tail=(5, 4), n=1), world=True, before=replace_weight)
def weights_replaced_beside_weak_references():
    torch.manual_seed(0)
    model = torch.nn.LSTM(4, 3, batch_first=True)
    return (lambda x: model(x)[0]), model


@program(*each(4, 5, n=1, grad=True), world=True, grad=True, breaks=0)
def gradients_without_shape_functions():
    loss = torch.nn.MultiMarginLoss(), torch.nn.MultiLabelMarginLoss()

    def run(x):
        scores = x.reshape(1, -1).repeat(2, 1)
        labels = torch.arange(scores.shape[1]).repeat(2, 1)
        shrunk = torch.nn.functional.hardshrink(scores) + torch.nn.functional.softshrink(scores)
        return loss[0](scores, labels[:, 0]) + loss[1](scores, labels) + shrunk.sum()

    return run, loss


@program(*[(t(2, 1, 8, 8, seed=i), k) for i, k in enumerate((2, 3, 2))], breaks=0)
def size_for_an_operator_of_plain_numbers(x, k):
    return torch.ops.aten.max_pool2d_with_indices(x, [k, k])[0]


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_idiom(case):
    case.run()
