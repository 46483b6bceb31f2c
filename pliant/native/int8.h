// Products of matrices of int8, summed exactly in int32, for sizes that only a run knows.
#pragma once
#include "matmul.h"
#include "pool.h"
#include "shared.h"
#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace pliant {

// c[i * n + j] = the sum over k of a[i * lda + k] * b[j * ldb + k]: rows of a and columns of b lie dense. As segments hand it over
// (`lower/int8.py`). Sums wrap as those of int32 do.
struct IntProduct {
    const int8_t *a, *b;
    int32_t *c;
    int64_t m, n, k, lda, ldb;
};

// out = x @ weight^T, in f32.
struct FloatProduct {
    const float *x;
    const int8_t *weight;
    float *out;
    int64_t m, n, k, ldx, ldw;
};

// What products of these need of each width of vectors, besides the loops for floats.
struct Bytes {
    void (*dots)(const Matrix &a, const int8_t *b, int64_t ldb, const Result &out, int64_t m, int64_t n, int64_t k); // columns of b, `ldb` apart
    void (*floats)(const int8_t *from, float *to, int64_t n);
};
extern const Bytes bytes512, bytes256;

// The parts of that with tiles of bf16 (int8_bf16.cpp).
bool bf16_tiles_run();
int64_t bf16_bytes(const FloatProduct &p);                                          // of what is made of x
int64_t bf16_room(const FloatProduct &p);                                           // that a thread needs for itself
void bf16_prepare(const FloatProduct &p, void *scratch, int64_t low, int64_t high); // blocks of 16 rows
void bf16_columns(const FloatProduct &p, const void *scratch, void *room, int64_t low, int64_t high);

// The loops for one kind of instructions. All sizes are at least 1.
struct IntLoops {
    // Columns [low, high) of the result. `scratch` is what `prepare` made of a, for as many bytes as `bytes` says.
    void (*columns)(const IntProduct &p, const void *scratch, int64_t low, int64_t high);
    int64_t (*bytes)(const IntProduct &p);
    // Rows of a, in steps of `rows`, from step `low` to step `high`.
    void (*prepare)(const IntProduct &p, void *scratch, int64_t low, int64_t high);
    int64_t rows, grain; // `grain`: columns that are best not torn apart
};
extern const IntLoops int8_plain, int8_avx2, int8_vnni, int8_tiles;

bool int8_vnni_runs();
bool int8_tiles_run(); // asks the system for the state of the tiles, which it gives to the whole process

// Those for vectors of so many bits, as far as this machine has them; `tiles`: or the processor's tiles.
const IntLoops &int8_loops(int64_t bits, bool tiles);

// The product, all sizes at least 1. `finish(low, high)` is called with columns that have just been computed, on the thread that did.
template <class F> int32_t int8_product(const IntProduct &p, const IntLoops &loops, const F &finish) {
    constexpr double kGrain = 1 << 24;     // multiplications that are worth a thread
    constexpr int64_t kResults = 1 << 13; // of a cut: what finishes them finds them in the first cache
    const int64_t step = std::max<int64_t>(1, kResults / p.m / loops.grain) * loops.grain, cuts = pieces(p.n, step);
    const int64_t threads = threads_for(static_cast<double>(p.m) * p.n * p.k, kGrain, cuts), bytes = loops.bytes(p);
    void *scratch = nullptr;
    if (bytes) {
        scratch = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
        if (!scratch) return OUT_OF_MEMORY;
        shared(threads, pieces(p.m, loops.rows), [&](int64_t low, int64_t high) { loops.prepare(p, scratch, low, high); });
    }
    shared(threads, cuts, [&](int64_t low, int64_t high) {
        for (int64_t j = low * step; j < std::min(high * step, p.n); j += step) {
            const int64_t end = std::min(j + step, p.n);
            loops.columns(p, scratch, j, end);
            finish(j, end);
        }
    });
    std::free(scratch);
    return 0;
}

} // namespace pliant
