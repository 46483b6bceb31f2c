// Vectors of 16 floats (AVX-512), for the files that compute with them.
#pragma once
#include <cstdint>

#if defined(__x86_64__)
#pragma GCC diagnostic ignored "-Wuninitialized" // of GCC's own header: what is undefined on purpose
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#define WIDE __attribute__((target("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw")))
#define INLINED WIDE __attribute__((always_inline)) inline
#define UNROLLED _Pragma("GCC unroll 8")

namespace pliant {

using Vector = __m512;
constexpr int64_t kLanes = 16;

INLINED __mmask16 first(int64_t n) { return n >= kLanes ? 0xFFFF : static_cast<__mmask16>((1u << n) - 1); }

// Into the cache: what is read soon, and lies too scattered for the processor to foresee it. Beyond the end of memory it does nothing.
INLINED void ahead(const float *p) { _mm_prefetch(reinterpret_cast<const char *>(p), _MM_HINT_T0); }

// The first, third, ... of the elements of two vectors.
INLINED Vector every_other(Vector a, Vector b) {
    return _mm512_permutex2var_ps(a, _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0), b);
}

} // namespace pliant
#endif
