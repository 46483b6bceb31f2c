"""Your own backend: any callable (GraphModule, example_inputs) -> callable. This one counts operations, then runs the graph as it is."""

import collections

import torch

import pliant


def counting(graph, example_inputs):
    calls = collections.Counter(str(node.target) for node in graph.graph.nodes if node.op.startswith("call"))
    print(f"a graph of {len(example_inputs)} inputs:", dict(calls))
    return graph.forward


@torch.no_grad()
def main():
    layer = pliant.compile(torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval(), backend=counting)
    for length in (5, 6, 17):
        print(tuple(layer(torch.randn(2, length, 32)).shape))


main()
