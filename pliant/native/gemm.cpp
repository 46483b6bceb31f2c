// Matrix products of f32 inside segments: the BLAS that PyTorch links, called by address, for sizes that only a run knows.
//
// Everything is row-major: c[batch][m][n] (dense) = a[batch][m][k] * b[batch][k][n]. Fortran's routine sees the transposed problem.
#include "core.h"
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
constexpr int32_t kOutOfMemory = 0x7FFFFFFF;
constexpr int64_t kOnStack = 64;

enum Flag : int64_t { TransposedA = 1, TransposedB = 2, Accumulate = 4 };

// What a segment hands over. `lda` is the distance of rows of a, or of columns if a is transposed in memory; `sa` that of matrices.
struct Product {
    const float *a, *b;
    float *c;
    int64_t batch, m, n, k, lda, ldb, sa, sb, flags;
};

// Sizes beyond what BLAS's integers hold.
static void one_by_one(const Product &p) {
    const int64_t row_a = p.flags & TransposedA ? 1 : p.lda, col_a = p.flags & TransposedA ? p.lda : 1;
    const int64_t row_b = p.flags & TransposedB ? 1 : p.ldb, col_b = p.flags & TransposedB ? p.ldb : 1;
    for (int64_t q = 0; q < p.batch; q++)
        for (int64_t i = 0; i < p.m; i++)
            for (int64_t j = 0; j < p.n; j++) {
                float *c = p.c + (q * p.m + i) * p.n + j;
                const float *a = p.a + q * p.sa + i * row_a, *b = p.b + q * p.sb + j * col_b;
                double sum = p.flags & Accumulate ? *c : 0.0;
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
    if (p.batch > kOnStack) {
        heap = std::malloc(3 * p.batch * sizeof(void *));
        if (!heap) return kOutOfMemory;
        a = static_cast<const float **>(heap);
        b = a + p.batch;
        c = const_cast<float **>(b + p.batch);
    }
    for (int64_t q = 0; q < p.batch; q++) {
        a[q] = p.a + q * p.sa;
        b[q] = p.b + q * p.sb;
        c[q] = p.c + q * p.m * p.n;
    }
    const float one = 1.0f, beta = p.flags & Accumulate ? 1.0f : 0.0f;
    const int ta = p.flags & TransposedA ? kTransposed : kPlain, tb = p.flags & TransposedB ? kTransposed : kPlain;
    const int group = static_cast<int>(p.batch);
    sgemm_batch(kColumnMajor, &tb, &ta, &n, &m, &k, &one, b, &ldb, a, &lda, &beta, c, &n, 1, &group);
    std::free(heap);
    return 0;
}

extern "C" {
static int32_t gemm(const Product *given) {
    const Product &p = *given;
    if (p.batch <= 0 || p.m <= 0 || p.n <= 0) return 0;
    if (p.k <= 0) {
        if (!(p.flags & Accumulate)) std::memset(p.c, 0, sizeof(float) * p.batch * p.m * p.n);
        return 0;
    }
    if (std::max({p.batch, p.m, p.n, p.k, p.lda, p.ldb}) > INT_MAX) {
        one_by_one(p);
        return 0;
    }
    const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
    // Of a dim of size 1 the stride says nothing, but BLAS looks at it.
    const int lda = static_cast<int>(std::max(p.lda, p.flags & TransposedA ? p.m : p.k));
    const int ldb = static_cast<int>(std::max(p.ldb, p.flags & TransposedB ? p.k : p.n));
    if (p.batch > 1) return batched(p, m, n, k, lda, ldb);
    const float one = 1.0f, beta = p.flags & Accumulate ? 1.0f : 0.0f;
    sgemm(p.flags & TransposedB ? "T" : "N", p.flags & TransposedA ? "T" : "N", &n, &m, &k, &one, p.b, &ldb, p.a, &lda, &beta, p.c, &n);
    return 0;
}
}

// gemm_function(address of sgemm_, address of cblas_sgemm_batch) -> address of `int32 gemm(Product *)`
static PyObject *function(PyObject *, PyObject *args) {
    unsigned long long single, batch;
    if (!PyArg_ParseTuple(args, "KK", &single, &batch)) return nullptr;
    sgemm = reinterpret_cast<Sgemm *>(single);
    sgemm_batch = reinterpret_cast<Batch *>(batch);
    return PyLong_FromUnsignedLongLong(reinterpret_cast<unsigned long long>(&gemm));
}

static PyMethodDef methods[] = {
    {"gemm_function", function, METH_VARARGS, "Address of the matrix product of segments, over these routines of BLAS."},
    {nullptr, nullptr, 0, nullptr},
};

} // namespace pliant

extern "C" int pl_gemm_init(PyObject *module) { return PyModule_AddFunctions(module, pliant::methods); }
