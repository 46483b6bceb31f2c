// Floats eight at a time (AVX2), by the names that matmul_loops.h and attention_loops.h use; lanes16.h has the same for AVX-512.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#pragma GCC diagnostic ignored "-Wuninitialized" // of GCC's own header: what is undefined on purpose
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#define WIDE __attribute__((target("avx2,fma,f16c")))
#define INLINED WIDE __attribute__((always_inline)) inline
#define UNROLLED _Pragma("GCC unroll 8")

namespace pliant {
namespace {

struct Half {
    uint16_t bits; // of an f16
};

using Vector = __m256;
using Mask = __m256i;
constexpr int64_t kLanes = 8;
constexpr int kRegisters = 16;
constexpr int kDotRows = 3, kDotColumns = 4;

INLINED Mask first(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n < kLanes ? static_cast<int>(n) : 8), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINED void ahead(const float *p) { _mm_prefetch(reinterpret_cast<const char *>(p), _MM_HINT_T0); }

INLINED Vector zero() { return _mm256_setzero_ps(); }
INLINED Vector spread(float x) { return _mm256_set1_ps(x); }
INLINED Vector load(const float *p) { return _mm256_loadu_ps(p); }
INLINED Vector load(Mask m, const float *p) { return _mm256_maskload_ps(p, m); }
INLINED Vector load_some(const float *p, int64_t n) { return load(first(n), p); }
INLINED Vector load(const Half *p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))); }
INLINED Vector load(const int8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))));
}
template <typename Narrow> INLINED Vector load_some(const Narrow *p, int64_t n) {
    Narrow some[kLanes] = {};
    std::memcpy(some, p, n * sizeof(Narrow));
    return load(some);
}
INLINED void store(Half *p, Vector v) {
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINED void store(float *p, Vector v) { _mm256_storeu_ps(p, v); }
INLINED void store(float *p, Mask m, Vector v) { _mm256_maskstore_ps(p, m, v); }
INLINED Vector plus(Vector a, Vector b) { return _mm256_add_ps(a, b); }
INLINED Vector minus(Vector a, Vector b) { return _mm256_sub_ps(a, b); }
INLINED Vector times(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
INLINED Vector times_plus(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
INLINED Vector times_minus(Vector a, Vector b, Vector c) { return _mm256_fnmadd_ps(a, b, c); } // c - a * b

// The larger one, of the lanes in m; `b` elsewhere, and where a is no number.
INLINED Vector larger(Mask m, Vector a, Vector b) { return _mm256_blendv_ps(b, _mm256_max_ps(a, b), _mm256_castsi256_ps(m)); }
INLINED Vector only(Mask m, Vector v) { return _mm256_and_ps(_mm256_castsi256_ps(m), v); }
INLINED Mask below(Vector a, Vector b) { return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
INLINED Mask but(Mask m, Mask without) { return _mm256_andnot_si256(without, m); }
INLINED Vector over(Vector a, Vector b) { return _mm256_div_ps(a, b); }
INLINED Vector pick(Mask m, Vector a, Vector b) { return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(m)); } // a in the lanes of m, b elsewhere
INLINED Vector magnitude(Vector v) { return _mm256_andnot_ps(spread(-0.0f), v); }
INLINED Vector signed_as(Vector v, Vector x) { return _mm256_or_ps(v, _mm256_and_ps(spread(-0.0f), x)); } // v, which is positive, with the sign of x

// 2^n, for the n that `magic + n` holds in its lowest bits.
INLINED Vector power(Vector shifted) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(127)), 23));
}

INLINED __m256 folded(Vector v) { return v; }
INLINED float sum_of(Vector v) {
    const __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)), y = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
INLINED float most_of(Vector v) {
    const __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)), y = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}

// 8 rows of 8 become columns.
INLINED void transpose(Vector (&r)[8]) {
    Vector t[8];
    UNROLLED for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    UNROLLED for (int i = 0; i < 2; i++) {
        r[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
        r[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xEE);
        r[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
        r[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xEE);
    }
    UNROLLED for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[4 + i], 0x20);
        t[4 + i] = _mm256_permute2f128_ps(r[i], r[4 + i], 0x31);
    }
    UNROLLED for (int i = 0; i < 8; i++) r[i] = t[i];
}

} // namespace
} // namespace pliant
#endif
