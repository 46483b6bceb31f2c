// The loops of matmul_loops.h over pairs of bf16: what multiplies and adds is AVX-512's instruction for them.
#include "lanes16.h"

#if defined(__x86_64__)
#undef WIDE
#define WIDE __attribute__((target("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw,avx512bf16")))

namespace pliant {
namespace {

INLINED Vector products_plus(Vector a, Vector b, Vector c) { return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b); }
INLINED __m512i wide_of(const uint16_t *p, __mmask16 m) { return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p)); }

// Two rows of bf16 to one of pairs.
WIDE void pair(const uint16_t *even, const uint16_t *odd, float *to, int64_t n) {
    for (int64_t i = 0; i < n; i += kLanes) {
        const __mmask16 m = first(n - i);
        const __m512i high = odd ? _mm512_slli_epi32(wide_of(odd + i, m), 16) : _mm512_setzero_si512();
        _mm512_mask_storeu_epi32(to + i, m, _mm512_or_si512(wide_of(even + i, m), high));
    }
}

// f32, and a bias if there is one, rounded to bf16: to nearest, ties to even.
WIDE void narrow_bf16(const float *from, const uint16_t *bias, uint16_t *to, int64_t n) {
    const __m512i half = _mm512_set1_epi32(0x7FFF), one = _mm512_set1_epi32(1);
    for (int64_t i = 0; i < n; i += kLanes) {
        const __mmask16 m = first(n - i);
        Vector x = load(m, from + i);
        if (bias) x = plus(x, _mm512_castsi512_ps(_mm512_slli_epi32(wide_of(bias + i, m), 16)));
        const __m512i bits = _mm512_castps_si512(x);
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
        __m512i r = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, half), odd), 16);
        r = _mm512_mask_mov_epi32(r, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32(0x7FC0));
        _mm256_mask_storeu_epi16(to + i, m, _mm512_cvtepi32_epi16(r));
    }
}

} // namespace
} // namespace pliant

#define MULTIPLY_ADD products_plus
#include "halves.h"
#include "matmul_loops.h"

const pliant::Pairs pliant::pairs512 = {{way_of, multiply, nullptr}, pair, narrow_bf16};
#else
#include "halves.h"
const pliant::Pairs pliant::pairs512 = {};
#endif
