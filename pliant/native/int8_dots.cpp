// Products of int8 with AVX-512's instructions for bytes ("VNNI"), and with AVX2: as dot products of both operands as they lie; with AVX-512
// and many rows, columns of b are interleaved into panels first.
#include "int8.h"
#include <algorithm>

#if defined(__x86_64__)
#include "lanes16.h"
#include <cstring>

#define VNNI __attribute__((target("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw,avx512vnni")))
#define AVX2 __attribute__((target("avx2")))

namespace pliant {
namespace {

constexpr int64_t kRows = 4, kColumns = 4;
constexpr int64_t kBlock = 64; // rows of a that stay in a cache while all of b goes by

// Rows [i, i + R) and columns [j, j + C).
using Tile = void(const IntProduct &, const int32_t *, int64_t i, int64_t j);

template <Tile *const (*tiles)[5]> void by_dots(const IntProduct &p, const void *scratch, int64_t from, int64_t to) {
    const auto *sums = static_cast<const int32_t *>(scratch);
    for (int64_t low = 0; low < p.m; low += kBlock) {
        const int64_t high = std::min(p.m, low + kBlock);
        for (int64_t j = from; j < to; j += kColumns)
            for (int64_t i = low; i < high; i += kRows) tiles[std::min(kRows, high - i)][std::min(kColumns, to - j)](p, sums, i, j);
    }
}

// -- AVX-512: the instruction multiplies unsigned by signed bytes, so 128 is added to what is in b, and taken off again: 128 times the
// sum of the row of a.
VNNI inline __m512i bytes_at(const int8_t *p, __mmask64 m) { return _mm512_maskz_loadu_epi8(m, p); }
VNNI inline __mmask64 first_bytes(int64_t n) { return n >= 64 ? ~0ull : (1ull << n) - 1; }

VNNI void row_sums(const IntProduct &p, void *scratch, int64_t low, int64_t high) {
    auto *sums = static_cast<int32_t *>(scratch);
    const __m512i ones = _mm512_set1_epi8(1);
    for (int64_t i = low * kRows; i < std::min(high * kRows, p.m); i++) {
        __m512i sum = _mm512_setzero_si512();
        for (int64_t k = 0; k < p.k; k += 64) sum = _mm512_dpbusd_epi32(sum, ones, bytes_at(p.a + i * p.lda + k, first_bytes(p.k - k)));
        sums[i] = _mm512_reduce_add_epi32(sum);
    }
}

VNNI inline __m256i folded(__m512i v) { return _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1)); }

// The sums of the lanes of four vectors.
VNNI inline __m128i totals(__m512i a, __m512i b, __m512i c, __m512i d) {
    const __m256i a8 = folded(a), b8 = folded(b), c8 = folded(c), d8 = folded(d);
    const __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a8, b8), _mm256_unpackhi_epi32(a8, b8));
    const __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c8, d8), _mm256_unpackhi_epi32(c8, d8));
    const __m256i s = _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    return _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
}

template <int R, int C> VNNI void tile512(const IntProduct &p, const int32_t *row_sums, int64_t i, int64_t j) {
    const int8_t *a = p.a + i * p.lda, *b = p.b + j * p.ldb;
    __m512i sums[R][C];
    UNROLLED for (int r = 0; r < R; r++) UNROLLED for (int c = 0; c < C; c++) sums[r][c] = _mm512_setzero_si512();
    const __m512i sign = _mm512_set1_epi8(-128);
    for (int64_t k = 0; k < p.k; k += 64) {
        const __mmask64 m = first_bytes(p.k - k);
        __m512i x[R];
        UNROLLED for (int r = 0; r < R; r++) x[r] = bytes_at(a + r * p.lda + k, m);
        UNROLLED for (int c = 0; c < C; c++) {
            const __m512i y = _mm512_xor_si512(bytes_at(b + c * p.ldb + k, m), sign); // where the mask is off, x is 0
            UNROLLED for (int r = 0; r < R; r++) sums[r][c] = _mm512_dpbusd_epi32(sums[r][c], y, x[r]);
        }
    }
    UNROLLED for (int r = 0; r < R; r++) {
        const __m512i none = _mm512_setzero_si512();
        const __m128i less = _mm_slli_epi32(_mm_set1_epi32(row_sums[i + r]), 7);
        const __m128i four = totals(sums[r][0], C > 1 ? sums[r][1 % C] : none, C > 2 ? sums[r][2 % C] : none, C > 3 ? sums[r][3 % C] : none);
        _mm_mask_storeu_epi32(p.c + (i + r) * p.n + j, (1u << C) - 1, _mm_sub_epi32(four, less));
    }
}

