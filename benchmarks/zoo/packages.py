"""Functions and models of packages that build on PyTorch: torchmetrics, kornia, MONAI, vit-pytorch, x-transformers. Not needed by pliant:
`pip install --no-deps torchmetrics lightning-utilities kornia kornia-rs monai vit-pytorch x-transformers einops einx frozendict`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.libraries import define_operators
from benchmarks.zoo.model import Call, Model

G = torch.Generator().manual_seed(0)
ROWS = (12, 7, 20, 33)
IMAGES = ((2, 3, 32, 40), (1, 3, 48, 32), (3, 3, 40, 40), (2, 3, 64, 48))
TOKENS = ((2, 12), (1, 7), (3, 20))


def rand(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=G)


def randint(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=G)


def function(package: str, name: str, calls: list[Call]) -> Model:
    def make() -> Any:
        define_operators()
        return getattr(importlib.import_module(package), name)

    return Model(f"{package} {name}", make, lambda _: calls)


def module(package: str, name: str, calls: list[Call], *, train: bool = True, **settings: Any) -> Model:
    def make() -> Any:
        define_operators()
        torch.manual_seed(0)
        return getattr(importlib.import_module(package), name)(**settings).eval()

    return Model(f"{package} {name}", make, lambda _: calls, train)


# -- torchmetrics ----------------------------------------------------------------------------------------------------------
CLASSIFICATION = "torchmetrics.functional.classification"
TASKS: dict[str, Callable[[int], tuple]] = {
    "binary": lambda n: (rand(n), randint(2, n)),
    "multiclass": lambda n: (rand(n, 5).softmax(-1), randint(5, n)),
    "multilabel": lambda n: (rand(n, 4), randint(2, n, 4)),
}
ROWWISE = ("cosine_similarity", "kl_divergence", "jensen_shannon_divergence")


def of_rows(n: int) -> tuple:
    return rand(n, 4).softmax(-1), rand(n, 4).softmax(-1)


def of_points(n: int) -> tuple:
    """Points, each with one of three labels that all occur."""
    return rand(n, 3), torch.cat([torch.arange(3), randint(3, n - 3)])


def settings_of(fn: Any) -> dict[str, Any]:
    """The keywords that a metric has to be given."""
    known = {"num_classes": 5, "num_labels": 4, "beta": 0.5, "p": 3, "exponent": 3, "threshold": 0.5}
    names = [name for name in list(inspect.signature(fn).parameters)[2:] if name in known or name.startswith("min_")]
    return {name: known.get(name, 0.5) for name in names}


def metrics() -> list[Model]:
    out: list[Model] = []
    define_operators()  # some of its modules import torchvision
    space = importlib.import_module(CLASSIFICATION)
    for name in dir(space):
        make = TASKS.get(name.partition("_")[0])
        if make is not None and "fairness" not in name and "groups" not in name:
            settings = settings_of(getattr(space, name))
            out.append(function(CLASSIFICATION, name, [(make(n), settings) for n in ROWS]))
    for package, given in (
        ("torchmetrics.functional.regression", lambda n: (rand(n) + 0.1, rand(n) + 0.1)),
        ("torchmetrics.functional.retrieval", lambda n: (rand(n), randint(2, n))),
        ("torchmetrics.functional.pairwise", lambda n: (rand(n, 4), rand(n + 2, 4))),
        ("torchmetrics.functional.clustering", lambda n: (randint(4, n), randint(4, n))),
    ):
        space = importlib.import_module(package)
        for name in space.__all__:
            fn = getattr(space, name)
            make = of_rows if name in ROWWISE else of_points if "data" in inspect.signature(fn).parameters else given
            out.append(function(package, name, [(make(n), settings_of(fn)) for n in ROWS]))
    return out


# -- kornia ----------------------------------------------------------------------------------------------------------------
def on_images(package: str, name: str, *args: Any) -> Model:
    return function(package, name, [((rand(*s), *args), {}) for s in IMAGES])


BOXES = ((3, 3), (1.5, 1.5))
SQUARE = torch.ones(3, 3)
FILTERS: dict[str, tuple] = {
    "gaussian_blur2d": BOXES, "box_blur": BOXES[:1], "median_blur": BOXES[:1], "motion_blur": (5, 30.0, 0.5), "sobel": (),
    "laplacian": (3,), "bilateral_blur": (BOXES[0], 0.1, BOXES[1]), "spatial_gradient": (), "unsharp_mask": BOXES,
    "blur_pool2d": (3,), "canny": (),
}  # fmt: skip
ENHANCE: dict[str, tuple] = {
    "adjust_brightness": (0.3,), "adjust_contrast": (0.7,), "adjust_gamma": (2.2,), "adjust_hue": (0.4,), "adjust_saturation": (1.7,),
    "adjust_sigmoid": (), "adjust_log": (), "equalize": (), "equalize_clahe": (), "invert": (), "posterize": (3,), "sharpness": (0.5,),
    "solarize": (0.5,), "normalize_min_max": (), "image_histogram2d": (),
}  # fmt: skip
GEOMETRY: dict[str, tuple] = {"hflip": (), "vflip": (), "rot180": (), "pyrdown": (), "pyrup": (), "resize": ((20, 24),), "rescale": (1.5,)}
COLORS = """bgr_to_rgb rgb_to_grayscale rgb_to_hls rgb_to_hsv hsv_to_rgb rgb_to_lab lab_to_rgb rgb_to_luv luv_to_rgb rgb_to_xyz
rgb_to_ycbcr""".split()
MORPHOLOGY = "dilation erosion opening closing gradient top_hat bottom_hat".split()


def pictures() -> list[Model]:
    return [
        *[on_images("kornia.filters", name, *args) for name, args in FILTERS.items()],
        *[on_images("kornia.enhance", name, *args) for name, args in ENHANCE.items()],
        *[on_images("kornia.geometry.transform", name, *args) for name, args in GEOMETRY.items()],
        *[on_images("kornia.color", name) for name in COLORS],
        *[on_images("kornia.morphology", name, SQUARE) for name in MORPHOLOGY],
        function("kornia.geometry.transform", "rotate", [((rand(*s), rand(s[0]) * 90), {}) for s in IMAGES]),
        function("kornia.losses", "ssim_loss", [((rand(*s), rand(*s), 5), {}) for s in IMAGES]),
        function("kornia.feature", "match_mnn", [((rand(n, 8), rand(n + 3, 8)), {}) for n in ROWS]),
    ]


# -- MONAI -----------------------------------------------------------------------------------------------------------------
NETS = "monai.networks.nets"
SLICES = [((rand(b, 1, h, w),), {}) for b, h, w in ((1, 32, 32), (2, 64, 32), (1, 64, 64))]
LABELLED = [((rand(b, 1, h, 32), (rand(b, 1, h, 32) > 0.5).float()), {}) for b, h in ((1, 32), (2, 48), (3, 32))]
FLAT = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}
MEDICAL = [
    module(NETS, "UNet", SLICES, train=False, **FLAT, channels=(4, 8, 16), strides=(2, 2), num_res_units=1),
    module(NETS, "BasicUNet", SLICES, train=False, **FLAT, features=(4, 4, 8, 8, 16, 4)),
    module(NETS, "AttentionUnet", SLICES, train=False, **FLAT, channels=(4, 8, 16), strides=(2, 2)),
    module(NETS, "VNet", SLICES, train=False, **FLAT),
    module(NETS, "DenseNet", SLICES, train=False, **FLAT, init_features=4, growth_rate=4, block_config=(1, 1)),
    module(NETS, "AutoEncoder", SLICES, train=False, **FLAT, channels=(4, 8), strides=(2, 2)),
    module(NETS, "HighResNet", SLICES, train=False, **FLAT),
    *[module("monai.losses", name, LABELLED, train=False, sigmoid=True) for name in ("DiceLoss", "DiceCELoss", "TverskyLoss")],
]


# -- transformers and their parts ---------------------------------------------------------------------------------------------
SQUARES = [((rand(b, 3, 32, 32),), {}) for b in (2, 3, 1)]
VIT = {"image_size": 32, "patch_size": 8, "num_classes": 7, "dim": 32, "depth": 2, "heads": 2, "mlp_dim": 48}
VITS = """simple_vit vit_for_small_dataset parallel_vit learnable_memory_vit simple_vit_with_qk_norm simple_vit_with_patch_dropout
normalized_vit""".split()
CLASSES = {"normalized_vit": "nViT", "vit_for_small_dataset": "ViT", "parallel_vit": "ViT", "learnable_memory_vit": "ViT"}
PARTS: dict[str, dict[str, Any]] = {
    "plain": {}, "rotary": {"rotary_pos_emb": True}, "alibi": {"alibi_pos_bias": True}, "t5": {"rel_pos_bias": True},
    "glu": {"ff_glu": True},
    "rms": {"use_rmsnorm": True}, "one kv": {"attn_one_kv_head": True}, "qk norm": {"attn_qk_norm": True}, "macaron": {"macaron": True},
    "residual": {"residual_attn": True}, "sandwich": {"sandwich_norm": True}, "shift": {"shift_tokens": 1},
    "sparse": {"attn_sparse_topk": 4}, "gated": {"attn_gate_values": True}, "hyper": {"num_residual_streams": 2},
    "talking": {"attn_pre_talking_heads": True},
}  # fmt: skip


def decoder(name: str, **settings: Any) -> Model:
    def make() -> Any:
        torch.manual_seed(0)
        x = importlib.import_module("x_transformers")
        layers = x.Decoder(dim=32, depth=2, heads=2, **settings)
        return x.TransformerWrapper(num_tokens=50, max_seq_len=64, attn_layers=layers).eval()

    return Model(f"x_transformers {name}", make, lambda _: [((randint(50, *s),), {}) for s in TOKENS], True)


def transformers() -> list[Model]:
    vits = [module(f"vit_pytorch.{name}", CLASSES.get(name, "SimpleViT"), SQUARES, **VIT) for name in VITS]
    return [*vits, *[decoder(name, **settings) for name, settings in PARTS.items()]]


class Families(dict):
    """Made when asked for: tables that are read from a package need the package."""

    def __missing__(self, family: str) -> list[Model]:
        return {"metrics": metrics, "pictures": pictures, "transformers": transformers}[family]()


FAMILIES = Families(medical=MEDICAL)
