// `quantized::linear_dynamic` in segments: the input is quantized by its own range, multiplied by weights of int8, and brought back to f32.
//
// Every rounding is that of FBGEMM, which PyTorch calls for its engines "x86" and "fbgemm", and so is what becomes of NaNs and infinities.
// The input has bytes from 0 to 255; here they are taken less 128, with which the zero point moves.
#include "int8.h"
#include "routines.h"
#include <cfloat>
#include <climits>
#include <cmath>

#if defined(__x86_64__)
#include "vectors.h"
#define AVX2 __attribute__((target("avx2,fma")))
#endif

namespace pliant {
namespace {

// out[i * n + j] = the sum over k of x[i * ldx + k] * weight[j * ldw + k] * scale[j], plus bias[j]. `sums`: of the columns of the weight.
// `most`: the range is cut into so many steps. `fused`: the bias is added by one rounding with the product.
struct DynamicLinear {
    const float *x;
    const int8_t *weight;
    const float *scale;
    const int32_t *sums;
    const float *bias; // or null
    float *out;
    int64_t m, n, k, ldx, ldw, most, fused;
};

struct Range {
    float low, high;
};

struct Steps {
    float scale;
    int32_t zero;
};

// As FBGEMM's FindMinMax: eight lanes, in which what is compared with a NaN takes its place.
Range range_with_nans(const DynamicLinear &p) {
    constexpr int64_t kWidth = 8;
    const auto at = [&](int64_t q) { return p.x[q / p.k * p.ldx + q % p.k]; };
    const int64_t all = p.m * p.k, whole = all / kWidth * kWidth;
    float low[kWidth], high[kWidth];
    std::fill_n(low, kWidth, at(0));
    std::fill_n(high, kWidth, at(0));
    for (int64_t q = 0; q < whole; q++) {
        const float v = at(q);
        float &l = low[q % kWidth], &h = high[q % kWidth];
        l = l < v ? l : v;
        h = h > v ? h : v;
    }
    Range r = {at(0), at(0)};
    if (whole)
        for (int64_t j = 0; j < kWidth; j++) r = {std::min(r.low, low[j]), std::max(r.high, high[j])};
    for (int64_t q = whole; q < all; q++) r = {std::min(r.low, at(q)), std::max(r.high, at(q))};
    return r;
}

// PyTorch's ChooseQuantizationParams (ATen/native/quantized/cpu/QuantUtils.h), for bytes from 0 to `most`.
Steps steps_of(Range r, int32_t most) {
    constexpr float kSmall = 6.1e-5f;
    float low = std::min(r.low, 0.0f), high = std::max(r.high, 0.0f);
    double scale = (static_cast<double>(high) - low) / most;
    if (static_cast<float>(scale) == 0.0f || std::isinf(1.0f / static_cast<float>(scale))) scale = 0.1;
    if (scale < kSmall) {
        const float before = static_cast<float>(scale);
        scale = kSmall;
        if (low == 0.0f) high = kSmall * most;
        else if (high == 0.0f) low = -kSmall * most;
        else {
            const float more = kSmall / before;
            low *= more;
            high *= more;
        }
    }
    const double below = low / scale, above = high / scale;
    const double from_low = 0 - below, from_high = most - above;
    const double zero = std::abs(below) < most + std::abs(above) ? from_low : from_high;
    const double nearest = std::nearbyint(zero);
    const int32_t rounded = zero < 0 ? 0 : zero > most ? most : nearest != nearest ? INT_MIN : static_cast<int32_t>(nearest);
    return {static_cast<float>(scale), rounded};
}

int8_t byte_of(float x, float inverse, float zero) {
    const float v = std::fmaf(x, inverse, zero);
    const float most = 2147483520.0f, bounded = v < most ? v : most; // a NaN is the most
    const float nearest = std::nearbyintf(bounded);
    return static_cast<int8_t>(static_cast<int32_t>(nearest <= 0.0f ? 0.0f : nearest >= 255.0f ? 255.0f : nearest) - 128);
}

float result_of(int32_t sum, float scale, const float *bias, bool fused) {
    const auto value = static_cast<float>(sum);
    return !bias ? value * scale : fused ? std::fmaf(value, scale, *bias) : value * scale + *bias;
}

int32_t less(int32_t sum, int32_t zero, int32_t of) {
    return static_cast<int32_t>(static_cast<uint32_t>(sum) - static_cast<uint32_t>(zero) * static_cast<uint32_t>(of));
}

#if defined(__x86_64__)
AVX2 Range range_of(const DynamicLinear &p) {
    constexpr int kApart = 4;
    __m256 low[kApart], high[kApart], odd = _mm256_setzero_ps();
    for (int u = 0; u < kApart; u++) low[u] = high[u] = _mm256_set1_ps(p.x[0]);
    float rest = p.x[0] * 0.0f;
    Range r = {p.x[0], p.x[0]};
    for (int64_t i = 0; i < p.m; i++) {
        const float *x = p.x + i * p.ldx;
        int64_t k = 0;
        for (; k + 8 * kApart <= p.k; k += 8 * kApart) UNROLLED for (int u = 0; u < kApart; u++) {
            const __m256 v = _mm256_loadu_ps(x + k + 8 * u);
            low[u] = _mm256_min_ps(low[u], v);
            high[u] = _mm256_max_ps(high[u], v);
            odd = _mm256_fmadd_ps(v, _mm256_setzero_ps(), odd); // no number from the first NaN or infinity on
        }
        for (; k < p.k; k++) {
            r = {std::min(r.low, x[k]), std::max(r.high, x[k])};
            rest += x[k] * 0.0f;
        }
    }
    float lanes[8], lows[8], highs[8];
    _mm256_storeu_ps(lanes, odd);
    _mm256_storeu_ps(lows, _mm256_min_ps(_mm256_min_ps(low[0], low[1]), _mm256_min_ps(low[2], low[3])));
    _mm256_storeu_ps(highs, _mm256_max_ps(_mm256_max_ps(high[0], high[1]), _mm256_max_ps(high[2], high[3])));
    for (int j = 0; j < 8; j++) {
        rest += lanes[j];
        r = {std::min(r.low, lows[j]), std::max(r.high, highs[j])};
    }
    return rest == rest ? r : range_with_nans(p);
}

AVX2 void quantize(const float *x, int8_t *to, int64_t n, float inverse, float zero) {
    const __m256 by = _mm256_set1_ps(inverse), plus = _mm256_set1_ps(zero), most = _mm256_set1_ps(2147483520.0f);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7), sign = _mm256_set1_epi8(-128);
    const auto four = [&](const float *p) __attribute__((target("avx2,fma"), always_inline)) {
        return _mm256_cvtps_epi32(_mm256_min_ps(_mm256_fmadd_ps(_mm256_loadu_ps(p), by, plus), most));
    };
    int64_t k = 0;
    for (; k + 32 <= n; k += 32) {
        const __m256i a = _mm256_packs_epi32(four(x + k), four(x + k + 8)), b = _mm256_packs_epi32(four(x + k + 16), four(x + k + 24));
        const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b), order);
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(to + k), _mm256_xor_si256(bytes, sign));
    }
    for (; k < n; k++) to[k] = byte_of(x[k], inverse, zero);
}

