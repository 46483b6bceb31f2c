// The products of int8_weights.cpp with the processor's tiles of bf16: 16 columns by 16 rows by 32 an instruction.
//
// As in int8_tiles.cpp the result is computed transposed. The instruction takes denormals for 0, so what is lost of x is less than 1e-38.
#include "int8.h"

#if defined(__x86_64__) && defined(__linux__)
#include "lanes16.h"
#include "tiles.h"

namespace pliant {
namespace {

constexpr int64_t kSide = 16, kDepth = 32, kTile = kSide * 64, kParts = 3; // rows; k of a tile; its bytes; parts of a float

INLINED __m512i ordered_halves() { // the upper halves of 32 floats
    alignas(64) static const uint16_t at[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                                33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    return _mm512_load_si512(at);
}

// The upper bits of what is left of x, and what then is left. Of infinities and NaNs nothing is.
INLINED __m512i upper(Vector &x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __mmask16 finite = _mm512_cmp_ps_mask(_mm512_abs_ps(x), spread(__builtin_inff()), _CMP_LT_OQ);
    const __m512i top = _mm512_and_si512(_mm512_mask_or_epi32(bits, nan, bits, _mm512_set1_epi32(0x400000)), _mm512_set1_epi32(0xFFFF0000));
    x = _mm512_maskz_sub_ps(finite, x, _mm512_castsi512_ps(top));
    return top;
}

} // namespace

int64_t bf16_bytes(const FloatProduct &p) { return pieces(p.m, kSide) * pieces(p.k, kDepth) * kTile * kParts; }
int64_t bf16_room(const FloatProduct &p) { return 2 * pieces(p.k, kDepth) * kTile; }

// Tiles [row block][block of k][part] of x: row q holds the pairs 2q, 2q + 1 of sixteen rows. What is beyond the end is 0.
WIDE void bf16_prepare(const FloatProduct &p, void *scratch, int64_t low, int64_t high) {
    const int64_t depth = pieces(p.k, kDepth);
    auto *to = static_cast<float *>(scratch) + low * depth * kParts * kTile / 4;
    const __m512i order = ordered_halves();
    for (int64_t i = low * kSide; i < high * kSide; i += kSide)
        for (int64_t k = 0; k < p.k; k += kDepth, to += kParts * kTile / 4) {
            const Mask first_half = first(p.k - k), second_half = p.k - k > kLanes ? first(p.k - k - kLanes) : Mask{0};
            Vector parts[kParts][kSide];
            UNROLLED for (int q = 0; q < kSide; q++) {
                const float *x = p.x + (i + q) * p.ldx + k;
                Vector a = i + q < p.m ? load(first_half, x) : zero(), b = i + q < p.m ? load(second_half, x + kLanes) : zero();
                UNROLLED for (int part = 0; part < kParts; part++) {
                    const __m512i left = upper(a), right = upper(b);
                    parts[part][q] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(left, order, right));
                }
            }
            for (int part = 0; part < kParts; part++) {
                transpose(parts[part]);
                UNROLLED for (int q = 0; q < kSide; q++) store(to + part * kTile / 4 + q * kLanes, parts[part][q]);
            }
        }
}

namespace {

// Sixteen columns of weights as bf16, tile by tile.
WIDE void convert(const FloatProduct &p, int64_t j, uint16_t *to) {
    const __m512i order = ordered_halves();
    for (int64_t k = 0; k < p.k; k += kDepth, to += kTile / 2)
        for (int64_t q = 0; q < kSide; q++) {
            const auto here = static_cast<__mmask32>(j + q >= p.n ? 0 : p.k - k >= kDepth ? ~0u : (1u << (p.k - k)) - 1);
            const __m256i bytes = _mm256_maskz_loadu_epi8(here, p.weight + (j + q) * p.ldw + k);
            const __m512i a = _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(bytes))));
            const __m512i b = _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(bytes, 1))));
            _mm512_store_si512(to + q * kDepth, _mm512_permutex2var_epi16(a, order, b));
        }
}

WIDE void put(const FloatProduct &p, const float *sums, int64_t count, int64_t i, int64_t j) {
    if (j >= p.n) return;
    Vector r[kSide];
    UNROLLED for (int q = 0; q < kSide; q++) r[q] = load(sums + q * kSide);
    for (int64_t c = 1; c < count; c++) UNROLLED for (int q = 0; q < kSide; q++) r[q] = plus(r[q], load(sums + c * kTile / 4 + q * kSide));
    transpose(r);
    const Mask columns = first(p.n - j);
    float *to = p.out + i * p.n + j;
    const int64_t rows = p.m - i;
    UNROLLED for (int q = 0; q < kSide; q++)
        if (q < rows) store(to + q * p.n, columns, r[q]);
}