// The panels: row q holds bytes 4q to 4q + 3 of each column, with the 128; what is beyond the end is 0.
constexpr int64_t kPanelVectors = 3, kWidth = kPanelVectors * kLanes, kTall = 8, kManyRows = 8;

VNNI void interleave(const IntProduct &p, int64_t j, int64_t columns, int32_t *panel) {
    const __m512i sign = _mm512_set1_epi8(-128);
    for (int64_t c = 0; c < columns; c += kLanes)
        for (int64_t k = 0; k < p.k; k += 64) {
            const __mmask64 m = first_bytes(p.k - k);
            Vector r[kLanes];
            UNROLLED for (int q = 0; q < kLanes; q++) {
                const __m512i v = c + q < columns ? bytes_at(p.b + (j + c + q) * p.ldb + k, m) : sign;
                r[q] = _mm512_castsi512_ps(_mm512_maskz_mov_epi8(m, _mm512_xor_si512(v, sign)));
            }
            transpose(r);
            const int64_t rows = std::min<int64_t>(kLanes, (p.k - k + 3) / 4);
            UNROLLED for (int q = 0; q < kLanes; q++)
                if (q < rows) _mm512_storeu_ps(panel + (k / 4 + q) * kWidth + c, r[q]);
        }
}

template <int R, int W> VNNI void panel_tile(const IntProduct &p, const int32_t *row_sums, const int32_t *panel, int64_t i, int64_t j, int64_t columns) {
    const int8_t *a = p.a + i * p.lda;
    __m512i sums[R][W];
    UNROLLED for (int r = 0; r < R; r++) UNROLLED for (int w = 0; w < W; w++) sums[r][w] = _mm512_setzero_si512();
    int64_t k = 0;
    for (; k + 4 <= p.k; k += 4, panel += kWidth) {
        __m512i b[W];
        UNROLLED for (int w = 0; w < W; w++) b[w] = _mm512_loadu_si512(panel + w * kLanes);
        UNROLLED for (int r = 0; r < R; r++) {
            int32_t four;
            std::memcpy(&four, a + r * p.lda + k, sizeof four);
            const __m512i x = _mm512_set1_epi32(four);
            UNROLLED for (int w = 0; w < W; w++) sums[r][w] = _mm512_dpbusd_epi32(sums[r][w], b[w], x);
        }
    }
    if (k < p.k) {
        UNROLLED for (int r = 0; r < R; r++) {
            int32_t four = 0;
            std::memcpy(&four, a + r * p.lda + k, p.k - k);
            const __m512i x = _mm512_set1_epi32(four);
            UNROLLED for (int w = 0; w < W; w++) sums[r][w] = _mm512_dpbusd_epi32(sums[r][w], _mm512_loadu_si512(panel + w * kLanes), x);
        }
    }
    UNROLLED for (int r = 0; r < R; r++) {
        const __m512i less = _mm512_slli_epi32(_mm512_set1_epi32(row_sums[i + r]), 7);
        UNROLLED for (int w = 0; w < W; w++)
            _mm512_mask_storeu_epi32(p.c + (i + r) * p.n + j + w * kLanes, first(columns - w * kLanes), _mm512_sub_epi32(sums[r][w], less));
    }
}