AVX2 void finish(const DynamicLinear &p, Steps s, int64_t low, int64_t high) {
    const int32_t zero = static_cast<int32_t>(static_cast<uint32_t>(s.zero) - 128u);
    const __m256i offset = _mm256_set1_epi32(zero);
    const __m256 scale = _mm256_set1_ps(s.scale);
    for (int64_t i = 0; i < p.m; i++) {
        float *row = p.out + i * p.n;
        int64_t j = low;
        for (; j + 8 <= high; j += 8) {
            const __m256i sums = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p.sums + j));
            const __m256i sum = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(row + j));
            const __m256 v = _mm256_cvtepi32_ps(_mm256_sub_epi32(sum, _mm256_mullo_epi32(offset, sums)));
            const __m256 by = _mm256_mul_ps(scale, _mm256_loadu_ps(p.scale + j));
            const __m256 product = _mm256_mul_ps(v, by);
            _mm256_storeu_ps(row + j, !p.bias   ? product
                                      : p.fused ? _mm256_fmadd_ps(v, by, _mm256_loadu_ps(p.bias + j))
                                                : _mm256_add_ps(product, _mm256_loadu_ps(p.bias + j)));
        }
        for (; j < high; j++) {
            int32_t sum;
            __builtin_memcpy(&sum, row + j, sizeof sum);
            row[j] = result_of(less(sum, zero, p.sums[j]), s.scale * p.scale[j], p.bias ? p.bias + j : nullptr, p.fused);
        }
    }
}
#endif

