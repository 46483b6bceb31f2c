"""torch_geometric: graph networks on graphs of every size, nodes and edges changing with each batch. Random weights.

    python -m pliant run --stats examples/integrations/torch_geometric_gnn.py
"""

from __future__ import annotations

import torch
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_mean_pool

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self, first: torch.nn.Module, second: torch.nn.Module) -> None:
        super().__init__()
        self.first, self.second, self.head = first, second, torch.nn.Linear(16, 3)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        x = self.first(x, edges).relu()
        x = self.second(x, edges).relu()
        return self.head(global_mean_pool(x, batch))


def mlp(n: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(n, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16))


nets = {
    "GCN": Net(GCNConv(8, 16), GCNConv(16, 16)),
    "SAGE": Net(SAGEConv(8, 16), SAGEConv(16, 16)),
    "GAT": Net(GATConv(8, 8, heads=2), GATConv(16, 16)),
    "GIN": Net(GINConv(mlp(8)), GINConv(mlp(16))),
}
graphs = []
for nodes, edges in [(10, 30), (17, 50), (5, 9), (40, 200)]:
    graphs.append((torch.randn(nodes, 8), torch.randint(0, nodes, (2, edges)), torch.arange(nodes) * 3 // nodes))
for name, net in nets.items():
    compiled = torch.compile(net)
    for graph in graphs:
        torch.testing.assert_close(compiled(*graph), net(*graph), rtol=1e-4, atol=1e-5)
    print(name, "answers the same")
