// Products of f32 matrices with 512-bit vectors, without packing where that pays (it mostly does for the sizes of batches and tokens).
//
// MKL, which PyTorch links, computes with half of the vector on processors that are not Intel's: these loops take a half to a third of its
// time there. Tiles are of 8 rows and 48 columns: 24 sums in registers, a row of b in three more, an element of a broadcast from memory.
// Where the columns of b lie dense (a Linear's weight) few rows are multiplied by dot products of 4 x 6, which read both operands as they
// lie; for many rows b is transposed into panels first. Every element is summed in an order that depends on the sizes of the whole
// product alone, so threads do not change it.
#include "matmul.h"
#include "vectors.h"
#include <algorithm>

#if defined(__x86_64__)
namespace pliant {
namespace {

constexpr int64_t kDepth = 256;   // rows of b that a panel holds: what 8 rows of a meet stays in the first cache
constexpr int64_t kTileRows = 8;
constexpr int64_t kDotRows = 4, kDotColumns = 6;

// R rows of a times K rows of b, W vectors wide, of which the last has the lanes `last`. `cold`: the next panel is not in a cache yet.
template <int R, int W> WIDE void tile(const Matrix &a, const float *b, int64_t ldb, int64_t k, __mmask16 last, bool cold, const Result &out) {
    Vector sums[R][W];
    UNROLLED for (int i = 0; i < R; i++) UNROLLED for (int j = 0; j < W; j++) sums[i][j] = _mm512_setzero_ps();
    const float *p = a.data;
    const int64_t row = a.row, column = a.column;
    for (; k > 0; k--, b += ldb, p += column) {
        Vector v[W];
        if (cold) UNROLLED for (int j = 0; j < W; j++) ahead(b + kPanel + kLanes * j);
        UNROLLED for (int j = 0; j < W; j++) v[j] = j + 1 < W ? _mm512_loadu_ps(b + kLanes * j) : _mm512_maskz_loadu_ps(last, b + kLanes * j);
        UNROLLED for (int i = 0; i < R; i++) {
            const Vector x = _mm512_set1_ps(p[i * row]);
            UNROLLED for (int j = 0; j < W; j++) sums[i][j] = _mm512_fmadd_ps(x, v[j], sums[i][j]);
        }
    }
    const Vector alpha = _mm512_set1_ps(out.alpha);
    UNROLLED for (int i = 0; i < R; i++) UNROLLED for (int j = 0; j < W; j++) {
        float *c = out.c + i * out.ldc + kLanes * j;
        const __mmask16 m = j + 1 < W ? 0xFFFF : last;
        const float *plus = out.plus ? out.plus + i * out.plus_row + kLanes * j : nullptr;
        const Vector x = plus ? _mm512_fmadd_ps(sums[i][j], alpha, _mm512_maskz_loadu_ps(m, plus)) : _mm512_mul_ps(sums[i][j], alpha);
        _mm512_mask_storeu_ps(c, m, x);
    }
}

using Tile = void(const Matrix &, const float *, int64_t, int64_t, __mmask16, bool, const Result &);
template <int W>
constexpr Tile *kTiles[kTileRows + 1] = {nullptr,    tile<1, W>, tile<2, W>, tile<3, W>, tile<4, W>,
                                         tile<5, W>, tile<6, W>, tile<7, W>, tile<8, W>};
Tile *const *const kWidths[] = {nullptr, kTiles<1>, kTiles<2>, kTiles<3>};

INLINED __m256 folded(Vector v) { return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)); }

INLINED __m256d as_pairs(__m256 v) { return _mm256_castps_pd(v); }

// The sums of the lanes of four vectors.
INLINED __m128 totals(Vector a, Vector b, Vector c, Vector d) {
    const __m256 a8 = folded(a), b8 = folded(b), c8 = folded(c), d8 = folded(d);
    const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a8, b8), _mm256_unpackhi_ps(a8, b8));
    const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c8, d8), _mm256_unpackhi_ps(c8, d8));
    const __m256 low = _mm256_castpd_ps(_mm256_unpacklo_pd(as_pairs(ab), as_pairs(cd)));
    const __m256 high = _mm256_castpd_ps(_mm256_unpackhi_pd(as_pairs(ab), as_pairs(cd)));
    const __m256 s = _mm256_add_ps(low, high);
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

