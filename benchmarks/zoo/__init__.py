"""Other people's models, tiny and with random weights: what `benchmarks.crawl` compiles."""

from __future__ import annotations

import importlib
from typing import Any

#: family: the module that has it. Imported only when asked for: each needs its library.
FAMILIES = {
    "encoders": "texts",
    "decoders": "texts",
    "experts": "texts",
    "states": "texts",
    "translators": "texts",
    "generation": "texts",
    "vision": "senses",
    "audio": "senses",
    "mixed": "senses",
    "torchvision": "libraries",
    "timm": "libraries",
    "graphs": "libraries",
    "metrics": "packages",
    "pictures": "packages",
    "medical": "packages",
    "transformers": "packages",
    "speech": "more_packages",
    "flows": "more_packages",
    "sequences": "more_packages",
    "tables": "more_packages",
    "agents": "more_packages",
    "manifolds": "more_packages",
    "private": "research_packages",
    "curvature": "research_packages",
    "gaussian": "research_packages",
    "molecules": "research_packages",
    "operators": "research_packages",
    "attributions": "research_packages",
    "attacks": "research_packages",
    "supervision": "research_packages",
    "poses": "research_packages",
    "equations": "research_packages",
    "similarities": "research_packages",
    "signals": "small_packages",
    "attentions": "small_packages",
    "survival": "field_packages",
    "scores": "field_packages",
    "vectors": "field_packages",
    "recommenders": "field_packages",
    "beliefs": "field_packages",
    "series": "field_packages",
    "steppers": "field_packages",
}


def load(family: str) -> list[Any]:
    """The models of a family. ImportError where its library is not installed."""
    return importlib.import_module(f"benchmarks.zoo.{FAMILIES[family]}").FAMILIES[family]