using PanelTile = void(const IntProduct &, const int32_t *, const int32_t *, int64_t, int64_t, int64_t);
template <int W>
constexpr PanelTile *panel_tiles[] = {nullptr,          panel_tile<1, W>, panel_tile<2, W>, panel_tile<3, W>, panel_tile<4, W>,
                                      panel_tile<5, W>, panel_tile<6, W>, panel_tile<7, W>, panel_tile<8, W>};
constexpr PanelTile *const *panel_widths[] = {nullptr, panel_tiles<1>, panel_tiles<2>, panel_tiles<3>};

// -- AVX2: bytes are made 16 bits wide; no sum of two products leaves 32.
AVX2 inline __m256i widened(const int8_t *p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))); }

AVX2 inline int32_t total(__m256i v) {
    __m128i x = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xB1)));
}

template <int R, int C> AVX2 void tile256(const IntProduct &p, const int32_t *, int64_t i, int64_t j) {
    const int8_t *a = p.a + i * p.lda, *b = p.b + j * p.ldb;
    __m256i sums[R][C];
    UNROLLED for (int r = 0; r < R; r++) UNROLLED for (int c = 0; c < C; c++) sums[r][c] = _mm256_setzero_si256();
    int64_t k = 0;
    for (; k + 16 <= p.k; k += 16) {
        __m256i x[R];
        UNROLLED for (int r = 0; r < R; r++) x[r] = widened(a + r * p.lda + k);
        UNROLLED for (int c = 0; c < C; c++) {
            const __m256i y = widened(b + c * p.ldb + k);
            UNROLLED for (int r = 0; r < R; r++) sums[r][c] = _mm256_add_epi32(sums[r][c], _mm256_madd_epi16(x[r], y));
        }
    }
    UNROLLED for (int r = 0; r < R; r++) UNROLLED for (int c = 0; c < C; c++) {
        auto sum = static_cast<uint32_t>(total(sums[r][c]));
        for (int64_t rest = k; rest < p.k; rest++) sum += static_cast<uint32_t>(a[r * p.lda + rest] * b[c * p.ldb + rest]);
        p.c[(i + r) * p.n + j + c] = static_cast<int32_t>(sum);
    }
}

#define ROW(tile, r) {nullptr, tile<r, 1>, tile<r, 2>, tile<r, 3>, tile<r, 4>}
constexpr Tile *tiles512[5][5] = {{}, ROW(tile512, 1), ROW(tile512, 2), ROW(tile512, 3), ROW(tile512, 4)};
constexpr Tile *tiles256[5][5] = {{}, ROW(tile256, 1), ROW(tile256, 2), ROW(tile256, 3), ROW(tile256, 4)};
#undef ROW

int64_t sums_bytes(const IntProduct &p) { return p.m * static_cast<int64_t>(sizeof(int32_t)); }

void by_panels(const IntProduct &p, const void *scratch, int64_t low, int64_t high) {
    void *panel = p.m >= kManyRows ? std::aligned_alloc(64, (p.k + 3) / 4 * kWidth * sizeof(int32_t)) : nullptr;
    if (!panel) return by_dots<tiles512>(p, scratch, low, high);
    for (int64_t j = low; j < high; j += kWidth) {
        const int64_t columns = std::min(kWidth, high - j), vectors = (columns + kLanes - 1) / kLanes;
        interleave(p, j, columns, static_cast<int32_t *>(panel));
        for (int64_t i = 0; i < p.m; i += kTall)
            panel_widths[vectors][std::min(kTall, p.m - i)](p, static_cast<const int32_t *>(scratch), static_cast<int32_t *>(panel), i, j, columns);
    }
    std::free(panel);
}
int64_t nothing(const IntProduct &) { return 0; }

} // namespace

const IntLoops int8_vnni = {by_panels, sums_bytes, row_sums, kRows, kWidth};
const IntLoops int8_avx2 = {by_dots<tiles256>, nothing, nullptr, 1, kColumns};

bool int8_vnni_runs() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni");
}

} // namespace pliant
#else
namespace pliant {
const IntLoops int8_vnni = {}, int8_avx2 = {};
bool int8_vnni_runs() { return false; }
} // namespace pliant
#endif
