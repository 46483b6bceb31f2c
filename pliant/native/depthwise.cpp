// Convolutions in which every feature has a channel of its own: four or eight rows of the output at a time, sixteen pixels of each.
//
// There is nothing to multiply matrices for, so the input is read as it lies: what a row of it gives is used for all rows of the output
// that see it. Lanes that would read padding are masked off, rows of padding are read from a row of zeros.
#include "conv.h"
#include "pool.h"
#include "shared.h"
#include "vectors.h"
#include <algorithm>
#include <cstdlib>

#if defined(__x86_64__)
namespace pliant {
namespace {

#define WHOLLY _Pragma("GCC unroll 24")

constexpr int kLargest = 7;
constexpr double kGrain = 1 << 18; // multiplications that are worth a thread

alignas(64) const float zeros[4 * kLanes] = {};

// For each vector of a row of the output and each tap: the lanes that read no padding. For a stride of 2, of two vectors of the input.
struct Lanes {
    __mmask16 low, high;
};

struct Rows {
    const Convolution *c;
    int64_t vectors;
    const Lanes *lanes;
};

template <int S> INLINED Vector pixels(const float *p, Lanes m) {
    if (S == 1) return _mm512_maskz_loadu_ps(m.low, p);
    return every_other(_mm512_maskz_loadu_ps(m.low, p), _mm512_maskz_loadu_ps(m.high, p + kLanes));
}

// One feature of one picture, with a kernel of K x K and strides of S. Large kernels need more sums that do not wait for each other.
template <int K, int S, int kRows = K == 3 ? 4 : 8>
WIDE void feature(const Rows &r, const float *x, const float *w, float bias, float *out) {
    const Convolution &c = *r.c;
    for (int64_t v = 0; v < r.vectors; v++) {
        const Lanes *m = r.lanes + v * K;
        const __mmask16 last = first(c.to[2] - v * kLanes);
        for (int64_t y = 0; y < c.to[1]; y += kRows) {
            Vector sums[kRows];
            WHOLLY for (int i = 0; i < kRows; i++) sums[i] = _mm512_set1_ps(bias);
            WHOLLY for (int j = 0; j < (kRows - 1) * S + K; j++) {
                const int64_t row = y * S + j - c.pad[1];
                const float *p = row >= 0 && row < c.in[1] ? x + row * c.x_step[1] + v * kLanes * S - c.pad[2] : zeros;
                WHOLLY for (int k = 0; k < K; k++) {
                    const Vector a = pixels<S>(p + k, m[k]);
                    WHOLLY for (int i = 0; i < kRows; i++)
                        if (j >= i * S && j < i * S + K) sums[i] = _mm512_fmadd_ps(_mm512_set1_ps(w[(j - i * S) * K + k]), a, sums[i]);
                    WHOLLY for (int i = 0; i < kRows; i++) asm volatile("" : "+v"(sums[i])); // in this order: GCC would finish one sum first
                }
            }
            WHOLLY for (int i = 0; i < kRows; i++)
                if (y + i < c.to[1]) _mm512_mask_storeu_ps(out + (y + i) * c.to[2] + v * kLanes, last, sums[i]);
        }
    }
}

using Feature = void(const Rows &, const float *, const float *, float, float *);
Feature *const kFeatures[] = {feature<3, 1>, feature<3, 2>, feature<5, 1>, feature<5, 2>, feature<7, 1>, feature<7, 2>};

void run_features(const Rows &r, int64_t low, int64_t high) {
    const Convolution &c = *r.c;
    Feature *const run = kFeatures[c.kernel[2] - 3 + c.stride[2] - 1];
    for (int64_t at = low; at < high; at++) {
        const int64_t n = at / c.groups, g = at % c.groups;
        run(r, c.x + n * c.x_batch + g * c.x_channel, c.w + g * c.taps(), c.bias ? c.bias[g] : 0.0f, c.out + at * c.pixels());
    }
}

bool fits(const Convolution &c) {
    const int64_t k = c.kernel[2], s = c.stride[2];
    return c.channels == 1 && c.features == 1 && c.kernel[0] == 1 && c.in[0] == 1 && c.to[0] == 1 && c.kernel[1] == k &&
           (k == 3 || k == 5 || k == kLargest) && c.stride[1] == s && (s == 1 || s == 2) && c.dilation[1] == 1 && c.dilation[2] == 1;
}

} // namespace

bool depthwise(const Convolution &c, int32_t &status) {
    if (!fits(c)) return false;
    const int64_t vectors = pieces(c.to[2], kLanes), k = c.kernel[2], s = c.stride[2];
    auto *lanes = static_cast<Lanes *>(std::calloc(vectors * k, sizeof(Lanes)));
    if (!lanes) {
        status = OUT_OF_MEMORY;
        return true;
    }
    for (int64_t at = 0; at < c.to[2]; at++)
        for (int64_t tap = 0; tap < k; tap++) {
            const int64_t from = at * s + tap - c.pad[2], lane = at % kLanes * s;
            Lanes &m = lanes[at / kLanes * k + tap];
            if (from >= 0 && from < c.in[2]) (lane < kLanes ? m.low : m.high) |= static_cast<__mmask16>(1u << lane % kLanes);
        }
    Rows r{&c, vectors, lanes};
    const int64_t total = c.batch * c.groups;
    const int64_t threads = threads_for(static_cast<double>(total) * c.pixels() * c.taps(), kGrain, total);
    shared(threads, total, [&](int64_t low, int64_t high) { run_features(r, low, high); });
    std::free(lanes);
    status = 0;
    return true;
}

} // namespace pliant
#else
namespace pliant {
bool depthwise(const Convolution &, int32_t &) { return false; }
} // namespace pliant
#endif
