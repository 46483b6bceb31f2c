"""Distributed tensors (`DTensor`) in two processes: functions by placement, tensor-parallel modules in training, what is guarded."""

import pytest
import torch

pytest.importorskip("torch.distributed", reason="PyTorch was built without it")
if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("PyTorch was built without gloo", allow_module_level=True)

from tests.distributed import tensor_cases as cases  # noqa: E402
from tests.distributed.processes import together  # noqa: E402
from tests.distributed.test_two_processes import of  # noqa: E402

BROKEN = ("mixed with plain", "asked for data")
"""Functions that have to break the graph, or raise."""


SECOND = (*cases.RESULTS, *cases.STEPS, *cases.OF_WAITING, "differentiated_twice", *[f"training, {name}" for name in cases.MODULES])
"""Cases of the second pair of processes: all of them are too many for the time that one has."""


@pytest.fixture(scope="module")
def found():
    return together("tests.distributed.tensor_cases", [name for name in cases.CASES if name not in SECOND])


@pytest.fixture(scope="module")
def others():
    return together("tests.distributed.tensor_cases", list(SECOND))


@pytest.mark.parametrize("name", [n for n in cases.CASES if n.removesuffix(", gradients") in cases.FUNCTIONS])
def test_functions(found, name):
    broken = name.removesuffix(", gradients") in BROKEN or name == "parts, gradients"  # PyTorch refuses writes to such views
    for said in of(found, name):
        assert not said["stats"]["fallbacks"]
        assert broken or said["raised"] or not said["stats"]["graph_breaks"]


@pytest.mark.parametrize("name", list(cases.MODULES))
def test_tensor_parallel_training(others, name):
    """One graph with gradients and one without, for all lengths."""
    for said in of(others, f"training, {name}"):
        assert said["stats"]["captures"] == 2
        assert not said["stats"]["graph_breaks"] and not said["stats"]["fallbacks"]


@pytest.mark.parametrize("name", list(cases.RESULTS))
def test_gradients_of_distributed_results(others, name):
    """However they are placed when they arrive, the gradients of inputs are placed as eager's."""
    for said in of(others, name):
        assert not said["stats"]["graph_breaks"] and not said["stats"]["fallbacks"]


@pytest.mark.parametrize("name", list(cases.STEPS))
def test_steps_over_distributed_parameters(others, name):
    for said in of(others, name):
        assert said["stats"]["captures"] <= 4 and not said["stats"]["graph_breaks"] and not said["stats"]["fallbacks"]


@pytest.mark.parametrize("name", list(cases.OF_WAITING))
def test_tensors_that_wait(others, name):
    for said in of(others, name):
        assert not said["stats"]["fallbacks"]
        assert "class" in name or "written" in name or not said["stats"]["graph_breaks"]


@pytest.mark.parametrize("name", ["other_placement", "other_mesh", "mesh_of_the_result", "dispatcher_told"])
def test_what_is_guarded(found, name):
    of(found, name)


def test_gradients_of_gradients(others):
    for said in of(others, "differentiated_twice"):
        assert not said["stats"]["graph_breaks"]
