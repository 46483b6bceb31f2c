// The loops of products of f32 matrices, for the vectors of lanes8.h or lanes16.h: whoever includes this has included one of them.
//
// Without packing where that pays (it mostly does for the sizes of batches and tokens). Tiles keep as many sums as there are registers for
// (8 rows by 48 columns with AVX-512, 6 by 16 with AVX2), with a row of b, and an element of a broadcast from memory. Where the columns of
// b lie dense (a Linear's weight) few rows are multiplied by dot products, which read both operands as they lie; for many rows b is
// transposed into panels first. Every element is summed in an order that depends on the sizes of the whole product alone, not on the tile
// that it is in, so threads do not change it.
#pragma once
#include "matmul.h"
#include <algorithm>

#ifndef MULTIPLY_ADD
#define MULTIPLY_ADD times_plus
#endif

namespace pliant {
namespace {

constexpr int64_t kDepth = 256;   // rows of b that a panel holds: what some rows of a meet stays in the first cache
constexpr int kMostRows = 8, kMostVectors = 8;

// How many rows a tile of so many vectors may have: sums, a row of b and one element of a are in registers. (One row of a needs no row of b.)
constexpr int rows_of(int vectors) { return std::clamp((kRegisters - 1 - vectors) / vectors, 1, kMostRows); }

// Vectors of a panel for many rows: as many sums as there is room for, from as few loads.
constexpr int kVectors = kRegisters == 32 ? 3 : 2, kFlatVectors = kRegisters == 32 ? 4 : 2;

// R rows of a times K rows of b, W vectors wide, of which the last has the lanes `last`. `next`: where the columns of the next panel
// are, if they are not in a cache yet; else 0.
template <int R, int W> WIDE void tile(const Matrix &a, const float *b, int64_t ldb, int64_t k, Mask last, int64_t next, const Result &out) {
    Vector sums[R][W];
    UNROLLED for (int i = 0; i < R; i++) UNROLLED for (int j = 0; j < W; j++) sums[i][j] = zero();
    const float *p = a.data;
    const int64_t row = a.row, column = a.column;
    for (; k > 0; k--, b += ldb, p += column) {
        Vector v[W];
        if (next) UNROLLED for (int j = 0; j < W; j++) ahead(b + next + kLanes * j);
        UNROLLED for (int j = 0; j < W; j++) v[j] = j + 1 < W ? load(b + kLanes * j) : load(last, b + kLanes * j);
        UNROLLED for (int i = 0; i < R; i++) {
            const Vector x = spread(p[i * row]);
            UNROLLED for (int j = 0; j < W; j++) sums[i][j] = MULTIPLY_ADD(x, v[j], sums[i][j]);
        }
    }
    const Vector alpha = spread(out.alpha);
    UNROLLED for (int i = 0; i < R; i++) UNROLLED for (int j = 0; j < W; j++) {
        float *c = out.c + i * out.ldc + kLanes * j;
        const float *more = out.plus ? out.plus + i * out.plus_row + kLanes * j : nullptr;
        const bool whole = j + 1 < W;
        const Vector x = more ? times_plus(sums[i][j], alpha, whole ? load(more) : load(last, more)) : times(sums[i][j], alpha);
        if (whole) store(c, x);
        else store(c, last, x);
    }
}

using Tile = void(const Matrix &, const float *, int64_t, int64_t, Mask, int64_t, const Result &);
template <int R, int W> constexpr Tile *tile_of() {
    if constexpr (R <= rows_of(W)) return tile<R, W>;
    else return nullptr;
}
template <int W> constexpr Tile *kTiles[] = {nullptr,         tile_of<1, W>(), tile_of<2, W>(), tile_of<3, W>(), tile_of<4, W>(),
                                             tile_of<5, W>(), tile_of<6, W>(), tile_of<7, W>(), tile_of<8, W>()};
Tile *const *const kWidths[] = {nullptr, kTiles<1>, kTiles<2>, kTiles<3>, kTiles<4>, kTiles<5>, kTiles<6>, kTiles<7>, kTiles<8>};

// Vectors of a panel for m rows and n columns. Few rows have wide ones: sums that wait for each other's multiplications would leave the
// processor idle.
int vectors_of(bool packed, int64_t m, int64_t n) {
    if (!packed && m <= 4) {
        int most = kMostVectors;
        while (rows_of(most) < m) most--;
        return most;
    }
    const int64_t all = (n + kLanes - 1) / kLanes;
    const bool flat = (all + kFlatVectors - 1) / kFlatVectors < (all + kVectors - 1) / kVectors; // as for heads of 64
    return flat ? kFlatVectors : kVectors;
}

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

template <int R, int C, typename T>
INLINED void dot_step(Vector (&sums)[R][C], const float *a, int64_t lda, const T *b, int64_t ldb, int64_t k, bool cold) {
    const bool whole = k >= kLanes;
    const Mask lanes = first(k);
    Vector v[R];
    UNROLLED for (int i = 0; i < R; i++) v[i] = whole ? load(a + i * lda) : load(lanes, a + i * lda);
    UNROLLED for (int j = 0; j < C; j++) {
        const Vector x = whole ? load(b + j * ldb) : load_some(b + j * ldb, k);
        if (cold) ahead(reinterpret_cast<const float *>(b + (j + C) * ldb));
        UNROLLED for (int i = 0; i < R; i++) sums[i][j] = MULTIPLY_ADD(v[i], x, sums[i][j]);
    }
}

// R rows of a times C columns of b, both dense along k. `cold`: the next columns are not in a cache yet.
template <int R, int C, typename T>
WIDE void dots(const float *a, int64_t lda, const T *b, int64_t ldb, int64_t k, bool cold, const Result &out) {
    Vector sums[R][C];
    UNROLLED for (int i = 0; i < R; i++) UNROLLED for (int j = 0; j < C; j++) sums[i][j] = zero();
    for (; k >= kLanes; k -= kLanes, a += kLanes, b += kLanes) dot_step<R, C, T>(sums, a, lda, b, ldb, kLanes, cold);
    if (k > 0) dot_step<R, C, T>(sums, a, lda, b, ldb, k, cold);
    const __m128 alpha = _mm_set1_ps(out.alpha);
    const Vector none = zero();
    UNROLLED for (int i = 0; i < R; i++) UNROLLED for (int j = 0; j < C; j += 4) {
        float *c = out.c + i * out.ldc + j;
        const __m128 t = totals(sums[i][j], j + 1 < C ? sums[i][j + 1] : none, j + 2 < C ? sums[i][j + 2] : none,
                                j + 3 < C ? sums[i][j + 3] : none);
        const float *more = out.plus ? out.plus + i * out.plus_row + j : nullptr;
        if (j + 4 <= C) {
            _mm_storeu_ps(c, more ? _mm_fmadd_ps(t, alpha, _mm_loadu_ps(more)) : _mm_mul_ps(t, alpha));
        } else {
            const __m128i m = _mm_cmpgt_epi32(_mm_set1_epi32(C - j), _mm_setr_epi32(0, 1, 2, 3));
            _mm_maskstore_ps(c, m, more ? _mm_fmadd_ps(t, alpha, _mm_maskload_ps(more, m)) : _mm_mul_ps(t, alpha));
        }
    }
}

template <typename T> using Dots = void(const float *, int64_t, const T *, int64_t, int64_t, bool, const Result &);
template <int R, int C, typename T> constexpr Dots<T> *dots_of() {
    if constexpr (R <= kDotRows && C <= kDotColumns) return dots<R, C, T>;
    else return nullptr;
}
template <int R, typename T> constexpr Dots<T> *kDots[] = {nullptr,            dots_of<R, 1, T>(), dots_of<R, 2, T>(), dots_of<R, 3, T>(),
                                                           dots_of<R, 4, T>(), dots_of<R, 5, T>(), dots_of<R, 6, T>()};
template <typename T> Dots<T> *const *const kDotTable[] = {nullptr, kDots<1, T>, kDots<2, T>, kDots<3, T>, kDots<4, T>};

// `b`: n columns, `ldb` apart.
template <typename T>
void by_dots(const Matrix &a, const T *b, int64_t ldb, const Result &out, int64_t m, int64_t n, int64_t k) {
    constexpr int64_t kBlock = 64; // rows of a that stay in a cache while all of b goes by
    constexpr int64_t kLong = kDepth * kLanes; // products of a sum; the others join it, as those of the panels do
    for (int64_t low = 0; low < m; low += kBlock) {
        const int64_t high = std::min(m, low + kBlock);
        for (int64_t d = 0; d < k; d += kLong) {
            for (int64_t j = 0; j < n; j += kDotColumns) {
                const int64_t columns = std::min<int64_t>(kDotColumns, n - j);
                for (int64_t i = low; i < high; i += kDotRows) {
                    Dots<T> *f = kDotTable<T>[std::min<int64_t>(kDotRows, high - i)][columns];
                    Result to = out.part(i, j);
                    if (d > 0) to.plus = to.c, to.plus_row = to.ldc;
                    f(a.data + i * a.row + d, a.row, b + j * ldb + d, ldb, std::min(kLong, k - d), i == low && j + kDotColumns < n, to);
                }
            }
        }
    }
}

// k rows and n columns of b into a panel, rows of `width`; columns up to a whole vector are 0.
WIDE void pack(const Matrix &b, float *panel, int64_t width, int64_t k, int64_t n) {
    for (int64_t j = 0; j < n; j += kLanes) {
        const Mask columns = first(n - j);
        if (b.column == 1) {
            for (int64_t i = 0; i < k; i++) {
                const float *row = b.data + i * b.row + j;
                store(panel + i * width + j, load(columns, row));
                ahead(row + width);
            }
            continue;
        }
        for (int64_t i = 0; i < k; i += kLanes) {
            Vector r[kLanes];
            const Mask rows = first(k - i);
            UNROLLED for (int q = 0; q < kLanes; q++) r[q] = q < n - j ? load(rows, b.data + (j + q) * b.column + i) : zero();
            UNROLLED for (int q = 0; q < kLanes; q++) ahead(b.data + (j + kLanes + q) * b.column + i);
            transpose(r);
            UNROLLED for (int q = 0; q < kLanes; q++)
                if (i + q < k) store(panel + (i + q) * width + j, r[q]);
        }
    }
}

WIDE void by_tiles(bool packed, const Matrix &a, const Matrix &b, const Result &out, int64_t m, int64_t n, int64_t k) {
    alignas(64) float panel[kDepth * kLanes * kFlatVectors];
    const int64_t width = kLanes * vectors_of(packed, m, n);
    for (int64_t j = 0; j < n; j += width) {
        const int64_t columns = std::min(width, n - j), vectors = (columns + kLanes - 1) / kLanes;
        const int64_t tall = rows_of(static_cast<int>(vectors));
        const Mask last = first(columns - kLanes * (vectors - 1));
        for (int64_t d = 0; d < k; d += kDepth) {
            const int64_t depth = std::min(kDepth, k - d);
            const Matrix here = b.part(d, j);
            if (packed) pack(here, panel, width, depth, columns);
            const float *rows = packed ? panel : here.data;
            const int64_t ldb = packed ? width : here.row;
            for (int64_t i = 0; i < m; i += tall) {
                Result to = out.part(i, j);
                if (d > 0) to.plus = to.c, to.plus_row = to.ldc; // the sums so far
                kWidths[vectors][std::min(tall, m - i)](a.part(i, d), rows, ldb, depth, last, !packed && i == 0 ? width : 0, to);
            }
        }
    }
}

Way way_of(const Matrix &a, const Matrix &b, int64_t m, int64_t n, int64_t k) {
    // Rows of b a multiple of a page apart meet in one set of the cache: worth a copy if it is read again and again.
    if (b.column == 1) return m > 4 * kMostRows && b.row % 1024 == 0 && k > kLanes ? Way::Packed : Way::Columns;
    const bool dense = a.column == 1 || k == 1;
    return dense && (n <= kDotColumns || m <= (k >= 192 ? 48 : 24)) ? Way::Dots : Way::Packed;
}

void multiply(Way way, const Matrix &a, const Matrix &b, const Result &out, int64_t m, int64_t n, int64_t k) {
    if (way == Way::Dots) by_dots(a, b.data, b.column, out, m, n, k);
    else by_tiles(way == Way::Packed, a, b, out, m, n, k);
}

} // namespace
} // namespace pliant
