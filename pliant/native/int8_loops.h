// Products of f32 with few rows and columns of int8, and bytes to floats, for the vectors of lanes8.h or lanes16.h.
#pragma once
#include "int8.h"
#include "matmul_loops.h"

namespace pliant {
namespace {

void dots_int8(const Matrix &a, const int8_t *b, int64_t ldb, const Result &out, int64_t m, int64_t n, int64_t k) {
    by_dots(a, b, ldb, out, m, n, k);
}

WIDE void floats_of(const int8_t *from, float *to, int64_t n) {
    for (; n >= kLanes; n -= kLanes, from += kLanes, to += kLanes) store(to, load(from));
    if (n > 0) store(to, first(n), load_some(from, n));
}

} // namespace
} // namespace pliant