// 32 columns, 32 rows.
TILES void square(const FloatProduct &p, const uint16_t *x, const uint16_t *y, const char *a, int64_t i, int64_t j) {
    alignas(64) float sums[kSide * kSide];
    const int64_t depth = pieces(p.k, kDepth);
    const char *b = a + depth * kParts * kTile;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t k = 0; k < depth; k++) {
        _tile_loadd(4, x + k * kTile / 2, 64);
        _tile_loadd(5, y + k * kTile / 2, 64);
        for (int64_t part = kParts - 1; part >= 0; part--) {
            const int64_t at = (k * kParts + part) * kTile;
            _tile_loadd(6, a + at, 64);
            _tile_loadd(7, b + at, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 5, 6);
            _tile_dpbf16ps(2, 4, 7);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, sums, 64);
    put(p, sums, 1, i, j);
    _tile_stored(1, sums, 64);
    put(p, sums, 1, i, j + kSide);
    _tile_stored(2, sums, 64);
    put(p, sums, 1, i + kSide, j);
    _tile_stored(3, sums, 64);
    put(p, sums, 1, i + kSide, j + kSide);
}

// 32 columns, 16 rows: each part has sums of its own, so that none waits for another.
TILES void narrow(const FloatProduct &p, const uint16_t *x, const uint16_t *y, const char *a, int64_t i, int64_t j) {
    alignas(64) float sums[kParts * kSide * kSide];
    const int64_t depth = pieces(p.k, kDepth);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    for (int64_t k = 0; k < depth; k++) {
        const char *at = a + k * kParts * kTile;
        _tile_loadd(6, x + k * kTile / 2, 64);
        _tile_loadd(7, at, 64);
        _tile_dpbf16ps(2, 6, 7);
        _tile_loadd(7, at + kTile, 64);
        _tile_dpbf16ps(1, 6, 7);
        _tile_loadd(7, at + 2 * kTile, 64);
        _tile_dpbf16ps(0, 6, 7);
        _tile_loadd(6, y + k * kTile / 2, 64);
        _tile_dpbf16ps(3, 6, 7);
        _tile_loadd(7, at + kTile, 64);
        _tile_dpbf16ps(4, 6, 7);
        _tile_loadd(7, at, 64);
        _tile_dpbf16ps(5, 6, 7);
    }
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + kTile / 4, 64);
    _tile_stored(2, sums + 2 * kTile / 4, 64);
    put(p, sums, kParts, i, j);
    _tile_stored(3, sums, 64);
    _tile_stored(4, sums + kTile / 4, 64);
    _tile_stored(5, sums + 2 * kTile / 4, 64);
    put(p, sums, kParts, i, j + kSide);
}

} // namespace

TILES void bf16_columns(const FloatProduct &p, const void *scratch, void *room, int64_t low, int64_t high) {
    const auto *a = static_cast<const char *>(scratch);
    auto *x = static_cast<uint16_t *>(room);
    const int64_t depth = pieces(p.k, kDepth), rows = pieces(p.m, kSide);
    uint16_t *y = x + depth * kTile / 2;
    const TileConfig config;
    _tile_loadconfig(&config);
    for (int64_t j = low; j < high; j += 2 * kSide) {
        convert(p, j, x);
        convert(p, j + kSide, y);
        int64_t i = 0;
        for (; i + 1 < rows; i += 2) square(p, x, y, a + i * depth * kParts * kTile, i * kSide, j);
        if (i < rows) narrow(p, x, y, a + i * depth * kParts * kTile, i * kSide, j);
    }
    _tile_release();
}

bool bf16_tiles_run() { return tiles_are_here(22) && tiles_are_ours(); }

} // namespace pliant
#else
namespace pliant {
bool bf16_tiles_run() { return false; }
int64_t bf16_bytes(const FloatProduct &) { return 0; }
int64_t bf16_room(const FloatProduct &) { return 0; }
void bf16_prepare(const FloatProduct &, void *, int64_t, int64_t) {}
void bf16_columns(const FloatProduct &, const void *, void *, int64_t, int64_t) {}
} // namespace pliant
#endif
