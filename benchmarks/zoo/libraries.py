"""Models of torchvision, timm and torch_geometric. Not needed by pliant: `pip install --no-deps torchvision timm torch_geometric`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.model import IMAGE_SHAPES, Call, Model

SIZES = tuple((b, h, w) for b, h, w in IMAGE_SHAPES)


def nms(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    """Non-maximum suppression, box by box: what `torchvision::nms` does."""
    order = scores.sort(stable=True, descending=True).indices
    x1, y1, x2, y2 = boxes.unbind(1)
    areas = (x2 - x1) * (y2 - y1)
    gone = torch.zeros(len(boxes), dtype=torch.bool)
    kept = []
    for i in order.tolist():
        if gone[i]:
            continue
        kept.append(i)
        w = (torch.minimum(x2[i], x2) - torch.maximum(x1[i], x1)).clamp(min=0)
        h = (torch.minimum(y2[i], y2) - torch.maximum(y1[i], y1)).clamp(min=0)
        gone |= w * h / (areas[i] + areas - w * h) > threshold
    return torch.tensor(kept, dtype=torch.int64)


def define_operators() -> None:
    """`torchvision::nms` and the schema of `roi_align`, before torchvision registers their shapes."""
    if hasattr(torch.ops.torchvision, "nms"):
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", nms, "CPU")
    KEPT.append(library)


KEPT: list[Any] = []


def images(_: Any) -> list[Call]:
    return [((torch.randn(b, 3, h, w, generator=torch.Generator().manual_seed(i)),), {}) for i, (b, h, w) in enumerate(SIZES)]


def squares(_: Any) -> list[Call]:
    return [((torch.randn(b, 3, 64, 64, generator=torch.Generator().manual_seed(b)),), {}) for b in (2, 3, 1, 4)]


def pictures(_: Any) -> list[Call]:
    """Lists of images, as detectors take them."""
    return [(([torch.rand(3, h, w) for _ in range(b)],), {}) for b, h, w in SIZES]


def seen(name: str, calls: Callable[[Any], list[Call]] = images, *, where: str = "", train: bool = False, **settings: Any) -> Model:
    def make() -> Any:
        define_operators()
        torch.manual_seed(0)
        space = importlib.import_module(f"torchvision.models{where}")
        return getattr(space, name)(**{"weights": None} | settings).eval()

    return Model(f"torchvision {name}", make, calls, train)


DETECTOR = {"weights_backbone": None, "num_classes": 5, "min_size": 64, "max_size": 96}
SEGMENTER = {"weights_backbone": None, "num_classes": 5, "aux_loss": True}

TORCHVISION = [
    seen("resnet18", num_classes=10, train=True),
    seen("alexnet", num_classes=10),
    seen("vgg11", num_classes=10),
    seen("squeezenet1_1", num_classes=10),
    seen("densenet121", num_classes=10),
    seen("googlenet", num_classes=10, aux_logits=False, init_weights=False),
    seen("inception_v3", lambda _: [((torch.randn(b, 3, h + 32, w + 32),), {}) for b, h, w in SIZES], num_classes=10, aux_logits=False,
         init_weights=False),
    seen("mobilenet_v2", num_classes=10),
    seen("mobilenet_v3_small", num_classes=10),
    seen("shufflenet_v2_x0_5", num_classes=10),
    seen("mnasnet0_5", num_classes=10),
    seen("efficientnet_b0", num_classes=10),
    seen("regnet_y_400mf", num_classes=10),
    seen("convnext_tiny", num_classes=10),
    seen("swin_t", num_classes=10),
    seen("swin_v2_t", num_classes=10),
    seen("vit_b_16", squares, num_classes=10, image_size=64),
    seen("maxvit_t", lambda _: [((torch.randn(b, 3, 112, 112),), {}) for b in (2, 3, 1)], num_classes=10, input_size=(112, 112)),
    seen("fcn_resnet50", where=".segmentation", **SEGMENTER),
    seen("deeplabv3_mobilenet_v3_large", where=".segmentation", **SEGMENTER),
    seen("lraspp_mobilenet_v3_large", where=".segmentation", weights_backbone=None, num_classes=5),
    seen("retinanet_resnet50_fpn", pictures, where=".detection", **DETECTOR),
    seen("fcos_resnet50_fpn", pictures, where=".detection", **DETECTOR),
    seen("ssdlite320_mobilenet_v3_large", pictures, where=".detection", weights_backbone=None, num_classes=5),
    seen("r3d_18", lambda _: [((torch.randn(b, 3, 4, h // 2, w // 2),), {}) for b, h, w in SIZES], where=".video", num_classes=10),
    seen("raft_small", lambda _: [((torch.randn(b, 3, 128, 128 + 8 * b), torch.randn(b, 3, 128, 128 + 8 * b)), {"num_flow_updates": 2})
        for b in (2, 3, 1)], where=".optical_flow"),
]  # fmt: skip


def timm_model(name: str, calls: Callable[[Any], list[Call]] = images, *, train: bool = False, **settings: Any) -> Model:
    def make() -> Any:
        define_operators()
        torch.manual_seed(0)
        return importlib.import_module("timm").create_model(name, pretrained=False, num_classes=10, **settings).eval()

    return Model(f"timm {name}", make, calls, train)


TIMM = [
    timm_model("resnet10t", train=True),
    timm_model("vit_tiny_patch16_224", images, img_size=64, dynamic_img_size=True),
    timm_model("deit_tiny_patch16_224", squares, img_size=64),
    timm_model("convnext_atto"),
    timm_model("efficientnet_lite0"),
    timm_model("mobilenetv3_small_050"),
    timm_model("ghostnet_050"),
    timm_model("mixer_s32_224", squares, img_size=64),
    timm_model("poolformer_s12"),
    timm_model("coatnet_pico_rw_224", squares, img_size=64),
    timm_model("swin_tiny_patch4_window7_224", squares, img_size=64, window_size=4),
    timm_model("edgenext_xx_small"),
    timm_model("nfnet_l0"),
    timm_model("regnetx_002"),
    timm_model("hrnet_w18_small"),
    timm_model("xcit_nano_12_p16_224", images),
]


def graph(nodes: int, edges: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(nodes, 8, generator=g), torch.randint(0, nodes, (2, edges), generator=g)


def graphs(_: Any) -> list[Call]:
    return [(graph(n, e, i), {}) for i, (n, e) in enumerate(((10, 30), (17, 40), (5, 9), (23, 80)))]


def network(name: str, train: bool = False, **settings: Any) -> Model:
    def make() -> Any:
        torch.manual_seed(0)
        return getattr(importlib.import_module("torch_geometric.nn.models"), name)(8, 16, 2, 4, **settings).eval()

    return Model(f"geometric {name}", make, graphs, train)


GRAPHS = [network("GCN", train=True), network("GAT", heads=2), network("GraphSAGE"), network("GIN"), network("PNA", **{
    "aggregators": ["mean", "max", "std"], "scalers": ["identity", "amplification"], "deg": torch.tensor([1, 2, 3, 4])}),
    network("EdgeCNN")]  # fmt: skip

FAMILIES = {"torchvision": TORCHVISION, "timm": TIMM, "graphs": GRAPHS}
