// The loops of attention, for the vectors of matmul_loops.h: block of keys by block of keys, as in flash attention.
#pragma once
#include "attention.h"
#include "matmul.h"
#include <algorithm>
#include <limits>

namespace pliant {
namespace {

// exp(x) for x <= 0, to 1 ulp; 0 where that is no normal number.
INLINED Vector exp_of(Vector x) {
    const Vector magic = spread(12582912.0f); // 1.5 * 2^23: adding it rounds
    const Mask tiny = below(x, spread(-87.33f));
    const Vector t = times_plus(x, spread(1.44269504f), magic), n = minus(t, magic);
    const Vector r = times_plus(n, spread(2.12194440e-4f), times_minus(n, spread(0.693359375f), x));
    Vector p = times_plus(r, spread(1.9875691500e-4f), spread(1.3981999507e-3f));
    p = times_plus(p, r, spread(8.3334519073e-3f));
    p = times_plus(p, r, spread(4.1665795894e-2f));
    p = times_plus(p, r, spread(1.6666665459e-1f));
    p = times_plus(p, r, spread(5.0000001201e-1f));
    p = plus(times_plus(p, times(r, r), r), spread(1.0f));
    return only(but(first(kLanes), tiny), times(p, power(t)));
}

// The largest of n scores, the mask added to them.
INLINED float largest(float *s, int64_t n, const float *mask, int64_t step) {
    const Vector none = spread(-std::numeric_limits<float>::infinity());
    if (mask && step != 1) {
        for (int64_t j = 0; j < n; j++) s[j] += mask[j * step];
        mask = nullptr;
    }
    Vector top[2] = {none, none};
    int64_t j = 0;
    for (; j + kLanes <= n; j += kLanes) {
        Vector x = load(s + j);
        if (mask) store(s + j, x = plus(x, load(mask + j)));
        top[0] = larger(first(kLanes), x, top[0]);
        std::swap(top[0], top[1]);
    }
    if (j < n) {
        const Mask m = first(n - j);
        Vector x = load(m, s + j);
        if (mask) store(s + j, m, x = plus(x, load(m, mask + j)));
        top[0] = larger(m, x, top[0]);
    }
    return most_of(larger(first(kLanes), top[0], top[1]));
}

// n scores to exp(score - most), 0 from there to `end`. Returns their sum.
INLINED float soften(float *s, int64_t n, int64_t end, float most) {
    const Vector top = spread(most);
    Vector sums[2] = {zero(), zero()};
    int64_t j = 0;
    for (; j + 2 * kLanes <= n; j += 2 * kLanes) {
        UNROLLED for (int i = 0; i < 2; i++) {
            const Vector e = exp_of(minus(load(s + j + i * kLanes), top));
            store(s + j + i * kLanes, e);
            sums[i] = plus(sums[i], e);
        }
    }
    for (; j < n; j += kLanes) {
        const Mask m = first(n - j);
        const Vector e = only(m, exp_of(minus(load(m, s + j), top)));
        store(s + j, m, e);
        sums[0] = plus(sums[0], e);
    }
    for (j = n; j < end; j++) s[j] = 0;
    return sum_of(plus(sums[0], sums[1]));
}

INLINED void scale_row(float *p, int64_t n, float factor) {
    const Vector x = spread(factor);
    for (int64_t j = 0; j < n; j += kLanes) {
        const Mask m = first(n - j);
        store(p + j, m, times(load(m, p + j), x));
    }
}

WIDE void attend(const Rows &r) {
    const float none = -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < r.rows; i++) r.most[i] = none, r.total[i] = 0;
    const int64_t to = r.first < 0 ? r.to : std::min(r.to, r.first + r.rows);
    bool begun = false;
    for (int64_t at = r.from; at < to; at += kKeys) {
        const int64_t n = std::min(kKeys, to - at);
        const Matrix q = {r.q, r.q_row, 1}, k = {r.k + at * r.k_row, 1, r.k_row}, v = {r.v + at * r.v_row, r.v_row, 1};
        multiply(way_of(q, k, r.rows, n, r.depth), q, k, {r.scores, kSpan, r.scale}, r.rows, n, r.depth);
        for (int64_t i = 0; i < r.rows; i++) {
            float *s = r.scores + i * kSpan;
            const int64_t mine = r.first < 0 ? n : std::clamp<int64_t>(r.first + i + 1 - at, 0, n);
            const float *mask = r.mask ? r.mask + i * r.mask_row + at * r.mask_column : nullptr;
            const float before = r.most[i], most = std::max(before, largest(s, mine, mask, r.mask_column));
            const float sum = soften(s, mine, n, most == none ? 0.0f : most); // without any, infinities are not to meet
            if (begun && most != before) {
                const float factor = before == none ? 0.0f : exp_of(spread(before - most))[0];
                r.total[i] *= factor;
                scale_row(r.out + i * r.out_row, r.width, factor);
            }
            r.most[i] = most;
            r.total[i] += sum;
        }
        const Matrix shares = {r.scores, kSpan, 1};
        Result out = {r.out, r.out_row};
        if (begun) out.plus = out.c, out.plus_row = out.ldc;
        multiply(way_of(shares, v, r.rows, r.width, n), shares, v, out, r.rows, r.width, n);
        begun = true;
    }
    for (int64_t i = 0; i < r.rows && !begun; i++) std::fill_n(r.out + i * r.out_row, r.width, 0.0f);
    for (int64_t i = 0; i < r.rows && r.finish; i++) {
        const float total = r.total[i];
        scale_row(r.out + i * r.out_row, r.width, total == 0 ? 0.0f : 1.0f / total);
    }
}

} // namespace
} // namespace pliant
