"""A model behind Ray Serve, on the workers of a mesh: `serve run examples.remote.serve:app` (needs `pip install 'ray[serve]'`).

The deployment is the controller of the mesh; requests of all clients are put together by length.
"""

from __future__ import annotations

import torch
from ray import serve

from pliant import remote


class Mean(torch.nn.Module):
    """Stands for a model: `(batch, lengths)` -> a row for each request."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.out = torch.nn.Linear(width, 4)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        mask = torch.arange(x.shape[1])[None] < lengths[:, None]
        return self.out((x * mask[..., None]).sum(1) / lengths[:, None])


@serve.deployment(max_ongoing_requests=256, ray_actor_options={"num_cpus": 0})  # the workers compute, and have a processor each
class Model:
    def __init__(self, workers: int = 2) -> None:
        self.server = remote.Server(remote.mesh(workers=workers), Mean)

    def __call__(self, request: list[list[float]]) -> list[float]:
        return self.server(torch.tensor(request)).tolist()


app = Model.bind()
