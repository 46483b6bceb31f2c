// Matrix products of f32 inside segments, for sizes that only a run knows: our own (`matmul_loops.h`) where they are the faster ones, else
// the BLAS that PyTorch links, called by address.
//
// Everything is row-major: c[batch][m][n] (dense) = a[batch][m][k] * b[batch][k][n]. Fortran's routine sees the transposed problem.
#include "halves.h"
#include "matmul.h"
#include "pool.h"
#include "routines.h"
#include "shared.h"
#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace pliant {

using Sgemm = void(const char *, const char *, const int *, const int *, const int *, const float *, const float *, const int *, const float *,
                   const int *, const float *, float *, const int *);
using Batch = void(int, const int *, const int *, const int *, const int *, const int *, const float *, const float **, const int *,
                   const float **, const int *, const float *, float **, const int *, int, const int *);

static Sgemm *sgemm = nullptr;
static Batch *sgemm_batch = nullptr;

constexpr int kColumnMajor = 102, kPlain = 111, kTransposed = 112; // CBLAS's names for them
constexpr int64_t kOnStack = 64;

constexpr int kDims = 3;

// What a segment hands over. `lda` is the distance of rows of a, or of columns if a is transposed in memory; `sa` those of matrices along
// the dims of the batch, of which the last one is the innermost. Distances are in elements; of halves, pointers point at halves.
struct Product {
    const float *a, *b;
    float *c;
    int64_t dims[kDims], m, n, k, lda, ldb, sa[kDims], sb[kDims], flags;
    const float *bias; // a row that is added to every row, if the flags say so
    int64_t batch() const { return dims[0] * dims[1] * dims[2]; }
    static int64_t place(const int64_t (&steps)[kDims], const int64_t (&dims)[kDims], int64_t q) {
        return q % dims[2] * steps[2] + q / dims[2] % dims[1] * steps[1] + q / dims[2] / dims[1] * steps[0];
    }
    const float *a_of(int64_t q) const { return a + place(sa, dims, q); }
    const float *b_of(int64_t q) const { return b + place(sb, dims, q); }
};

// Sizes beyond what BLAS's integers hold.
static void one_by_one(const Product &p) {
    const int64_t row_a = p.flags & TRANSPOSED_A ? 1 : p.lda, col_a = p.flags & TRANSPOSED_A ? p.lda : 1;
    const int64_t row_b = p.flags & TRANSPOSED_B ? 1 : p.ldb, col_b = p.flags & TRANSPOSED_B ? p.ldb : 1;
    for (int64_t q = 0, batch = p.batch(); q < batch; q++)
        for (int64_t i = 0; i < p.m; i++)
            for (int64_t j = 0; j < p.n; j++) {
                float *c = p.c + (q * p.m + i) * p.n + j;
                const float *a = p.a_of(q) + i * row_a, *b = p.b_of(q) + j * col_b;
                double sum = p.flags & HAS_BIAS ? *c : 0.0;
                for (int64_t k = 0; k < p.k; k++) sum += static_cast<double>(a[k * col_a]) * b[k * row_b];
                *c = static_cast<float>(sum);
            }
}

static int32_t batched(const Product &p, int m, int n, int k, int lda, int ldb) {
    const float *stack_a[kOnStack], *stack_b[kOnStack];
    float *stack_c[kOnStack];
    const float **a = stack_a, **b = stack_b;
    float **c = stack_c;
    void *heap = nullptr;
    const int64_t batch = p.batch();
    if (batch > kOnStack) {
        heap = std::malloc(3 * batch * sizeof(void *));
        if (!heap) return OUT_OF_MEMORY;
        a = static_cast<const float **>(heap);
        b = a + batch;
        c = const_cast<float **>(b + batch);
    }
    for (int64_t q = 0; q < batch; q++) {
        a[q] = p.a_of(q);
        b[q] = p.b_of(q);
        c[q] = p.c + q * p.m * p.n;
    }
    const float one = 1.0f, beta = p.flags & HAS_BIAS ? 1.0f : 0.0f;
    const int ta = p.flags & TRANSPOSED_A ? kTransposed : kPlain, tb = p.flags & TRANSPOSED_B ? kTransposed : kPlain;
    const int group = static_cast<int>(batch);
    sgemm_batch(kColumnMajor, &tb, &ta, &n, &m, &k, &one, b, &ldb, a, &lda, &beta, c, &n, 1, &group);
    std::free(heap);
    return 0;
}

static int64_t size_of(const Product &p) { return p.flags & (F16 | BF16) ? sizeof(uint16_t) : sizeof(float); }

// The bias into every row of the result.
static void lay(const Product &p) {
    const int64_t row = size_of(p) * p.n;
    for (int64_t i = 0, rows = p.batch() * p.m; i < rows; i++) std::memcpy(reinterpret_cast<char *>(p.c) + i * row, p.bias, row);
}

// What is there to do for sizes of 0? True: that has been done.
static bool trivial(const Product &p) {
    if (p.dims[0] <= 0 || p.dims[1] <= 0 || p.dims[2] <= 0 || p.m <= 0 || p.n <= 0) return true;
    if (p.k > 0) return false;
    if (p.flags & HAS_BIAS) lay(p);
    else std::memset(p.c, 0, size_of(p) * p.batch() * p.m * p.n);
    return true;
}

// A product cut into parts: each matrix of the batch into `cuts` of `step` rows or columns.
struct Parts {
    const Product &p;
    const Loops *loops;
    Matrix a, b;
    Way way;
    int64_t cuts, step;
    bool columns;
    int32_t *status;
};