template <int R, int C>
INLINED void dot_step(Vector (&sums)[R][C], const float *a, int64_t lda, const float *b, int64_t ldb, __mmask16 lanes, bool whole, bool cold) {
    Vector v[R];
    UNROLLED for (int i = 0; i < R; i++) v[i] = whole ? _mm512_loadu_ps(a + i * lda) : _mm512_maskz_loadu_ps(lanes, a + i * lda);
    UNROLLED for (int j = 0; j < C; j++) {
        const Vector x = whole ? _mm512_loadu_ps(b + j * ldb) : _mm512_maskz_loadu_ps(lanes, b + j * ldb);
        if (cold) ahead(b + (j + C) * ldb);
        UNROLLED for (int i = 0; i < R; i++) sums[i][j] = _mm512_fmadd_ps(v[i], x, sums[i][j]);
    }
}

// R rows of a times C columns of b, both dense along k. `cold`: the next columns are not in a cache yet.
template <int R, int C> WIDE void dots(const float *a, int64_t lda, const float *b, int64_t ldb, int64_t k, bool cold, const Result &out) {
    Vector sums[R][C];
    UNROLLED for (int i = 0; i < R; i++) UNROLLED for (int j = 0; j < C; j++) sums[i][j] = _mm512_setzero_ps();
    for (; k >= kLanes; k -= kLanes, a += kLanes, b += kLanes) dot_step<R, C>(sums, a, lda, b, ldb, 0, true, cold);
    if (k > 0) dot_step<R, C>(sums, a, lda, b, ldb, first(k), false, cold);
    const __m128 alpha = _mm_set1_ps(out.alpha);
    const Vector none = _mm512_setzero_ps();
    UNROLLED for (int i = 0; i < R; i++) UNROLLED for (int j = 0; j < C; j += 4) {
        float *c = out.c + i * out.ldc + j;
        const __mmask8 m = j + 4 <= C ? 0xF : (1 << (C - j)) - 1;
        const __m128 t = totals(sums[i][j], j + 1 < C ? sums[i][j + 1] : none, j + 2 < C ? sums[i][j + 2] : none,
                                j + 3 < C ? sums[i][j + 3] : none);
        const float *plus = out.plus ? out.plus + i * out.plus_row + j : nullptr;
        _mm_mask_storeu_ps(c, m, plus ? _mm_fmadd_ps(t, alpha, _mm_maskz_loadu_ps(m, plus)) : _mm_mul_ps(t, alpha));
    }
}

using Dots = void(const float *, int64_t, const float *, int64_t, int64_t, bool, const Result &);
template <int R> constexpr Dots *kDots[kDotColumns + 1] = {nullptr, dots<R, 1>, dots<R, 2>, dots<R, 3>, dots<R, 4>, dots<R, 5>, dots<R, 6>};
Dots *const *const kDotTable[] = {nullptr, kDots<1>, kDots<2>, kDots<3>, kDots<4>};

void by_dots(const Matrix &a, const Matrix &b, const Result &out, int64_t m, int64_t n, int64_t k) {
    constexpr int64_t kBlock = 64; // rows of a that stay in a cache while all of b goes by
    for (int64_t low = 0; low < m; low += kBlock) {
        const int64_t high = std::min(m, low + kBlock);
        for (int64_t j = 0; j < n; j += kDotColumns) {
            const int64_t columns = std::min(kDotColumns, n - j);
            for (int64_t i = low; i < high; i += kDotRows) {
                Dots *f = kDotTable[std::min(kDotRows, high - i)][columns];
                f(a.data + i * a.row, a.row, b.data + j * b.column, b.column, k, i == low && j + kDotColumns < n, out.part(i, j));
            }
        }
    }
}

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

