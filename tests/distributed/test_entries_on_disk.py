"""What programs of several processes leave on the disk: found by the same processes, and by no others."""

import pytest
import torch

pytest.importorskip("torch.distributed", reason="PyTorch was built without it")
if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("PyTorch was built without gloo", allow_module_level=True)

from tests.distributed import disk_cases as cases  # noqa: E402
from tests.distributed.processes import WORLD, together  # noqa: E402
from tests.distributed.test_two_processes import of  # noqa: E402


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs cases in new processes that find what the first ones left."""
    home = tmp_path_factory.mktemp("entries")

    def run_cases(names, world=WORLD):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PLIANT_CACHE_DIR", str(home))
            patch.setenv("PLIANT_ENTRIES", "1")
            patch.delenv("PLIANT_TEST_ENTRIES", raising=False)
            return together("tests.distributed.disk_cases", list(names), world)

    first = run_cases(cases.ALIKE)
    for name in cases.ALIKE:
        assert all([not said["stats"]["graph_breaks"] for said in of(first, name)])
    return run_cases


def test_the_next_processes_capture_nothing(run):
    found = run(cases.ALIKE)
    for name in cases.ALIKE:
        for said in of(found, name):
            assert not said["stats"]["captures"] and said["stats"]["from_disk"], name


def test_others_are_captured(run):
    """Meshes in another order or with other names, tensors that are placed otherwise, rules of the program's."""
    found = run(cases.OTHERS)
    for name in cases.OTHERS:
        assert all([said["stats"]["captures"] or said["stats"]["from_disk"] for said in of(found, name)])
        assert any([said["stats"]["captures"] for said in found[name]]), name


def test_another_number_of_processes(run):
    found = run(cases.ALIKE, world=1)
    for name in cases.ALIKE:
        for said in of(found, name):
            assert said["stats"]["captures"], name
