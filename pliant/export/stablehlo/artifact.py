"""The StableHLO of one program, as an object: text, bytecode, file, calls."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import jaxlib._jax as _jax
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import stablehlo as hlo

from pliant.export.program import Program
from pliant.export.signature import SignatureError
from pliant.export.stablehlo import module, run


class StableHLO:
    """The module of a program. `made.text` is MLIR in the dialects stablehlo, chlo and func."""

    def __init__(self, groups: list[list[Program]], bounded: bool, composites: bool) -> None:
        self.programs, *rest = groups
        self.program = self.programs[0]
        self.made = module.build(self.programs, bounded, composites)
        self.runner: run.Runner | None = None
        #: the same function on other sides of its branches on sizes: modules of their own
        self.others = [StableHLO([group], bounded, composites) for group in rest]

    def text(self) -> str:
        """The module as MLIR."""
        return self.made.text

    def __str__(self) -> str:
        return self.made.text

    def bytecode(self, version: str | None = None) -> bytes:
        """The module as a portable artifact (VHLO), which consumers of `version` ("1.8.0") and newer read; by default one that is four
        weeks old. Operations of CHLO are legalised first. ValueError for a version that cannot express the module."""

        def work(context: Any) -> bytes:
            m = ir.Module.parse(self.made.text)
            legalise = "builtin.module(func.func(chlo-legalize-to-stablehlo,shape-legalize-to-stablehlo),canonicalize)"
            passmanager.PassManager.parse(legalise).run(m.operation)
            target = version or hlo.get_version_from_compatibility_requirement(hlo.StablehloCompatibilityRequirement.WEEK_4)
            return _jax.mlir.serialize_portable_artifact(m, target, False)

        return module.in_context(work)

    def save(self, path: Any) -> None:
        """Write the portable artifact; MLIR text if the name ends in `.mlir`."""
        path = Path(path)
        if path.suffix == ".mlir":
            path.write_text(self.text())
        else:
            path.write_bytes(self.bytecode())

    def run(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Outputs by name for inputs by name (tensors and numbers), computed by XLA on the CPU; see `run.Runner`."""
        if self.runner is None:
            self.runner = run.Runner(self.programs, self.made)
        try:
            return self.runner(inputs)
        except (SignatureError, run.OtherSide):
            for other in self.others:
                with contextlib.suppress(SignatureError, run.OtherSide):
                    return other.run(inputs)
            raise
