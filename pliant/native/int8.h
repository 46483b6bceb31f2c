// Products of matrices of int8, summed exactly in int32, for sizes that only a run knows.
#pragma once
#include <cstdint>

namespace pliant {

// c[i * n + j] = the sum over k of a[i * lda + k] * b[j * ldb + k]: rows of a and columns of b lie dense. As segments hand it over
// (`lower/int8.py`). Sums wrap as those of int32 do.
struct IntProduct {
    const int8_t *a, *b;
    int32_t *c;
    int64_t m, n, k, lda, ldb;
};

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

} // namespace pliant