// k rows and n columns of b into a panel, rows of kPanel; columns up to a whole vector are 0.
WIDE void pack(const Matrix &b, float *panel, int64_t k, int64_t n) {
    for (int64_t j = 0; j < n; j += kLanes) {
        const __mmask16 columns = first(n - j);
        if (b.column == 1) {
            for (int64_t i = 0; i < k; i++) {
                const float *row = b.data + i * b.row + j;
                _mm512_store_ps(panel + i * kPanel + j, _mm512_maskz_loadu_ps(columns, row));
                ahead(row + kPanel);
            }
            continue;
        }
        for (int64_t i = 0; i < k; i += kLanes) {
            Vector r[16];
            const __mmask16 rows = first(k - i);
            UNROLLED for (int q = 0; q < 16; q++)
                r[q] = columns >> q & 1 ? _mm512_maskz_loadu_ps(rows, b.data + (j + q) * b.column + i) : _mm512_setzero_ps();
            UNROLLED for (int q = 0; q < 16; q++) ahead(b.data + (j + kLanes + q) * b.column + i);
            transpose(r);
            UNROLLED for (int q = 0; q < 16; q++)
                if (i + q < k) _mm512_store_ps(panel + (i + q) * kPanel + j, r[q]);
        }
    }
}

WIDE void by_tiles(bool packed, const Matrix &a, const Matrix &b, const Result &out, int64_t m, int64_t n, int64_t k) {
    alignas(64) float panel[kDepth * kPanel];
    for (int64_t j = 0; j < n; j += kPanel) {
        const int64_t columns = std::min(kPanel, n - j), vectors = (columns + kLanes - 1) / kLanes;
        const __mmask16 last = first(columns - kLanes * (vectors - 1));
        for (int64_t d = 0; d < k; d += kDepth) {
            const int64_t depth = std::min(kDepth, k - d);
            const Matrix here = b.part(d, j);
            if (packed) pack(here, panel, depth, columns);
            const float *rows = packed ? panel : here.data;
            const int64_t ldb = packed ? kPanel : here.row;
            for (int64_t i = 0; i < m; i += kTileRows) {
                Result to = out.part(i, j);
                if (d > 0) to.plus = to.c, to.plus_row = to.ldc; // the sums so far
                kWidths[vectors][std::min(kTileRows, m - i)](a.part(i, d), rows, ldb, depth, last, !packed && i == 0, to);
            }
        }
    }
}

} // namespace

bool matmul_runs() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("fma");
}

bool matmul_is_best() { return matmul_runs() && !__builtin_cpu_is("intel"); }

Way matmul_way(const Matrix &a, const Matrix &b, int64_t m, int64_t n, int64_t k) {
    // Rows of b a multiple of a page apart meet in one set of the cache: worth a copy if it is read again and again.
    if (b.column == 1) return m > 4 * kTileRows && b.row % 1024 == 0 && k > kLanes ? Way::Packed : Way::Columns;
    const bool dense = a.column == 1 || k == 1;
    return dense && (n <= kDotColumns || m <= (k >= 192 ? 48 : 24)) ? Way::Dots : Way::Packed;
}

void matmul(Way way, const Matrix &a, const Matrix &b, const Result &out, int64_t m, int64_t n, int64_t k) {
    if (way == Way::Dots) by_dots(a, b, out, m, n, k);
    else by_tiles(way == Way::Packed, a, b, out, m, n, k);
}

} // namespace pliant

#else // no vectors that are known here: the BLAS of PyTorch does everything

namespace pliant {
bool matmul_runs() { return false; }
bool matmul_is_best() { return false; }
Way matmul_way(const Matrix &, const Matrix &, int64_t, int64_t, int64_t) { return Way::Packed; }
void matmul(Way, const Matrix &, const Matrix &, const Result &, int64_t, int64_t, int64_t) {}
} // namespace pliant
#endif
