// Convolutions of f32, row-major, inside segments: 1 to 3 dims, strides, padding, dilation, groups, for sizes that only a run knows.
//
// The input of a picture is laid out so that an element of the kernel (a tap) sees the outputs' pixels one after the other: with its
// padding, and apart by the phase of the stride. Counted along such planes, borders between rows included, pixel q of the output reads
// element q + offset(tap) of them. So a convolution is a product of matrices whose second one is never made: 8 features by 48 pixels are
// summed in registers as in matmul_loops.h, and what falls on a border is left out when they are stored. A kernel of one element without
// strides, and whatever else needs no padding, reads the input where it lies.
#include "conv.h"
#include "routines.h"
#include "matmul.h"
#include "pool.h"
#include "shared.h"
#include "vectors.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
namespace pliant {
namespace {

constexpr int32_t kNonsense = 1;
constexpr int64_t kTileRows = 8, kTileVectors = 3;
constexpr int64_t kWeights = 64 << 10;   // of a block of features: what stays in the second cache while the pixels go by
constexpr int64_t kSummed = 256;         // products that are summed one by one: sums of sums lose fewer digits
constexpr int64_t kFewPixels = 6;        // of a vector: fewer are left to dot products
constexpr int64_t kMostSources = kPanel + 1;
constexpr int64_t kMostLaid = 16 << 20;  // floats of pictures that are laid out at once
constexpr double kGrain = 1 << 20;       // multiplications that are worth a thread

// One dim as the planes have it.
struct Axis {
    int64_t phases = 0;  // that a tap reads
    int64_t length = 0;  // of a plane
    int64_t *phase, *at; // of each tap: the number of its phase, and how far into the plane
    int64_t *start;      // of each phase: its first element in the padded input
    int64_t *low, *high; // of each phase: the elements of a plane that are no padding
};

// Pixels that lie in a row in the output: lanes of a vector of sums, and where the first of them goes.
struct Piece {
    int32_t vector;
    uint16_t lanes;
    int64_t place;
};

// Lanes of a vector of a picture's planes.
struct Source {
    int64_t offset;
    uint16_t lanes;
};

struct Work {
    const Convolution *c;
    Axis axis[kDims];
    bool in_place = false; // the input itself has the layout of the planes
    bool packed = false;   // panels of pixels without borders, of all pictures in a row
    int64_t channel = 0;   // from the planes of a channel to those of the next
    int64_t picture = 0;   // and of a picture (of a group)
    int64_t length = 0;    // pixels along a plane, borders included
    int64_t vectors = 0, panels = 0, block = 0, blocks = 0; // block: features
    int64_t rest = 0;                 // pixels at the end that are left to dot products
    const int64_t *offsets = nullptr; // of each column of the weight
    const int64_t *steps = nullptr;   // and in a panel
    const uint16_t *masks = nullptr;  // of each vector along a plane: the pixels that are no border
    const int64_t *places = nullptr;  // and where they go
    int32_t status = 0;
    int64_t units() const { return c->groups * blocks * (packed ? panels + (rest > 0) : c->batch * panels); }
};

// R features by W vectors of pixels. `cold`: what follows along the planes is not in a cache yet.
template <int R, int W>
WIDE void tile(const float *w, int64_t depth, const float *x, const int64_t *offsets, __mmask16 last, bool cold, const float *bias,
               float *out, int64_t plane, const Piece *piece) {
    Vector sums[R][W];
    alignas(64) float totals[R * W * kLanes]; // of the blocks before, where there are several
    UNROLLED for (int i = 0; i < R; i++) UNROLLED for (int j = 0; j < W; j++) sums[i][j] = bias ? _mm512_set1_ps(bias[i]) : _mm512_setzero_ps();
    for (int64_t k = 0, blocks = 0;; blocks++) {
        for (const int64_t end = std::min(k + kSummed, depth); k < end; k++) {
            const float *p = x + offsets[k];
            Vector v[W];
            if (cold) UNROLLED for (int j = 0; j < W; j++) ahead(p + kLanes * (W + j));
            UNROLLED for (int j = 0; j < W; j++) v[j] = j + 1 < W ? _mm512_loadu_ps(p + kLanes * j) : _mm512_maskz_loadu_ps(last, p + kLanes * j);
            UNROLLED for (int i = 0; i < R; i++) {
                const Vector a = _mm512_set1_ps(w[i * depth + k]);
                UNROLLED for (int j = 0; j < W; j++) sums[i][j] = _mm512_fmadd_ps(a, v[j], sums[i][j]);
            }
        }
        if (blocks > 0)
            UNROLLED for (int i = 0; i < R; i++) UNROLLED for (int j = 0; j < W; j++)
                sums[i][j] = _mm512_add_ps(sums[i][j], _mm512_load_ps(totals + (i * W + j) * kLanes));
        if (k >= depth) break;
        UNROLLED for (int i = 0; i < R; i++) UNROLLED for (int j = 0; j < W; j++) {
            _mm512_store_ps(totals + (i * W + j) * kLanes, sums[i][j]);
            sums[i][j] = _mm512_setzero_ps();
        }
    }
    UNROLLED for (int j = 0; j < W; j++) for (; piece->vector == j; piece++) {
        const __mmask16 dense = first(__builtin_popcount(piece->lanes));
        float *to = out + piece->place;
        if (piece->lanes == dense) UNROLLED for (int i = 0; i < R; i++) _mm512_mask_storeu_ps(to + i * plane, dense, sums[i][j]);
        else UNROLLED for (int i = 0; i < R; i++) _mm512_mask_storeu_ps(to + i * plane, dense, _mm512_maskz_compress_ps(piece->lanes, sums[i][j]));
    }
}

using Tile = void(const float *, int64_t, const float *, const int64_t *, __mmask16, bool, const float *, float *, int64_t, const Piece *);
template <int W>
constexpr Tile *kTiles[kTileRows + 1] = {nullptr,    tile<1, W>, tile<2, W>, tile<3, W>, tile<4, W>,
                                         tile<5, W>, tile<6, W>, tile<7, W>, tile<8, W>};
Tile *const *const kWidths[kTileVectors + 1] = {nullptr, kTiles<1>, kTiles<2>, kTiles<3>};

// One row of a plane: n elements, of which those from `low` to `high` are every `step`th of a row of the input, from `p` on.
INLINED void copy_row(float *to, const float *p, int64_t low, int64_t high, int64_t step, int64_t n) {
    const Vector none = _mm512_setzero_ps();
    for (int64_t i = 0; i < low; i += kLanes) _mm512_mask_storeu_ps(to + i, first(low - i), none);
    if (step == 1) {
        for (int64_t i = low; i < high; i += kLanes, p += kLanes) {
            const __mmask16 m = first(high - i);
            _mm512_mask_storeu_ps(to + i, m, _mm512_maskz_loadu_ps(m, p));
        }
    } else if (step == 2) {
        for (int64_t i = low; i < high; i += kLanes, p += 2 * kLanes) {
            const int64_t rest = 2 * (high - i) - 1; // elements up to the last one that is wanted
            const Vector a = _mm512_maskz_loadu_ps(first(rest), p);
            const Vector b = rest > kLanes ? _mm512_maskz_loadu_ps(first(rest - kLanes), p + kLanes) : none;
            _mm512_mask_storeu_ps(to + i, first(high - i), every_other(a, b));
        }
    } else {
        for (int64_t i = low; i < high; i++, p += step) to[i] = *p;
    }
    for (int64_t i = high; i < n; i += kLanes) _mm512_mask_storeu_ps(to + i, first(n - i), none);
}

// The planes of one channel.
WIDE void lay_channel(const Work &w, const float *x, float *to) {
    const Convolution &c = *w.c;
    const Axis &d = w.axis[0], &h = w.axis[1], &v = w.axis[2];
    for (int64_t i = 0; i < d.phases; i++)
        for (int64_t j = 0; j < h.phases; j++)
            for (int64_t k = 0; k < v.phases; k++)
                for (int64_t z = 0; z < d.length; z++)
                    for (int64_t y = 0; y < h.length; y++, to += v.length) {
                        const bool inside = z >= d.low[i] && z < d.high[i] && y >= h.low[j] && y < h.high[j];
                        const int64_t plane = d.start[i] + z * c.stride[0], row = h.start[j] + y * c.stride[1];
                        const int64_t at = plane * c.x_step[0] + row * c.x_step[1] + v.start[k] + v.low[k] * c.stride[2];
                        if (inside) copy_row(to, x + at, v.low[k], v.high[k], c.stride[2], v.length);
                        else copy_row(to, x, 0, 0, 1, v.length);
                    }
}

float *floats(int64_t n) { return static_cast<float *>(std::aligned_alloc(64, (n * sizeof(float) + 63) & ~size_t{63})); }

// What one thread has at hand.
struct Hand {
    float *planes = nullptr, *panel = nullptr;
    int64_t laid = -1, packed = -1; // which pictures, which panel
    ~Hand() {
        std::free(planes);
        std::free(panel);
    }
};

// Pictures of one group, laid out one after the other.
const float *lay(const Work &w, Hand &hand, int64_t n, int64_t count, int64_t g) {
    const Convolution &c = *w.c;
    const float *x = c.x + n * c.x_batch + g * c.channels * c.x_channel;
    if (w.in_place) return x;
    if (hand.laid != n * c.groups + g)
        for (int64_t q = 0; q < count; q++)
            for (int64_t i = 0; i < c.channels; i++) lay_channel(w, x + q * c.x_batch + i * c.x_channel, hand.planes + q * w.picture + i * w.channel);
    hand.laid = n * c.groups + g;
    return hand.planes;
}

// Where the pixels [from, from + n) of all pictures are along the planes.
int sources_of(const Work &w, int64_t from, int64_t n, Source *out) {
    const int64_t pixels = w.c->pixels();
    int count = 0;
    while (n > 0) {
        const int64_t picture = from / pixels, p = from % pixels;
        int64_t v = std::upper_bound(w.places, w.places + w.vectors, p) - w.places - 1, skip = p - w.places[v];
        for (int64_t left = std::min(n, pixels - p); left > 0; v++) {
            uint16_t lanes = w.masks[v];
            for (; skip > 0; skip--) lanes &= lanes - 1;
            int64_t have = __builtin_popcount(lanes);
            for (; have > left; have--) lanes &= ~(0x8000u >> (__builtin_clz(lanes) - 16));
            if (lanes) out[count++] = {picture * w.picture + v * kLanes, lanes};
            left -= have, n -= have, from += have;
        }
    }
    return count;
}

WIDE void pack(const Work &w, const float *x, const Source *sources, int count, int64_t depth, float *panel) {
    for (int64_t k = 0; k < depth; k++, panel += kPanel) {
        const float *p = x + w.offsets[k];
        float *to = panel;
        for (int i = 0; i < count; i++) {
            const uint16_t lanes = sources[i].lanes;
            const int n = __builtin_popcount(lanes);
            const Vector v = _mm512_maskz_loadu_ps(lanes, p + sources[i].offset); // nothing is read that is not there
            _mm512_mask_storeu_ps(to, first(n), _mm512_maskz_compress_ps(lanes, v));
            to += n;
        }
    }
}

// Where the lanes of a packed panel go.
void pieces_of(const Work &w, int64_t from, int64_t n, Piece *out) {
    const int64_t pixels = w.c->pixels(), picture = w.c->groups * w.c->features * pixels;
    for (int64_t lane = 0; lane < n;) {
        const int64_t p = (from + lane) % pixels, inside = lane % kLanes;
        const int64_t count = std::min({n - lane, kLanes - inside, pixels - p});
        *out++ = {static_cast<int32_t>(lane / kLanes), static_cast<uint16_t>(((1u << count) - 1) << inside), (from + lane) / pixels * picture + p};
        lane += count;
    }
    out->vector = -1;
}

// The last pixels, too few for a vector: their elements are gathered, and the dot products are those of matmul_loops.h.
void by_dots(const Work &w, const float *x, int64_t g, int64_t f0, int64_t f1, float *under) {
    const Convolution &c = *w.c;
    const int64_t pixels = c.pixels(), depth = c.depth(), total = c.batch * pixels;
    for (int64_t from = total - w.rest; from < total;) {
        const int64_t n = from / pixels, p = from % pixels, count = std::min(total - from, pixels - p);
        for (int64_t i = 0; i < count; i++) {
            Source s[1];
            sources_of(w, from + i, 1, s);
            const float *at = x + s->offset + __builtin_ctz(s->lanes);
            for (int64_t k = 0; k < depth; k++) under[i * depth + k] = at[w.offsets[k]];
        }
        Result out = {c.out + ((n * c.groups + g) * c.features + f0) * pixels + p, pixels};
        if (c.bias) {
            for (int64_t f = f0; f < f1; f++) std::fill_n(out.c + (f - f0) * pixels, count, c.bias[g * c.features + f]);
            out.plus = out.c, out.plus_row = pixels;
        }
        matmul(Way::Dots, {c.w + (g * c.features + f0) * depth, depth, 1}, {under, 1, depth}, out, f1 - f0, count, depth);
        from += count;
    }
}

WIDE void run_packed(const Work &w, Hand &hand, int64_t at) {
    const Convolution &c = *w.c;
    const int64_t depth = c.depth(), pixels = c.pixels(), each = w.panels + (w.rest > 0), total = c.batch * pixels - w.rest;
    const int64_t panel = at % each, block = at / each % w.blocks, g = at / each / w.blocks;
    const int64_t f0 = block * w.block, f1 = std::min(f0 + w.block, c.features);
    const float *x = lay(w, hand, 0, c.batch, g);
    if (panel == w.panels) {
        hand.packed = -1;
        by_dots(w, x, g, f0, f1, hand.panel);
        return;
    }
    const int64_t all = pieces(total, kLanes), v0 = all * panel / w.panels, v1 = all * (panel + 1) / w.panels;
    const int64_t from = v0 * kLanes, n = std::min(v1 * kLanes, total) - from;
    if (hand.packed != g * each + panel) {
        Source sources[kMostSources];
        pack(w, x, sources, sources_of(w, from, n, sources), depth, hand.panel);
        hand.packed = g * each + panel;
    }
    Piece list[kPanel + 1];
    pieces_of(w, from, n, list);
    for (int64_t f = f0; f < f1; f += kTileRows) {
        const int64_t feature = g * c.features + f;
        kWidths[v1 - v0][std::min(kTileRows, f1 - f)](c.w + feature * depth, depth, hand.panel, w.steps, first(n - (v1 - v0 - 1) * kLanes), false,
                                                      c.bias ? c.bias + feature : nullptr, c.out + feature * pixels, pixels, list);
    }
}

WIDE void run_bordered(const Work &w, Hand &hand, int64_t at) {
    const Convolution &c = *w.c;
    const int64_t depth = c.depth(), pixels = c.pixels();
    const int64_t panel = at % w.panels, block = at / w.panels % w.blocks, n = at / w.panels / w.blocks / c.groups;
    const int64_t g = at / w.panels / w.blocks % c.groups, f0 = block * w.block, f1 = std::min(f0 + w.block, c.features);
    const float *x = lay(w, hand, n, 1, g);
    const int64_t v0 = w.vectors * panel / w.panels, v1 = w.vectors * (panel + 1) / w.panels;
    const __mmask16 last = first(w.length - (v1 - 1) * kLanes);
    Piece list[kTileVectors + 1], *end = list;
    for (int64_t v = v0; v < v1; v++)
        if (w.masks[v]) *end++ = {static_cast<int32_t>(v - v0), w.masks[v], w.places[v]};
    end->vector = -1;
    for (int64_t f = f0; f < f1; f += kTileRows) {
        const int64_t feature = g * c.features + f;
        const bool cold = f == f0 && c.features > kTileRows;
        kWidths[v1 - v0][std::min(kTileRows, f1 - f)](c.w + feature * depth, depth, x + v0 * kLanes, w.offsets, last, cold,
                                                      c.bias ? c.bias + feature : nullptr,
                                                      c.out + (n * c.groups * c.features + feature) * pixels, pixels, list);
    }
}

void run_units(Work &w, int64_t low, int64_t high) {
    if (low >= high) return;
    const Convolution &c = *w.c;
    Hand hand;
    if (!w.in_place) hand.planes = floats((w.packed ? c.batch : 1) * w.picture);
    if (w.packed) hand.panel = floats(c.depth() * kPanel + kLanes);
    if ((!w.in_place && !hand.planes) || (w.packed && !hand.panel)) {
        __atomic_store_n(&w.status, OUT_OF_MEMORY, __ATOMIC_RELAXED);
        return;
    }
    for (int64_t at = low; at < high; at++) (w.packed ? run_packed : run_bordered)(w, hand, at);
}

// Memory for the tables of one call.
struct Tables {
    int64_t *next;
    int64_t *take(int64_t n) { return std::exchange(next, next + n); }
};

void plan_axis(Axis &a, const Convolution &c, int d, Tables &t) {
    const int64_t taps = c.kernel[d], step = c.stride[d];
    a.phase = t.take(taps), a.at = t.take(taps), a.start = t.take(taps), a.low = t.take(taps), a.high = t.take(taps);
    for (int64_t k = 0; k < taps; k++) {
        const int64_t start = k * c.dilation[d] % step - c.pad[d];
        int64_t p = 0;
        while (p < a.phases && a.start[p] != start) p++;
        if (p == a.phases) a.start[a.phases++] = start;
        a.phase[k] = p;
        a.at[k] = k * c.dilation[d] / step;
    }
    a.length = c.to[d] + a.at[taps - 1];
    for (int64_t p = 0; p < a.phases; p++) {
        a.low[p] = std::min(pieces(std::max<int64_t>(-a.start[p], 0), step), a.length);
        a.high[p] = std::clamp(pieces(std::max<int64_t>(c.in[d] - a.start[p], 0), step), a.low[p], a.length);
    }
}

// Which pixels along the planes are none of the output's, and where the others go.
WIDE void mark(const Work &w, uint16_t *masks, int64_t *places) {
    const Convolution &c = *w.c;
    std::memset(masks, 0, sizeof(uint16_t) * w.vectors);
    for (int64_t z = 0; z < c.to[0]; z++)
        for (int64_t y = 0; y < c.to[1]; y++) {
            const int64_t begin = (z * w.axis[1].length + y) * w.axis[2].length, end = begin + c.to[2];
            for (int64_t v = begin / kLanes; v * kLanes < end; v++) {
                const int64_t from = std::max<int64_t>(begin - v * kLanes, 0), to = std::min(end - v * kLanes, kLanes);
                masks[v] |= static_cast<uint16_t>(((1u << (to - from)) - 1) << from);
            }
        }
    int64_t at = 0;
    for (int64_t v = 0; v < w.vectors; v++) {
        places[v] = at;
        at += __builtin_popcount(masks[v]);
    }
}

// Whether panels without borders pay: a vector meets 8 features in 4 cycles for each column of the weight, and is packed in 3.
void choose(Work &w) {
    const Convolution &c = *w.c;
    const int64_t total = c.batch * c.pixels(), rest = total % kLanes;
    const int64_t by_features = 4 * pieces(c.features, kTileRows), packed = pieces(total, kLanes) - (rest <= kFewPixels);
    const double bordered = static_cast<double>(c.batch) * w.vectors * by_features;
    w.packed = bordered > static_cast<double>(packed) * by_features + static_cast<double>(c.batch) * w.vectors * 3 &&
               c.batch * w.picture <= kMostLaid && total / kLanes > 0;
    if (!w.packed) return;
    w.rest = rest <= kFewPixels && c.features > 1 ? rest : 0;
    w.panels = pieces(pieces(total - w.rest, kLanes), kTileVectors);
    w.block = pieces(c.features, kTileRows) * kTileRows;
}

int32_t by_planes(const Convolution &c) {
    Work w;
    w.c = &c;
    const int64_t depth = c.depth();
    int64_t length = 1; // no less than the pixels along a plane
    for (int d = 0; d < kDims; d++) length *= c.to[d] + (c.kernel[d] - 1) * c.dilation[d] / c.stride[d];
    const int64_t most = pieces(length, kLanes), tables = 2 * depth + 5 * (c.kernel[0] + c.kernel[1] + c.kernel[2]) + most + most / 4 + 1;
    auto *memory = static_cast<int64_t *>(std::malloc(tables * sizeof(int64_t)));
    if (!memory) return OUT_OF_MEMORY;
    Tables t{memory};
    for (int d = 0; d < kDims; d++) plan_axis(w.axis[d], c, d, t);
    const Axis &a0 = w.axis[0], &a1 = w.axis[1], &a2 = w.axis[2];
    w.length = ((c.to[0] - 1) * a1.length + c.to[1] - 1) * a2.length + c.to[2];
    w.vectors = pieces(w.length, kLanes);
    w.panels = pieces(w.vectors, kTileVectors);
    const int64_t plane = a0.length * a1.length * a2.length, phases = a0.phases * a1.phases * a2.phases;
    w.in_place = true;
    for (int d = 0; d < kDims; d++) w.in_place = w.in_place && c.stride[d] == 1 && c.pad[d] == 0;
    w.in_place = w.in_place && (c.in[1] == 1 || c.x_step[1] == c.in[2]) && (c.in[0] == 1 || c.x_step[0] == c.in[1] * c.in[2]);
    // Channels a multiple of a page apart meet in one set of the cache: worth a copy if they are read again and again.
    if (c.x_channel % 1024 == 0 && c.channels > kLanes && c.features > 4 * kTileRows) w.in_place = false;
    w.channel = w.in_place ? c.x_channel : pieces(phases * plane, kLanes) * kLanes;
    if (!w.in_place && w.channel % 1024 == 0) w.channel += kLanes;
    w.picture = w.in_place ? c.x_batch : c.channels * w.channel;
    w.block = std::clamp<int64_t>(kWeights / std::max<int64_t>(depth, 1) / kTileRows, 1, pieces(c.features, kTileRows)) * kTileRows;
    choose(w);
    w.blocks = pieces(c.features, w.block);
    int64_t *offsets = t.take(depth), *steps = t.take(depth), *offset = offsets;
    for (int64_t i = 0; i < c.channels; i++)
        for (int64_t z = 0; z < c.kernel[0]; z++)
            for (int64_t y = 0; y < c.kernel[1]; y++)
                for (int64_t x = 0; x < c.kernel[2]; x++)
                    *offset++ = i * w.channel + ((a0.phase[z] * a1.phases + a1.phase[y]) * a2.phases + a2.phase[x]) * plane +
                                (a0.at[z] * a1.length + a1.at[y]) * a2.length + a2.at[x];
    if (w.packed)
        for (int64_t k = 0; k < depth; k++) steps[k] = k * kPanel;
    int64_t *places = t.take(w.vectors);
    auto *masks = reinterpret_cast<uint16_t *>(t.next);
    mark(w, masks, places);
    w.offsets = offsets, w.steps = steps, w.places = places, w.masks = masks;
    const double work = static_cast<double>(c.batch) * c.groups * c.features * w.length * depth;
    const int64_t threads = threads_for(work, kGrain, c.batch * c.groups * pieces(c.features, kTileRows) * w.panels);
    if (threads > 1 && w.units() < 4 * threads) { // a packed panel is packed by each
        w.block = std::max<int64_t>(pieces(pieces(c.features, kTileRows), w.packed ? threads : 4 * threads), 1) * kTileRows;
        w.blocks = pieces(c.features, w.block);
    }
    shared(threads, w.units(), [&](int64_t low, int64_t high) { run_units(w, low, high); });
    std::free(memory);
    return w.status;
}

// One pixel of each picture: a product of matrices, whose rows are the pictures.
int32_t by_product(const Convolution &c) {
    const Matrix x = {c.x, c.x_batch, c.x_channel}, w = {c.w, 1, c.channels};
    matmul(matmul_way(x, w, c.batch, c.features, c.channels), x, w, {c.out, c.features, 1.0f, c.bias, 0}, c.batch, c.features, c.channels);
    return 0;
}

extern "C" {
int32_t convolution(const Convolution *given) {
    const Convolution &c = *given;
    if (c.empty()) return 0;
    for (int d = 0; d < kDims; d++)
        if (c.stride[d] < 1 || c.dilation[d] < 1 || c.pad[d] < 0) return kNonsense;
    if (c.depth() <= 0) { // nothing to sum
        for (int64_t at = 0; at < c.batch * c.groups * c.features; at++)
            std::fill_n(c.out + at * c.pixels(), c.pixels(), c.bias ? c.bias[at % (c.groups * c.features)] : 0.0f);
        return 0;
    }
    const bool alone = c.in[0] * c.in[1] * c.in[2] == 1 && c.pixels() == 1 && c.taps() == 1 && c.pad[0] + c.pad[1] + c.pad[2] == 0;
    const bool product = alone && c.groups == 1 && c.x_channel == 1;
    int32_t status = 0;
    return product ? by_product(c) : depthwise(c, status) ? status : by_planes(c);
}
}

} // namespace

Routine *convolution_routine() { return matmul_runs() ? reinterpret_cast<Routine *>(&convolution) : nullptr; }
} // namespace pliant
#else
namespace pliant {
Routine *convolution_routine() { return nullptr; }
} // namespace pliant
#endif
