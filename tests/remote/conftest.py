"""Meshes for the tests: of threads, closed after each test, and one of Ray's for those that need processes."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import sys

import pytest

from pliant import remote

os.environ.setdefault("RAY_TQDM_PATCH_PRINT", "0")  # else Ray puts a function of its own in the place of `print`, for other tests too
EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "remote" / "gpt.py"


@pytest.fixture
def mesh():
    with remote.mesh(3, transport="threads", timeout=30) as m:
        yield m


@pytest.fixture(scope="session")
def gpt():
    """The example, as a module."""
    spec = importlib.util.spec_from_file_location("gpt_example", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpt_example"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def ray_session():
    """Ray, started once, small, and stopped at the end."""
    ray = pytest.importorskip("ray")
    if not ray.is_initialized():
        small = {"object_store_memory": 100_000_000, "_temp_dir": "/tmp/r", "include_dashboard": False}
        small["_system_config"] = {"worker_niceness": 0}
        ray.init(num_cpus=4, logging_level="ERROR", log_to_driver=False, **small)
    yield ray
    ray.shutdown()
