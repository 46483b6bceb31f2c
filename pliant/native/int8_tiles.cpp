// Products of int8 with the processor's tiles (AMX): 16 columns of b by 16 rows of a by 64 bytes an instruction.
//
// The result is computed transposed: then b, the weight, is read as it lies, and a, which is small and new in every call, is the operand
// that has to be interleaved (`interleave`). 16 x 16 sums are transposed on their way out.
#include "int8.h"
#include <algorithm>

#if defined(__x86_64__) && defined(__linux__)
#include "lanes16.h"
#include "tiles.h"

namespace pliant {
namespace {

constexpr int64_t kSide = 16, kDepth = 64, kTile = kSide * kDepth; // rows, bytes of a row, bytes of a tile

int64_t blocks(int64_t n, int64_t of) { return (n + of - 1) / of; }
int64_t bytes_of(const IntProduct &p) { return blocks(p.m, kSide) * blocks(p.k, kDepth) * kTile; }

INLINED __mmask64 first_bytes(int64_t n) { return n >= 64 ? ~0ull : n <= 0 ? 0 : (1ull << n) - 1; }

// Tile [row block][block of k] of a: row q of it holds bytes 4q to 4q + 3 of sixteen rows. What is beyond the end is 0.
WIDE void interleave(const IntProduct &p, void *scratch, int64_t low, int64_t high) {
    const int64_t depth = blocks(p.k, kDepth);
    auto *to = static_cast<int8_t *>(scratch) + low * depth * kTile;
    for (int64_t i = low * kSide; i < high * kSide; i += kSide)
        for (int64_t k = 0; k < p.k; k += kDepth, to += kTile) {
            const __mmask64 m = first_bytes(p.k - k);
            Vector r[kSide];
            UNROLLED for (int q = 0; q < kSide; q++)
                r[q] = i + q < p.m ? _mm512_castsi512_ps(_mm512_maskz_loadu_epi8(m, p.a + (i + q) * p.lda + k)) : zero();
            transpose(r);
            UNROLLED for (int q = 0; q < kSide; q++) _mm512_store_ps(to + q * 64, r[q]);
        }
}

// Sixteen columns of b.
struct Columns {
    const int8_t *data;
    int64_t ldb, k, columns;
    struct At {
        const int8_t *data;
        int64_t step;
    };
    // The tile from `k` on: as it lies, or, where it goes beyond the end, filled up in `room`.
    WIDE At at(int64_t from, int8_t *room) const {
        if (columns == kSide && from + kDepth <= k) return {data + from, ldb};
        for (int64_t q = 0; q < kSide; q++)
            _mm512_store_si512(room + q * kDepth,
                               q < columns ? _mm512_maskz_loadu_epi8(first_bytes(k - from), data + q * ldb + from) : _mm512_setzero_si512());
        return {room, kDepth};
    }
};

// The sums of a tile, which has a row for each column of the result.
WIDE void put(const IntProduct &p, const float *sums, int64_t i, int64_t j) {
    Vector r[kSide];
    UNROLLED for (int q = 0; q < kSide; q++) r[q] = _mm512_load_ps(sums + q * kSide);
    transpose(r);
    const Mask columns = first(p.n - j);
    float *to = reinterpret_cast<float *>(p.c) + i * p.n + j;
    const int64_t rows = p.m - i;
    UNROLLED for (int q = 0; q < kSide; q++)
        if (q < rows) store(to + q * p.n, columns, r[q]);
}

// 32 columns, 16 or 32 rows.
template <bool two> TILES void square(const IntProduct &p, const Columns &x, const Columns &y, const int8_t *a, int64_t i, int64_t j) {
    alignas(64) int8_t room[2][kTile];
    alignas(64) float sums[kSide * kSide];
    const int64_t depth = blocks(p.k, kDepth);
    _tile_zero(0);
    _tile_zero(1);
    if (two) {
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t q = 0; q < depth; q++) {
        const auto left = x.at(q * kDepth, room[0]), right = y.at(q * kDepth, room[1]);
        _tile_loadd(4, left.data, left.step);
        _tile_loadd(6, a + q * kTile, 64);
        _tile_loadd(5, right.data, right.step);
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 5, 6);
        if (two) {
            _tile_loadd(7, a + (depth + q) * kTile, 64);
            _tile_dpbssd(2, 4, 7);
            _tile_dpbssd(3, 5, 7);
        }
    }
    _tile_stored(0, sums, 64);
    put(p, sums, i, j);
    if (y.columns > 0) {
        _tile_stored(1, sums, 64);
        put(p, sums, i, j + kSide);
    }
    if (two) {
        _tile_stored(2, sums, 64);
        put(p, sums, i + kSide, j);
        if (y.columns > 0) {
            _tile_stored(3, sums, 64);
            put(p, sums, i + kSide, j + kSide);
        }
    }
}

// 64 columns, 16 rows: as many sums as keep the processor from waiting for one of them.
TILES void wide(const IntProduct &p, const Columns (&x)[4], const int8_t *a, int64_t j) {
    alignas(64) float sums[kSide * kSide];
    const int64_t depth = blocks(p.k, kDepth);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t q = 0; q < depth; q++) {
        const int64_t k = q * kDepth;
        _tile_loadd(4, a + q * kTile, 64);
        _tile_loadd(5, x[0].data + k, p.ldb);
        _tile_loadd(6, x[1].data + k, p.ldb);
        _tile_loadd(7, x[2].data + k, p.ldb);
        _tile_dpbssd(0, 5, 4);
        _tile_loadd(5, x[3].data + k, p.ldb);
        _tile_dpbssd(1, 6, 4);
        _tile_dpbssd(2, 7, 4);
        _tile_dpbssd(3, 5, 4);
    }
    _tile_stored(0, sums, 64);
    put(p, sums, 0, j);
    _tile_stored(1, sums, 64);
    put(p, sums, 0, j + kSide);
    _tile_stored(2, sums, 64);
    put(p, sums, 0, j + 2 * kSide);
    _tile_stored(3, sums, 64);
    put(p, sums, 0, j + 3 * kSide);
}

TILES void by_tiles(const IntProduct &p, const void *scratch, int64_t low, int64_t high) {
    const auto *a = static_cast<const int8_t *>(scratch);
    const int64_t depth = blocks(p.k, kDepth), rows = blocks(p.m, kSide);
    const TileConfig config;
    _tile_loadconfig(&config);
    const auto columns = [&](int64_t j) { return Columns{p.b + j * p.ldb, p.ldb, p.k, std::clamp<int64_t>(high - j, 0, kSide)}; };
    int64_t j = low;
    if (rows == 1 && p.k % kDepth == 0)
        for (; j + 4 * kSide <= high; j += 4 * kSide) wide(p, {columns(j), columns(j + kSide), columns(j + 2 * kSide), columns(j + 3 * kSide)}, a, j);
    for (; j < high; j += 2 * kSide) {
        const Columns x = columns(j), y = columns(j + kSide);
        for (int64_t i = 0; i < rows; i += 2) {
            const int8_t *at = a + i * depth * kTile;
            if (i + 1 < rows) square<true>(p, x, y, at, i * kSide, j);
            else square<false>(p, x, y, at, i * kSide, j);
        }
    }
    _tile_release();
}

} // namespace

const IntLoops int8_tiles = {by_tiles, bytes_of, interleave, kSide, 4 * kSide};

bool int8_tiles_run() { return tiles_are_here(25) && tiles_are_ours(); }

} // namespace pliant
#else
namespace pliant {
const IntLoops int8_tiles = {};
bool int8_tiles_run() { return false; }
} // namespace pliant
#endif
