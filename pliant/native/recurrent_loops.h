// The loops of a step of an LSTM, for the vectors of lanes8.h or lanes16.h; exponentials are those of attention_loops.h.
#pragma once
#include "attention_loops.h"
#include "recurrent.h"

namespace pliant {
namespace {

// 1 / (1 + exp(-x)).
INLINED Vector sigmoid_of(Vector x) {
    const Vector e = exp_of(minus(zero(), magnitude(x))), one = spread(1.0f);
    return over(pick(below(x, zero()), e, one), plus(one, e));
}

// Near 0 by a polynomial (that of Cephes), elsewhere by exp(-2 |x|).
INLINED Vector tanh_of(Vector x) {
    const Vector size = magnitude(x), one = spread(1.0f), square = times(x, x);
    Vector p = times_plus(square, spread(-5.70498872745e-3f), spread(2.06390887954e-2f));
    p = times_plus(p, square, spread(-5.37397155531e-2f));
    p = times_plus(p, square, spread(1.33314422036e-1f));
    p = times_plus(p, square, spread(-3.33332819422e-1f));
    const Vector near = times_plus(times(p, square), x, x);
    const Vector e = exp_of(times(spread(-2.0f), size));
    const Vector far = signed_as(over(minus(one, e), plus(one, e)), x);
    return pick(below(size, spread(0.625f)), near, far);
}

WIDE void lstm_cell(const Cell &s) {
    for (int64_t i = 0; i < s.rows; i++) {
        float *gates = s.gates.at(i), *c = s.c.at(i), *h = s.h.at(i);
        const float *before = s.before.at(i);
        for (int64_t j = s.from; j < s.to; j += kLanes) {
            const Mask m = first(s.to - j);
            const Vector in = sigmoid_of(load(m, gates + j)), forget = sigmoid_of(load(m, gates + s.width + j));
            const Vector g = tanh_of(load(m, gates + 2 * s.width + j)), o = sigmoid_of(load(m, gates + 3 * s.width + j));
            const Vector now = times_plus(forget, load(m, before + j), times(in, g));
            store(gates + j, m, in);
            store(gates + s.width + j, m, forget);
            store(gates + 2 * s.width + j, m, g);
            store(gates + 3 * s.width + j, m, o);
            store(c + j, m, now);
            store(h + j, m, times(o, tanh_of(now)));
        }
    }
}

WIDE void lstm_cell_back(const CellBack &s) {
    const Vector one = spread(1.0f);
    for (int64_t i = 0; i < s.rows; i++) {
        const float *gates = s.gates.at(i), *before = s.before.at(i), *c = s.c.at(i), *d_out = s.d_out.data ? s.d_out.at(i) : nullptr;
        const float *d_h = s.d_h.at(i);
        float *d_c = s.d_c.at(i), *d = s.d_gates.at(i);
        for (int64_t j = s.from; j < s.to; j += kLanes) {
            const Mask m = first(s.to - j);
            const Vector in = load(m, gates + j), forget = load(m, gates + s.width + j);
            const Vector g = load(m, gates + 2 * s.width + j), o = load(m, gates + 3 * s.width + j), t = tanh_of(load(m, c + j));
            Vector of_h = load(m, d_h + j);
            if (d_out) of_h = plus(of_h, load(m, d_out + j));
            const Vector of_o = times(of_h, o);
            const Vector of_c = plus(load(m, d_c + j), times(of_o, times_minus(t, t, one)));
            store(d + j, m, times(times(of_c, g), times(in, minus(one, in))));
            store(d + s.width + j, m, times(times(of_c, load(m, before + j)), times(forget, minus(one, forget))));
            store(d + 2 * s.width + j, m, times(times(of_c, in), times_minus(g, g, one)));
            store(d + 3 * s.width + j, m, times(times(of_o, t), minus(one, o)));
            store(d_c + j, m, times(of_c, forget));
        }
    }
}

// out[j] = the sum over n rows, columns [from, to). What each addition loses is added to the next row (Kahan).
WIDE void sum_rows(const Lines &x, int64_t n, float *out, int64_t from, int64_t to) {
    constexpr int kSide = 4;
    for (int64_t j = from; j < to; j += kSide * kLanes) {
        Vector sums[kSide], lost[kSide];
        UNROLLED for (int q = 0; q < kSide; q++) sums[q] = lost[q] = zero();
        for (int64_t i = 0; i < n; i++)
            UNROLLED for (int q = 0; q < kSide; q++) {
                const Vector given = load(first(std::max<int64_t>(to - j - q * kLanes, 0)), x.at(i) + j + q * kLanes);
                const Vector next = minus(given, lost[q]), all = plus(sums[q], next);
                lost[q] = minus(minus(all, sums[q]), next);
                sums[q] = all;
            }
        UNROLLED for (int q = 0; q < kSide; q++)
            if (j + q * kLanes < to) store(out + j + q * kLanes, first(to - j - q * kLanes), sums[q]);
    }
}

} // namespace
} // namespace pliant
