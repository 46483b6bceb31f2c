"""Programs by feature: the numeric namespaces of PyTorch (`special`, `linalg`, `fft`, `signal`, `masked`, `sparse`, `nested`), once more.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import pliant
from tests.programs.registry import cases, each, program, t

F = nn.functional
ROWS = each(3, 5, 2, tail=(4,))
GRADS = each(3, 5, 2, tail=(4,), grad=True)
SQUARES = [(t(n, n) + 4 * torch.eye(n),) for n in (3, 5, 2)]
SQUARE_GRADS = [(s.clone().requires_grad_(),) for (s,) in SQUARES]
BATCHES = [(t(b, n, n) + 4 * torch.eye(n),) for b, n in ((2, 3), (3, 5), (1, 2))]
WHOLE = {"breaks": 0, "captures": 1}
BACK = {"grad": True, **WHOLE}


# -- torch.special ------------------------------------------------------------------------------------------------------
@program(*ROWS, **WHOLE)
def special_gammas(x):
    p = x.abs() + 0.5
    s = torch.special
    return s.gammaln(p), s.digamma(p), s.psi(p), s.polygamma(2, p), s.multigammaln(p + 2, 2), s.gammainc(p, p + 1), s.gammaincc(p, p * 2)


@program(*GRADS, **BACK)
def special_gammas_backward(x):
    p = x.abs() + 0.5
    return torch.special.gammaln(p) + torch.special.digamma(p), torch.special.multigammaln(p + 2, 2)


@program(*ROWS, **WHOLE)
def special_errors(x):
    s = torch.special
    u = x.sigmoid()
    return s.erfc(x), s.erfcx(x), s.erfinv(u), s.ndtri(u), s.log_ndtr(x), s.logit(u, eps=0.01), s.log1p(u), s.expm1(x), s.exp2(x)


@program(*GRADS, **BACK)
def special_errors_backward(x):
    u = x.sigmoid()
    return torch.special.erfcx(x), torch.special.erfinv(u), torch.special.ndtri(u), torch.special.log_ndtr(x), torch.special.logit(u)


@program(*ROWS, **WHOLE)
def special_bessel(x):
    s = torch.special
    return s.i0(x), s.i0e(x), s.i1(x), s.i1e(x), s.bessel_j1(x), s.bessel_y0(x.abs() + 1), s.modified_bessel_k1(x.abs() + 1)


@program(*GRADS, **BACK)
def special_bessel_backward(x):
    return torch.special.i0(x) + torch.special.i0e(x), torch.special.i1(x), torch.special.i1e(x)


@program(*ROWS, **WHOLE)
def special_polynomials(x):
    s = torch.special
    return s.chebyshev_polynomial_t(x, 3), s.hermite_polynomial_h(x, 2), s.laguerre_polynomial_l(x, 2), s.legendre_polynomial_p(x / 2, 3)


@program(*[(x, 2 + i) for i, (x,) in enumerate(ROWS)], breaks=0)
def special_polynomials_of_a_number(x, n):
    return torch.special.chebyshev_polynomial_u(x, n), torch.special.hermite_polynomial_he(x, n)


@program(*GRADS, **BACK)
def special_sums(x):
    s = torch.special
    return s.logsumexp(x, 1), s.softmax(x, 0), s.log_softmax(x, -1, dtype=torch.float64), s.xlogy(x.abs(), x.abs() + 1), s.xlog1py(x, 2.0)


@program(*[(t(n, 4, dtype=torch.int64),) for n in (3, 5, 2)], **WHOLE)
def special_of_integers(x):
    s = torch.special
    return s.entr(x), s.sinc(x), s.expit(x), s.zeta(x.abs() + 2, 1), s.round(x * 1.5, decimals=1), s.xlogy(x, 2)


@program(*ROWS, **WHOLE)
def special_out(x):
    out = torch.empty_like(x)
    r = torch.special.expit(x, out=out)
    return r is out, out, torch.special.sinc(x, out=torch.empty(0)).shape


# -- torch.linalg -------------------------------------------------------------------------------------------------------
@program(*SQUARE_GRADS, **BACK)
def linalg_inverses(a):
    return torch.linalg.inv(a), torch.linalg.pinv(a), torch.inverse(a + 1 * torch.eye(a.shape[0]))


@program(*SQUARES, **WHOLE)
def linalg_checked(a):
    l, info = torch.linalg.cholesky_ex(a @ a.T + torch.eye(a.shape[0]))
    inv, said = torch.linalg.inv_ex(a)
    return l, info, inv, said, torch.linalg.solve_ex(a, a[:, 0])


@program(*SQUARES, **WHOLE)
def linalg_factors(a):
    lu, pivots, info = torch.linalg.lu_factor_ex(a)
    p, l, u = torch.linalg.lu(a)
    return p @ l @ u, torch.linalg.lu_solve(lu, pivots, a[:, :1]), info, torch.lu_unpack(lu, pivots)


@program(*SQUARES, breaks=0, captures=3)
def linalg_errors_of_singular(a):
    z = a * 0
    try:
        return torch.linalg.inv(z)
    except torch.linalg.LinAlgError:
        return a.shape[0]


@program(*SQUARES, **WHOLE)
def linalg_singular_uncaught(a):
    return torch.linalg.inv(a * 0)


@program(*BATCHES, breaks=0, captures=2)
def linalg_batches(a):
    la = torch.linalg
    return la.det(a), la.matrix_norm(a), la.matrix_norm(a, "nuc"), la.vector_norm(a, 1, dim=(1, 2)), la.solve(a, a[..., :1]), la.cond(a)


@program(*SQUARE_GRADS, **BACK)
def linalg_spectra(a):
    s = a + a.T
    w, v = torch.linalg.eigh(s)
    return w, (v * v).sum(0), torch.linalg.svdvals(a), torch.linalg.eigvalsh(s, UPLO="U")


@program(*SQUARES, breaks=0)
def linalg_complex(a):
    w = torch.linalg.eigvals(a)
    c = torch.complex(a, a.T)
    return w.abs().sort().values, torch.linalg.det(c), torch.linalg.norm(c, 2), c.mH @ c, torch.linalg.vecdot(c, c.conj())


@program(*ROWS, breaks=0, captures=2)
def linalg_tall(x):
    u, s, vh = torch.linalg.svd(x.T.contiguous(), full_matrices=False)
    q, r = torch.linalg.qr(x, mode="complete")
    return (u * s) @ vh, q @ r, torch.linalg.qr(x, mode="r").R, torch.linalg.matrix_rank(x, hermitian=False), s.shape


@program(*GRADS, grad=True, breaks=0)
def linalg_products(x):
    return (
        torch.linalg.multi_dot([x, x.T, x]),
        torch.linalg.cross(x[:, :3], x[:, 1:]),
        torch.linalg.vander(x[:, 0]),
        torch.chain_matmul(x, x.T),
    )


@program(*ROWS, **WHOLE)
def linalg_householder(x):
    x = x.double()
    a, tau = torch.geqrf(torch.cat([x, x.exp(), x.cos()]))
    return torch.linalg.householder_product(a, tau), torch.ormqr(a, tau, torch.cat([x, x + 1, x]))


@program(*SQUARES, **WHOLE)
def linalg_ldl(a):
    s = a + a.T
    ld, pivots = torch.linalg.ldl_factor(s)
    return torch.linalg.ldl_solve(ld, pivots, s[:, :1].contiguous())


@program(*SQUARES, **WHOLE)
def linalg_tensor_inverses(a):
    n = a.shape[0]
    return torch.linalg.tensorinv(a.reshape(n, 1, 1, n), ind=2).shape, torch.linalg.tensorsolve(a, a[0])


@program(*SQUARE_GRADS, **BACK)
def linalg_cholesky_family(a):
    s = a @ a.mT + torch.eye(a.shape[-1])
    l = torch.linalg.cholesky(s)
    return torch.cholesky_inverse(l), torch.cholesky_solve(a[:, :1], l), torch.logdet(s), torch.linalg.cholesky(s, upper=True)


@program(*SQUARES, **WHOLE)
def linalg_powers(a):
    return (
        torch.linalg.matrix_power(a, -2),
        torch.matrix_power(a, 0),
        torch.linalg.matrix_exp(a / 8),
        torch.trapezoid(a),
        torch.linalg.diagonal(a),
    )


# -- torch.fft ----------------------------------------------------------------------------------------------------------
@program(*GRADS, grad=True, breaks=0, captures=2)
def fft_round_trip(x):
    return torch.fft.ifft(torch.fft.fft(x, dim=0), dim=0).real, torch.fft.irfft2(torch.fft.rfft2(x), s=x.shape), torch.fft.ihfft(x).abs()


@program(*ROWS, **WHOLE)
def fft_norms(x):
    return (
        [torch.fft.fft(x, norm=n) for n in ("forward", "backward", "ortho")],
        torch.fft.rfftn(x, s=(6, 8), dim=(0, 1)),
        torch.fft.hfft2(x),
    )


@program(*[(x, 5 + i) for i, (x,) in enumerate(ROWS)], breaks=0)
def fft_of_a_length(x, n):
    return torch.fft.rfft(x, n=n), torch.fft.fftfreq(n, d=0.5), torch.fft.rfftfreq(n), torch.fft.fft(x, n).shape[-1] == n


@program(*GRADS, **BACK)
def fft_convolution(x):
    n = x.shape[1] * 2 - 1
    return torch.fft.irfft(torch.fft.rfft(x, n) * torch.fft.rfft(x.flip(1), n), n), torch.fft.fftshift(torch.fft.fft2(x), dim=(0,)).abs()


@program(*ROWS, **WHOLE)
def fft_in_place_on_parts(x):
    f = torch.fft.rfft(x)
    f[:, 1:].mul_(2j)
    f.real[:, 0] = 1
    return torch.fft.irfft(f), torch.view_as_real(f), f.is_conj(), torch.fft.fft(x, out=torch.empty(0, dtype=torch.complex64))


@program(*ROWS, **WHOLE)
def stft_and_back(x):
    w = torch.hann_window(8)
    s = torch.stft(x.reshape(-1).repeat(8), 8, hop_length=2, window=w, return_complex=True, center=True)
    return torch.istft(s, 8, hop_length=2, window=w), s.shape


# -- torch.signal, windows ----------------------------------------------------------------------------------------------
@program(*ROWS, **WHOLE)
def windows(x):
    w = torch.signal.windows
    n = x.shape[0] + 4
    return [f(n) for f in (w.bartlett, w.blackman, w.cosine, w.hamming, w.hann, w.nuttall)], w.gaussian(n, std=2.0)


@program(*ROWS, breaks=0)
def window_of_kaiser(x):
    return torch.signal.windows.kaiser(x.shape[0] + 4, beta=3.0)


@program(*ROWS, **WHOLE)
def windows_of_other_forms(x):
    w = torch.signal.windows
    n = x.shape[0] + 3
    return (
        w.exponential(n, tau=2.0, sym=False),
        w.general_cosine(n, a=[0.5, 0.3, 0.2]),
        w.general_hamming(n, alpha=0.4),
        torch.kaiser_window(n),
        torch.kaiser_window(n, False, beta=5.0),
    )


@program(*[(x, 3 + i) for i, (x,) in enumerate(ROWS)])
def windows_of_a_number(x, n):
    return torch.signal.windows.hann(n, dtype=torch.float64, requires_grad=True), torch.hamming_window(n, periodic=False)


# -- torch.masked -------------------------------------------------------------------------------------------------------
@program(*ROWS, **WHOLE)
def masked_functions(x):
    m = x > 0
    k = torch.masked
    return (
        k.amax(x, 1, mask=m),
        k.argmin(x, 1, mask=m),
        k.var(x, 0, unbiased=False, mask=m),
        k.std(x, 1, mask=m),
        k.normalize(x, 2.0, 1, mask=m),
    )


@program(*GRADS, **BACK)
def masked_functions_backward(x):
    m = x > -0.5
    k = torch.masked
    return k.sum(x, 1, mask=m), k.logsumexp(x, 1, mask=m), k.softmin(x, 1, mask=m), k.mean(x, 0, keepdim=True, mask=m), k.prod(x, 1, mask=m)


@program(*ROWS, **WHOLE)
def masked_scans(x):
    m = x > -0.5
    return torch.masked.cumsum(x, 1, mask=m), torch.masked.cumprod(x, 0, mask=m), torch.masked.median(x, 1, mask=m)


@program(*ROWS)
def masked_tensor_made_here(x):
    m = torch.masked.masked_tensor(x, x > 0)
    return m.sum().get_data(), m.sum(1).get_mask(), m.mean().to_tensor(0.0), m.amax(1).to_tensor(-1.0)


@program(*ROWS)
def masked_tensor_pointwise(x):
    m = torch.masked.as_masked_tensor(x, x > 0)
    n = torch.masked.as_masked_tensor(x * 2, x > 0)
    s = (m + n).sin() * 2
    return s.get_data(), s.get_mask(), (-m).to_tensor(7.0), m.exp().to_tensor(0.0)


@program(*ROWS, world=True)
def masked_tensor_over_a_call():
    def doubled(x):
        return torch.masked.masked_tensor(x, x > 0) * 2

    def program(x):
        m = doubled(x)
        return m.get_data(), m.get_mask()

    return program


@program(*ROWS)
def masked_tensor_where(x):
    a = torch.masked.masked_tensor(x, x > 0)
    b = torch.masked.masked_tensor(x, x < 0)
    return torch.where(x > 0, a, b).to_tensor(0.0), a.is_contiguous(), a.dtype, type(a).__name__


@program(*ROWS)
def masked_tensor_refused(x):
    a = torch.masked.masked_tensor(x, x > 0)
    b = torch.masked.masked_tensor(x, x < 0)
    try:
        return a + b
    except ValueError as e:
        return str(e)


@program(*ROWS)
def masked_tensor_shapes(x):
    m = torch.masked.masked_tensor(x, x > 0)
    return m.reshape(-1).get_data(), m.transpose(0, 1).get_mask(), m[0].to_tensor(0.0), m.unsqueeze(0).shape, m.to(torch.float64).get_data()


# -- torch.sparse -------------------------------------------------------------------------------------------------------
COO = t(4, 4, seed=1).relu().to_sparse()


@program(*ROWS)
def sparse_round_trip(x):
    s = x.to_sparse()
    return s.to_dense() * 2, s.shape, s.layout, s.is_sparse


@program(*ROWS)
def sparse_made_of_parts(x):
    i = torch.tensor([[0, 1, 1], [2, 0, 2]])
    s = torch.sparse_coo_tensor(i, torch.ones(3) * x.shape[0], (x.shape[0], 4))
    return s.to_dense() + x, s.coalesce().values(), s._nnz()


@program(*[(x.to_sparse(), x.T.contiguous()) for (x,) in ROWS])
def sparse_argument(s, y):
    return torch.sparse.mm(s, y), s.to_dense().sum(), s @ y


@program(*ROWS, world=True)
def sparse_module():
    class Adjacent(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("adjacent", COO.clone())
            self.lin = nn.Linear(4, 4)
            with torch.no_grad():
                self.lin.weight.copy_(t(4, 4, seed=3))
                self.lin.bias.zero_()

        def forward(self, x):
            return torch.sparse.mm(self.adjacent, self.lin(x).T).relu().T

    return Adjacent()


@program(*ROWS)
def sparse_sums(x):
    s = x.to_sparse()
    return torch.sparse.sum(s), torch.sparse.sum(s, 1).to_dense(), torch.sparse.softmax(s, 1).to_dense()


@program(*GRADS, grad=True)
def sparse_product_backward(x):
    return torch.sparse.mm(COO, x.T)


@program(*each(3, 5, 2), **WHOLE)
def sparse_embedding_refused(x):
    e = F.embedding(torch.tensor([0, 1]), x.unsqueeze(1), sparse=True)
    return e * 2


@program(*ROWS)
def sparse_compressed(x):
    c = x.to_sparse_csr()
    return c.crow_indices(), c.values() * 2, c @ x.T, c.to_dense()


# -- torch.nested -------------------------------------------------------------------------------------------------------
@program(*ROWS)
def nested_strided_rows(x):
    n = torch.nested.nested_tensor([x, x[:1]])
    return [r * 2 for r in n.unbind()], n.is_nested, n.size(0)


@program(*ROWS)
def nested_strided_linear(x):
    n = torch.nested.as_nested_tensor([x, x[1:]])
    return torch.nested.to_padded_tensor(F.linear(n, torch.ones(2, 4)), -1.0), (n * 2).to_padded_tensor(0.0, (2, 7, 4))


@program(*GRADS, grad=True)
def nested_jagged_backward(x):
    n = torch.nested.as_nested_tensor([x, x[1:]], layout=torch.jagged)
    return (n * 2).sin().values(), n.offsets()


@program(*ROWS)
def nested_masked(x):
    n = torch.nested.masked_select(x, x > 0)
    return n.values(), n.offsets()


@program(*ROWS)
def nested_narrow(x):
    n = torch.nested.narrow(x.unsqueeze(0).expand(2, -1, -1), 1, 0, torch.tensor([1, x.shape[0]]), layout=torch.jagged)
    return n.to_padded_tensor(0.0)


# -- draws --------------------------------------------------------------------------------------------------------------
@program(*ROWS, **WHOLE)
def multinomial_forms(x):
    p = x.softmax(-1)
    return torch.multinomial(p, 2), p.multinomial(3, replacement=True), torch.multinomial(p[0], 4), torch.multinomial(p, x.shape[0], True)


@program(*[(x, 1 + i) for i, (x,) in enumerate(ROWS)], breaks=0)
def multinomial_of_a_number(x, n):
    return torch.multinomial(x.softmax(-1), n), torch.multinomial(x.softmax(-1), num_samples=n, generator=torch.Generator().manual_seed(n))


@program(*ROWS, breaks=0, captures=3)
def multinomial_refused(x):
    try:
        return torch.multinomial(x.softmax(-1), 9)
    except RuntimeError as e:
        return str(e)


@program(*ROWS, **WHOLE)
def draws_of_every_kind(x):
    g = torch.Generator().manual_seed(2)
    p = x.sigmoid()
    return torch.poisson(p, generator=g), torch.binomial(torch.full_like(p, 5), p, generator=g), torch.normal(x, p, generator=g), \
        x.clone().cauchy_(generator=g), x.clone().log_normal_(generator=g), x.clone().geometric_(0.5, generator=g), \
        x.clone().exponential_(generator=g), \
        torch._standard_gamma(p, generator=g), x.clone().random_(0, 9, generator=g)  # fmt: skip


@program(*ROWS, **WHOLE)
def generator_cloned(x):
    g = torch.Generator().manual_seed(7)
    h = g.clone_state()
    return torch.rand(3, generator=g), torch.rand(3, generator=h), x + torch.rand((), generator=g)


@program(*ROWS, **WHOLE)
def generator_in_a_container(x):
    held = {"g": torch.Generator().manual_seed(1)}
    many = [torch.Generator().manual_seed(i) for i in range(3)]
    return (
        [torch.randn(x.shape[0], generator=g) for g in many],
        torch.randint(9, (2,), **{"generator": held["g"]}),
        isinstance(many[0], torch.Generator),
    )


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


def test_masked_tensors_as_arguments():
    def program(m):
        return m.sum(0).to_tensor(0.0), (m * m).get_data(), m.get_mask(), m.shape

    compiled = pliant.compile(program)
    for (x,) in ROWS:
        m = torch.masked.masked_tensor(x, x > 0)
        for want, got in zip(program(m), compiled(m), strict=True):
            assert type(want) is type(got) and (torch.equal(want, got) if isinstance(want, torch.Tensor) else want == got)


@pytest.mark.parametrize(
    "program", [lambda x: torch.masked.as_masked_tensor(x, x > 0), lambda x: torch.masked.as_masked_tensor(x, x > 0).pow(2).sum()]
)
def test_gradients_of_masked_tensors(program):
    """The class is made by an `autograd.Function`, through which gradients flow back."""
    compiled = pliant.compile(program)
    for (x,) in ROWS:
        leaves = [x.clone().requires_grad_() for _ in range(2)]
        results = [fn(leaf) for fn, leaf in zip((program, compiled), leaves)]
        assert [m.requires_grad for m in results] == [True, True]
        want, got = [torch.autograd.grad(m.sum().to_tensor(0.0), leaf)[0] for m, leaf in zip(results, leaves)]
        assert type(want) is type(got) and torch.equal(want.get_data(), got.get_data()) and torch.equal(want.get_mask(), got.get_mask())
