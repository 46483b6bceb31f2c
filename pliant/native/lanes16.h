// Floats sixteen at a time (AVX-512), by the names that matmul_loops.h and attention_loops.h use; lanes8.h has the same for AVX2.
#pragma once
#include "vectors.h"
#include <cstring>

#if defined(__x86_64__)
namespace pliant {
namespace {

struct Half {
    uint16_t bits; // of an f16
};

using Mask = __mmask16;
using Ints = __m512i;
constexpr int kRegisters = 32;
constexpr int kDotRows = 4, kDotColumns = 6;

INLINED Vector zero() { return _mm512_setzero_ps(); }
INLINED Vector spread(float x) { return _mm512_set1_ps(x); }
INLINED Vector load(const float *p) { return _mm512_loadu_ps(p); }
INLINED Vector load(Mask m, const float *p) { return _mm512_maskz_loadu_ps(m, p); }
INLINED Vector load_some(const float *p, int64_t n) { return load(first(n), p); }
INLINED Vector load(const Half *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p))); }
INLINED Vector load(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))));
}
template <typename Narrow> INLINED Vector load_some(const Narrow *p, int64_t n) {
    Narrow some[kLanes] = {};
    std::memcpy(some, p, n * sizeof(Narrow));
    return load(some);
}
INLINED void store(Half *p, Vector v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINED void store(float *p, Vector v) { _mm512_storeu_ps(p, v); }
INLINED void store(float *p, Mask m, Vector v) { _mm512_mask_storeu_ps(p, m, v); }
INLINED Vector plus(Vector a, Vector b) { return _mm512_add_ps(a, b); }
INLINED Vector minus(Vector a, Vector b) { return _mm512_sub_ps(a, b); }
INLINED Vector times(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
INLINED Vector times_plus(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
INLINED Vector times_minus(Vector a, Vector b, Vector c) { return _mm512_fnmadd_ps(a, b, c); } // c - a * b

// The larger one, of the lanes in m; `b` elsewhere, and where a is no number.
INLINED Vector larger(Mask m, Vector a, Vector b) { return _mm512_mask_max_ps(b, m, a, b); }
INLINED Vector only(Mask m, Vector v) { return _mm512_maskz_mov_ps(m, v); }
INLINED Mask below(Vector a, Vector b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
INLINED Mask but(Mask m, Mask without) { return m & ~without; }
INLINED Vector over(Vector a, Vector b) { return _mm512_div_ps(a, b); }
INLINED Vector pick(Mask m, Vector a, Vector b) { return _mm512_mask_blend_ps(m, b, a); } // a in the lanes of m, b elsewhere
INLINED Vector magnitude(Vector v) { return _mm512_andnot_ps(spread(-0.0f), v); }
INLINED Vector signed_as(Vector v, Vector x) { return _mm512_or_ps(v, _mm512_and_ps(spread(-0.0f), x)); } // v, which is positive, with the sign of x

// 2^n, for the n that `magic + n` holds in its lowest bits.
INLINED Vector power(Vector shifted) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(127)), 23));
}

INLINED __m256 folded(Vector v) { return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)); }
INLINED float sum_of(Vector v) { return _mm512_reduce_add_ps(v); }
INLINED float most_of(Vector v) { return _mm512_reduce_max_ps(v); }

// 16 rows of 16 become columns.
INLINED void transpose(Vector (&r)[16]) {
    Vector t[16];
    UNROLLED for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    UNROLLED for (int i = 0; i < 4; i++) {
        const __m512d a = _mm512_castps_pd(t[4 * i]), b = _mm512_castps_pd(t[4 * i + 2]);
        const __m512d c = _mm512_castps_pd(t[4 * i + 1]), d = _mm512_castps_pd(t[4 * i + 3]);
        r[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
        r[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        r[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(c, d));
        r[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(c, d));
    }
    UNROLLED for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
        t[8 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xDD);
        t[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xDD);
    }
    UNROLLED for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[4 + i], 0x88);
        r[8 + i] = _mm512_shuffle_f32x4(t[i], t[4 + i], 0xDD);
        r[4 + i] = _mm512_shuffle_f32x4(t[8 + i], t[12 + i], 0x88);
        r[12 + i] = _mm512_shuffle_f32x4(t[8 + i], t[12 + i], 0xDD);
    }
}

} // namespace
} // namespace pliant
#endif
