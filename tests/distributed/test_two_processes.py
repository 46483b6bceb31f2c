"""Programs of two processes: answers, losses and gradients are eager's, captures stay as in one process, nobody waits for a compiler."""

import pytest
import torch

pytest.importorskip("torch.distributed", reason="PyTorch was built without it")
if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("PyTorch was built without gloo", allow_module_level=True)

from tests.distributed import cases  # noqa: E402
from tests.distributed.processes import together  # noqa: E402


@pytest.fixture(scope="module")
def found():
    return together("tests.distributed.cases", list(cases.CASES))


def of(found, name):
    errors = "\n".join([f"rank {rank}: {said['error']}" for rank, said in enumerate(found[name]) if said["error"]])
    assert not errors, errors
    return found[name]


@pytest.mark.parametrize("name", [fn.__name__ for fn in cases.PROGRAMS] + [f"{fn.__name__}, gradients" for fn in cases.DIFFERENTIATED])
def test_a_collective_is_an_operator_of_the_graph(found, name):
    for said in of(found, name):
        assert said["captures"] == [1] * len(cases.SIZES)
        assert not said["stats"]["graph_breaks"]


@pytest.mark.parametrize("name", [fn.__name__ for fn in cases.BROKEN])
def test_what_breaks_the_graph_gives_the_same(found, name):
    for said in of(found, name):
        assert said["stats"]["graph_breaks"] and not said["stats"]["fallbacks"]


def test_a_group_is_guarded_by_its_name(found):
    assert [said["captures"] for said in of(found, "another group")] == [2, 2]


def test_captures_are_local(found):
    first, second = of(found, "one rank compiles more")
    assert second["captures"] > first["captures"]


@pytest.mark.parametrize("name", ["DDP around a compiled module", "a compiled DDP module"])
def test_data_parallel_training(found, name):
    for said in of(found, name):
        assert said["difference"] < 1e-5
        assert said["captures"][-1] <= 3 and said["captures"][1:] == [said["captures"][1]] * (len(said["captures"]) - 1)
        assert not said["stats"]["graph_breaks"]


@pytest.mark.parametrize("name", ["a compiled sharded module", "sharded compiled modules"])
def test_sharded_training(found, name):
    for said in of(found, name):
        assert said["difference"] < 1e-5
        assert said["captures"][1:] == [said["captures"][1]] * (len(said["captures"]) - 1)  # none late
        assert not said["stats"]["fallbacks"]


def test_gradients_that_stay(found):
    of(found, "DDP without synchronization")
