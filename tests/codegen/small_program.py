"""A small program of kernels, matrix products, attention, gathers and segments at several sizes, for memory checkers to watch.

`python -m tests.codegen.small_program`; how to run it under valgrind is in docs/cpu.md.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

import pliant


def program(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
    h = F.gelu(F.linear(F.layer_norm(x, (x.shape[-1],)), w, b))
    q = h.view(1, 1, *h.shape)
    mixed = F.scaled_dot_product_attention(q, q, q).view(h.shape) + 1
    return torch.softmax(mixed, -1)[i].sum(0) + h.amax(0), (x.transpose(0, 1) * 2).contiguous()


def main() -> None:
    torch.set_num_threads(1)
    fn = pliant.compile(program, backend="native", strict=True)
    for n, m in ((5, 7), (3, 17), (16, 33)):
        args = torch.randn(n, m), torch.randn(2 * m, m), torch.randn(2 * m), torch.randint(0, n, (2 * n,))
        for got, want in zip(fn(*args), program(*args), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    main()