Range plain_range(const DynamicLinear &p) { return range_with_nans(p); }

void plain_quantize(const float *x, int8_t *to, int64_t n, float inverse, float zero) {
    for (int64_t k = 0; k < n; k++) to[k] = byte_of(x[k], inverse, zero);
}

void plain_finish(const DynamicLinear &p, Steps s, int64_t low, int64_t high) {
    const int32_t zero = static_cast<int32_t>(static_cast<uint32_t>(s.zero) - 128u);
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = low; j < high; j++) {
            int32_t sum;
            float *to = p.out + i * p.n + j;
            __builtin_memcpy(&sum, to, sizeof sum);
            *to = result_of(less(sum, zero, p.sums[j]), s.scale * p.scale[j], p.bias ? p.bias + j : nullptr, p.fused);
        }
}

// The parts that are no product, with and without vectors.
struct Around {
    Range (*range)(const DynamicLinear &);
    void (*quantize)(const float *, int8_t *, int64_t, float, float);
    void (*finish)(const DynamicLinear &, Steps, int64_t, int64_t);
};
constexpr Around plain_around = {plain_range, plain_quantize, plain_finish};
#if defined(__x86_64__)
constexpr Around vector_around = {range_of, quantize, finish};
#else
constexpr Around vector_around = plain_around;
#endif

template <const IntLoops &loops, const Around &around> int32_t linear(const void *given) {
    constexpr double kGrain = 1 << 16; // numbers to quantize that are worth a thread
    const auto &p = *static_cast<const DynamicLinear *>(given);
    if (p.m <= 0 || p.n <= 0) return 0;
    Range range = {0.0f, 0.0f};
    if (p.k > 0) range = around.range(p);
    if (!(range.low <= range.high)) return NO_RANGE;
    const Steps s = steps_of(range, static_cast<int32_t>(p.most));
    if (p.k <= 0) {
        std::fill_n(reinterpret_cast<int32_t *>(p.out), p.m * p.n, 0);
        around.finish(p, s, 0, p.n);
        return 0;
    }
    const int64_t row = (p.k + 63) / 64 * 64;
    auto *bytes = static_cast<int8_t *>(std::aligned_alloc(64, p.m * row));
    if (!bytes) return OUT_OF_MEMORY;
    const float inverse = 1.0f / s.scale, zero = static_cast<float>(s.zero);
    shared(threads_for(static_cast<double>(p.m) * p.k, kGrain, p.m), p.m, [&](int64_t low, int64_t high) {
        for (int64_t i = low; i < high; i++) around.quantize(p.x + i * p.ldx, bytes + i * row, p.k, inverse, zero);
    });
    const IntProduct product = {bytes, p.weight, reinterpret_cast<int32_t *>(p.out), p.m, p.n, p.k, row, p.ldw};
    const int32_t status = int8_product(product, loops, [&](int64_t low, int64_t high) { around.finish(p, s, low, high); });
    std::free(bytes);
    return status;
}

} // namespace

Routine *dynamic_linear_routine(int64_t bits, bool tiles) {
    const IntLoops &loops = int8_loops(bits, tiles);
    if (&loops == &int8_tiles) return &linear<int8_tiles, vector_around>;
    if (&loops == &int8_vnni) return &linear<int8_vnni, vector_around>;
    return &loops == &int8_avx2 ? &linear<int8_avx2, vector_around> : &linear<int8_plain, plain_around>;
}

} // namespace pliant