static bool run_half(const Parts &w, const HalfMatrix &a, const HalfMatrix &b, const HalfResult &out, int64_t m, int64_t n) {
    if (w.p.flags & BF16) return multiply_bf16(w.way, a, b, out, m, n, w.p.k);
    return multiply_f16(w.loops == &loops512 ? halves512 : halves256, w.way, a, b, out, m, n, w.p.k);
}

static void run_parts(const Parts &w, int64_t low, int64_t high) {
    const Product &p = w.p;
    for (int64_t at = low; at < high; at++) {
        const int64_t q = at / w.cuts, from = at % w.cuts * w.step, i = w.columns ? 0 : from, j = w.columns ? from : 0;
        const int64_t m = w.columns ? p.m : std::min(w.step, p.m - i), n = w.columns ? std::min(w.step, p.n - j) : p.n;
        if (p.flags & (F16 | BF16)) {
            const auto *left = reinterpret_cast<const uint16_t *>(p.a), *right = reinterpret_cast<const uint16_t *>(p.b);
            const HalfMatrix a = {left + Product::place(p.sa, p.dims, q), w.a.row, w.a.column};
            const HalfMatrix b = {right + Product::place(p.sb, p.dims, q), w.b.row, w.b.column};
            const auto *bias = p.flags & HAS_BIAS ? reinterpret_cast<const uint16_t *>(p.bias) : nullptr;
            const HalfResult out = {reinterpret_cast<uint16_t *>(p.c) + q * p.m * p.n, p.n, bias};
            if (!run_half(w, a.part(i, 0), b.part(0, j), out.part(i, j), m, n)) __atomic_store_n(w.status, OUT_OF_MEMORY, __ATOMIC_RELAXED);
            continue;
        }
        const Matrix a = {p.a_of(q), w.a.row, w.a.column}, b = {p.b_of(q), w.b.row, w.b.column};
        const Result out = {p.c + q * p.m * p.n, p.n, 1.0f, p.flags & HAS_BIAS ? p.bias : nullptr, 0};
        w.loops->multiply(w.way, a.part(i, 0), b.part(0, j), out.part(i, j), m, n, p.k);
    }
}

static int32_t own_gemm(const Product &p, const Loops *loops) {
    constexpr int64_t kRows = 8;
    constexpr double kGrain = 1 << 22; // multiplications that are worth a thread
    if (trivial(p)) return 0;
    const bool ta = p.flags & TRANSPOSED_A, tb = p.flags & TRANSPOSED_B;
    const int64_t batch = p.batch();
    int32_t status = 0;
    Parts w{p, loops, {p.a, ta ? 1 : p.lda, ta ? p.lda : 1}, {p.b, tb ? 1 : p.ldb, tb ? p.ldb : 1}, Way::Columns, 1, 0, true, &status};
    w.way = loops->way(w.a, w.b, p.m, p.n, p.k);
    w.step = p.n;
    const double work = static_cast<double>(batch) * p.m * p.n * p.k;
    const int64_t most = batch * std::max(pieces(p.n, kPanel), pieces(p.m, kRows)), threads = threads_for(work, kGrain, most);
    if (batch < threads) {
        const int64_t wanted = pieces(threads, batch);
        w.columns = pieces(p.n, kPanel) >= wanted || p.n >= p.m;
        const int64_t unit = w.columns ? kPanel : kRows, length = w.columns ? p.n : p.m;
        w.step = pieces(pieces(length, unit), wanted) * unit;
        w.cuts = pieces(length, w.step);
    }
    shared(threads, batch * w.cuts, [&](int64_t low, int64_t high) { run_parts(w, low, high); });
    return status;
}

static int32_t own_gemm512(const Product *p) { return own_gemm(*p, &loops512); }
static int32_t own_gemm256(const Product *p) { return own_gemm(*p, &loops256); }
static int32_t plain_gemm(const Product *p) { return own_gemm(*p, &loops_plain); }

static int32_t gemm(const Product *given) {
    const Product &p = *given;
    if (trivial(p)) return 0;
    if (p.flags & HAS_BIAS) lay(p);
    if (std::max({p.batch(), p.m, p.n, p.k, p.lda, p.ldb}) > INT_MAX) {
        one_by_one(p);
        return 0;
    }
    const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
    // Of a dim of size 1 the stride says nothing, but BLAS looks at it.
    const int lda = static_cast<int>(std::max(p.lda, p.flags & TRANSPOSED_A ? p.m : p.k));
    const int ldb = static_cast<int>(std::max(p.ldb, p.flags & TRANSPOSED_B ? p.k : p.n));
    if (p.batch() > 1 && sgemm_batch) return batched(p, m, n, k, lda, ldb);
    const float one = 1.0f, beta = p.flags & HAS_BIAS ? 1.0f : 0.0f;
    for (int64_t q = 0, batch = p.batch(); q < batch; q++)
        sgemm(p.flags & TRANSPOSED_B ? "T" : "N", p.flags & TRANSPOSED_A ? "T" : "N", &n, &m, &k, &one, p.b_of(q), &ldb, p.a_of(q), &lda, &beta,
              p.c + q * p.m * p.n, &n);
    return 0;
}

Routine *gemm_routine(uint64_t single, uint64_t batch, int64_t bits) {
    if (single) sgemm = reinterpret_cast<Sgemm *>(single);
    if (batch) sgemm_batch = reinterpret_cast<Batch *>(batch);
    const Loops *loops = loops_of(bits);
    return reinterpret_cast<Routine *>(loops == &loops512 ? &own_gemm512 : loops ? &own_gemm256 : sgemm ? &gemm : &plain_gemm);
}

} // namespace pliant
