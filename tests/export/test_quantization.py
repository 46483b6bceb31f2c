"""The form "torch" in graph-mode quantization: prepared, trained at changing sizes, converted, exported again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import pliant
from pliant.errors import PliantError

pytest.importorskip("torchao")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.1)
        self.fc = nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        h = torch.relu(self.norm(self.conv(x)))
        return self.fc(self.drop(nn.functional.max_pool2d(h, 2).flatten(2).mean(2)))


def test_module_is_the_function() -> None:
    m = Net().eval()
    p = pliant.export(m, (torch.randn(2, 3, 8, 8),), form="torch")
    assert set(p.module.state_dict()) <= set(m.state_dict())
    for n, h in ((1, 4), (5, 9)):
        x = torch.randn(n, 3, h, h)
        for form in (p.module, p.graph_module(), p):
            torch.testing.assert_close(form(x), m(x))
    targets = {str(n.target) for n in p.graph_module().graph.nodes if n.op == "call_function"}
    assert {"aten.conv2d.default", "aten.batch_norm.default", "aten.relu.default", "aten.linear.default"} <= targets
    with pytest.raises(PliantError, match="torch"):
        pliant.export(m, (torch.randn(2, 3, 8, 8),)).graph_module()


def test_quantization_aware_training() -> None:
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
        X86InductorQuantizer,
        get_default_x86_inductor_quantization_config,
    )

    torch.manual_seed(0)
    p = pliant.export(Net().train(), (torch.randn(2, 3, 8, 8),), form="torch")
    quantizer = X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config(is_qat=True))
    m = prepare_qat_pt2e(p.graph_module(), quantizer)
    assert sum("fake_quant" in str(n.target) or "activation_post" in str(n.target) for n in m.graph.nodes) >= 4
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    losses = []
    for n, h in [(8, 8), (4, 6), (6, 10), (16, 8)] * 15:
        x = torch.randn(n, 3, h, h)
        x += torch.randn(n, 1, 1, 1)
        loss = nn.functional.cross_entropy(m(x), (x.mean((1, 2, 3)) > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert sum(losses[-8:]) < 0.7 * sum(losses[:8])
    move_exported_model_to_eval(m)
    converted = convert_pt2e(m)
    assert any("quantize_per_tensor" in str(n.target) for n in converted.graph.nodes)
    again = pliant.export(converted, (torch.randn(2, 3, 8, 8),))
    for n, h in ((1, 4), (5, 9)):
        x = torch.randn(n, 3, h, h)
        torch.testing.assert_close(again(x), converted(x))
