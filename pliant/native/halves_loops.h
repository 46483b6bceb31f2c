// Products of f16 with few rows, and rows of halves to rows of f32 and back, for the vectors of lanes8.h or lanes16.h.
#pragma once
#include "halves.h"
#include "matmul_loops.h"

namespace pliant {
namespace {

// Of a in f32 and columns of f16.
void dots_f16(const Matrix &a, const HalfMatrix &b, const Result &out, int64_t m, int64_t n, int64_t k) {
    by_dots(a, reinterpret_cast<const Half *>(b.data), b.column, out, m, n, k);
}

// f16 to f32.
WIDE void widen(const uint16_t *from, float *to, int64_t n) {
    const auto *p = reinterpret_cast<const Half *>(from);
    for (; n >= kLanes; n -= kLanes, p += kLanes, to += kLanes) store(to, load(p));
    if (n > 0) store(to, first(n), load_some(p, n));
}

// f32, and a bias if there is one, rounded to f16.
WIDE void narrow(const float *from, const uint16_t *bias, uint16_t *to, int64_t n) {
    for (; n > 0; n -= kLanes, from += kLanes, to += kLanes) {
        const int64_t here = n < kLanes ? n : kLanes;
        Vector x = load_some(from, here);
        if (bias) x = plus(x, load_some(reinterpret_cast<const Half *>(bias), here)), bias += kLanes;
        Half out[kLanes];
        store(out, x);
        std::memcpy(to, out, here * sizeof(Half));
    }
}

} // namespace
} // namespace pliant
