// Attention of f32 inside segments, for lengths that only a run knows: softmax(q k^T * scale + mask) v, block of rows by block of rows.
//
// A block's scores live in scratch memory that stays in a cache. Large blocks multiply as `gemm.cpp` does; a few rows
// (decoding: one) with loops here, which cost less than the calls. A row without anything to attend to is 0, as in PyTorch's kernel.
#include "core.h"
#include "matmul.h"
#include "pool.h"
#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#pragma GCC diagnostic ignored "-Wpsabi" // vectors are passed between inlined functions only

namespace pliant {

using Sgemm = void(const char *, const char *, const int *, const int *, const int *, const float *, const float *, const int *, const float *,
                   const int *, const float *, float *, const int *);

static Sgemm *sgemm = nullptr;
static bool own_products = false;

constexpr int32_t kOutOfMemory = 0x7FFFFFFF;
constexpr int64_t kScores = 96 << 10;   // of a block: with its rows of q, k and v they fit the second cache
constexpr int64_t kByHand = 1 << 12;    // multiplications of a block below which calls of BLAS cost more than they save
constexpr int64_t kGrain = 1 << 22;     // multiplications that are worth a thread
constexpr int64_t kOnStack = 8 << 10;   // scores

struct Strides {
    int64_t batch, head, row;
};

// What a segment hands over; strides in elements, columns lie dense (those of the mask `mask_column` apart). `scale`: bits of a double,
// 0 for the square root of 1 / depth.
struct Attention {
    const float *q, *k, *v, *mask;
    float *out;
    int64_t batch, heads, kv_heads, rows, keys, depth, width;
    Strides sq, sk, sv, so, sm;
    int64_t mask_column, causal;
    double scale;
};

using Vector = float __attribute__((vector_size(32)));
using Ints = int32_t __attribute__((vector_size(32)));
constexpr int64_t kLanes = 8; // of AVX2; wider ones gain nothing where memory is what takes time
#define INLINED static inline __attribute__((always_inline))

INLINED Vector load(const float *p) {
    Vector v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

// The first n lanes; what is behind them must not be touched.
INLINED Vector load_some(const float *p, int64_t n) {
    alignas(64) float lanes[kLanes] = {};
    for (int64_t i = 0; i < n; i++) lanes[i] = p[i];
    return load(lanes);
}

// The first n lanes of v, the others `rest`.
INLINED Vector some(Vector v, int64_t n, float rest) {
    const Ints lane = {0, 1, 2, 3, 4, 5, 6, 7};
    return lane < static_cast<int32_t>(n) ? v : Vector{} + rest;
}

INLINED void store(float *p, Vector v) { __builtin_memcpy(p, &v, sizeof v); }

// exp(x) for x <= 0, to 1 ulp; 0 where that is no normal number.
INLINED Vector exp_of(Vector x) {
    const Ints tiny = x < -87.33f;
    const Vector magic = x - x + 12582912.0f; // 1.5 * 2^23: adding it rounds
    const Vector t = x * 1.44269504f + magic;
    const Vector n = t - magic;
    const Vector r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    Vector p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    Ints bits;
    __builtin_memcpy(&bits, &t, sizeof bits);
    Ints power = (bits - 0x4B400000) << 23;
    Ints result;
    __builtin_memcpy(&result, &p, sizeof p);
    result = (result + power) & ~tiny;
    Vector out;
    __builtin_memcpy(&out, &result, sizeof out);
    return out;
}

INLINED Vector larger(Vector a, Vector b) { return a > b || a != a ? a : b; }

// Lanes i and i ^ 4, then ^ 2, ^ 1, met with each other.
#define FOLDED(v, meet)                                                                                                                    \
    v = meet(v, __builtin_shuffle(v, Ints{4, 5, 6, 7, 0, 1, 2, 3}));                                                                       \
    v = meet(v, __builtin_shuffle(v, Ints{2, 3, 0, 1, 6, 7, 4, 5}));                                                                       \
    v = meet(v, __builtin_shuffle(v, Ints{1, 0, 3, 2, 5, 4, 7, 6}));                                                                       \
    return v[0];

INLINED Vector plus(Vector a, Vector b) { return a + b; }
INLINED float max_of(Vector v) { FOLDED(v, larger) }
INLINED float sum_of(Vector v) { FOLDED(v, plus) }

// Pairs of vectors into one: the sums of neighbouring groups of 1, 2, 4 lanes, of a and b in turn.
#define PAIRED(a, b, first, second) (__builtin_shuffle(a, b, first) + __builtin_shuffle(a, b, second))

// The sum of the lanes of v[i], in lane i.
INLINED Vector sums_of(const Vector *v) {
    const Ints a1 = {0, 8, 2, 10, 4, 12, 6, 14}, b1 = {1, 9, 3, 11, 5, 13, 7, 15};
    const Ints a2 = {0, 1, 8, 9, 4, 5, 12, 13}, b2 = {2, 3, 10, 11, 6, 7, 14, 15};
    const Ints a4 = {0, 1, 2, 3, 8, 9, 10, 11}, b4 = {4, 5, 6, 7, 12, 13, 14, 15};
    const Vector x0 = PAIRED(v[0], v[1], a1, b1), x1 = PAIRED(v[2], v[3], a1, b1);
    const Vector x2 = PAIRED(v[4], v[5], a1, b1), x3 = PAIRED(v[6], v[7], a1, b1);
    const Vector y0 = PAIRED(x0, x1, a2, b2), y1 = PAIRED(x2, x3, a2, b2);
    return PAIRED(y0, y1, a4, b4);
}

// scores[j] = scale * (q . k[j]) for one row
INLINED void multiply_keys(const float *q, const float *k, int64_t row, int64_t keys, int64_t depth, float scale, float *scores) {
    const int64_t whole = depth & -kLanes;
    for (int64_t j = 0; j < keys; j += kLanes) {
        Vector sums[kLanes] = {};
        const float *key = k + j * row;
        const int64_t last = std::min(keys - j, kLanes) - 1; // missing keys are the last one again
        for (int64_t d = 0; d < whole; d += kLanes) {
            const Vector x = load(q + d);
#pragma GCC unroll 8
            for (int64_t i = 0; i < kLanes; i++) sums[i] += x * load(key + std::min(i, last) * row + d);
        }
        if (whole < depth) {
            const Vector x = load_some(q + whole, depth - whole);
            for (int64_t i = 0; i < kLanes; i++) sums[i] += x * load_some(key + std::min(i, last) * row + whole, depth - whole);
        }
        store(scores + j, sums_of(sums) * scale);
    }
}

// out = sum of p[j] * v[j], times `factor`
INLINED void multiply_values(const float *p, const float *v, int64_t row, int64_t keys, int64_t width, float factor, float *out) {
    int64_t c = 0;
    for (; c + 8 * kLanes <= width; c += 8 * kLanes) {
        Vector sums[8] = {};
        for (int64_t j = 0; j < keys; j++) {
            const Vector share = Vector{} + p[j];
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) sums[i] += share * load(v + j * row + c + i * kLanes);
        }
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) store(out + c + i * kLanes, sums[i] * factor);
    }
    for (; c + kLanes <= width; c += kLanes) {
        Vector sums[4] = {};
        int64_t j = 0;
        for (; j + 4 <= keys; j += 4) {
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) sums[i] += p[j + i] * load(v + (j + i) * row + c);
        }
        for (; j < keys; j++) sums[0] += p[j] * load(v + j * row + c);
        store(out + c, ((sums[0] + sums[1]) + (sums[2] + sums[3])) * factor);
    }
    if (c < width) {
        Vector sum = {};
        for (int64_t j = 0; j < keys; j++) sum += p[j] * load_some(v + j * row + c, width - c);
        sum *= factor;
        for (int64_t i = c; i < width; i++) out[i] = sum[i - c];
    }
}

// Scores to exp(score - largest), 0 from `keys` to `end`. Returns 1 / their sum, or 0 where nothing is attended to.
INLINED float soften(float *s, int64_t keys, int64_t end, const float *mask, int64_t mask_column) {
    const float none = -std::numeric_limits<float>::infinity();
    Vector top = Vector{} + none;
    const int64_t whole = keys & -kLanes, left = keys - whole;
    for (int64_t j = 0; j < whole; j += kLanes) {
        Vector x = load(s + j);
        if (mask) {
            if (mask_column == 1) x += load(mask + j);
            else for (int64_t i = 0; i < kLanes; i++) x[i] += mask[(j + i) * mask_column];
            store(s + j, x);
        }
        top = larger(x, top);
    }
    for (int64_t j = whole; mask && j < keys; j++) s[j] += mask[j * mask_column];
    if (left) top = larger(some(load(s + whole), left, none), top); // rows of scores end at whole vectors
    const float most = max_of(top);
    if (most == none) {
        for (int64_t j = 0; j < end; j += kLanes) store(s + j, Vector{});
        return 0;
    }
    Vector total = {};
    for (int64_t j = 0; j < whole; j += kLanes) {
        const Vector e = exp_of(load(s + j) - most);
        store(s + j, e);
        total += e;
    }
    if (left) {
        const Vector e = exp_of(some(load(s + whole), left, none) - most);
        store(s + whole, e);
        total += e;
    }
    for (int64_t j = (keys + kLanes - 1) & -kLanes; j < end; j += kLanes) store(s + j, Vector{});
    return 1.0f / sum_of(total);
}

struct Block {
    const float *q, *k, *v, *mask;
    float *out, *scores;
    int64_t first, rows, keys, distance; // keys that any of the rows attends to; from one row of scores to the next
    float scale;
};

// `by_blas`: the scores are there, and the values are multiplied by the caller.
INLINED void block_of(const Attention &a, const Block &b, bool by_blas) {
    for (int64_t i = 0; i < b.rows; i++) {
        float *s = b.scores + i * b.distance;
        const int64_t keys = a.causal ? std::min(b.keys, b.first + i + 1) : b.keys;
        if (!by_blas) multiply_keys(b.q + i * a.sq.row, b.k, a.sk.row, keys, a.depth, b.scale, s);
        const float factor = soften(s, keys, by_blas ? b.keys : keys, b.mask ? b.mask + i * a.sm.row : nullptr, a.mask_column);
        if (!by_blas) {
            multiply_values(s, b.v, a.sv.row, keys, a.width, factor, b.out + i * a.so.row);
        } else {
            for (int64_t j = 0; j < b.keys; j += kLanes) store(s + j, load(s + j) * factor);
        }
    }
}

using Blocks = void(const Attention &, const Block &, bool);
static void block_plain(const Attention &a, const Block &b, bool by_blas) { block_of(a, b, by_blas); }
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void block_avx2(const Attention &a, const Block &b, bool by_blas) { block_of(a, b, by_blas); }
static Blocks *chosen() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? block_avx2 : block_plain; }
#else
static Blocks *chosen() { return block_plain; }
#endif

struct Work {
    const Attention *a;
    Blocks *run;
    int64_t block, blocks; // rows of a block, blocks of a head
    float scale;
    int32_t status;
};

static void multiply_scores(const Attention &a, const Block &b) {
    if (own_products) {
        const Matrix q = {b.q, a.sq.row, 1}, k = {b.k, 1, a.sk.row};
        matmul(matmul_way(q, k, b.rows, b.keys, a.depth), q, k, {b.scores, b.distance, b.scale}, b.rows, b.keys, a.depth);
        return;
    }
    const int m = static_cast<int>(b.rows), n = static_cast<int>(b.keys), d = static_cast<int>(a.depth);
    const int lq = static_cast<int>(std::max(a.sq.row, a.depth)), lk = static_cast<int>(std::max(a.sk.row, a.depth));
    const int ls = static_cast<int>(b.distance);
    const float zero = 0;
    sgemm("T", "N", &n, &m, &d, &b.scale, b.k, &lk, b.q, &lq, &zero, b.scores, &ls);
}

static void multiply_shares(const Attention &a, const Block &b) {
    if (own_products) {
        const Matrix s = {b.scores, b.distance, 1}, v = {b.v, a.sv.row, 1};
        matmul(matmul_way(s, v, b.rows, a.width, b.keys), s, v, {b.out, a.so.row}, b.rows, a.width, b.keys);
        return;
    }
    const int m = static_cast<int>(b.rows), n = static_cast<int>(b.keys), w = static_cast<int>(a.width);
    const int lv = static_cast<int>(std::max(a.sv.row, a.width)), lo = static_cast<int>(std::max(a.so.row, a.width));
    const int ls = static_cast<int>(b.distance);
    const float one = 1, zero = 0;
    sgemm("N", "N", &w, &m, &n, &one, b.v, &lv, b.scores, &ls, &zero, b.out, &lo);
}

static bool fits_blas(const Attention &a) {
    return std::max({a.rows, a.keys, a.depth, a.width, a.sq.row, a.sk.row, a.sv.row, a.so.row}) <= INT_MAX;
}

// Blocks [low, high) of all heads.
static void run_blocks(Work &w, int64_t low, int64_t high) {
    const Attention &a = *w.a;
    const int64_t distance = (a.keys + kLanes - 1) & -kLanes;
    alignas(64) float stack[kOnStack];
    float *scores = stack, *heap = nullptr;
    if (w.block * distance > kOnStack) {
        heap = static_cast<float *>(std::aligned_alloc(64, (w.block * distance * sizeof(float) + 63) & ~size_t{63}));
        if (!heap) {
            __atomic_store_n(&w.status, kOutOfMemory, __ATOMIC_RELAXED);
            return;
        }
        scores = heap;
    }
    const bool blas = own_products || fits_blas(a);
    for (int64_t at = low; at < high; at++) {
        const int64_t first = at % w.blocks * w.block, head = at / w.blocks % a.heads, batch = at / w.blocks / a.heads;
        const int64_t kv = head / (a.heads / a.kv_heads), rows = std::min(w.block, a.rows - first);
        Block b;
        b.q = a.q + batch * a.sq.batch + head * a.sq.head + first * a.sq.row;
        b.k = a.k + batch * a.sk.batch + kv * a.sk.head;
        b.v = a.v + batch * a.sv.batch + kv * a.sv.head;
        b.mask = a.mask ? a.mask + batch * a.sm.batch + head * a.sm.head + first * a.sm.row : nullptr;
        b.out = a.out + batch * a.so.batch + head * a.so.head + first * a.so.row;
        b.scores = scores;
        b.first = first;
        b.rows = rows;
        b.keys = a.causal ? std::min(a.keys, first + rows) : a.keys;
        b.distance = distance;
        b.scale = w.scale;
        const bool large = blas && rows > 1 && rows * b.keys * std::max(a.depth, a.width) >= kByHand;
        if (large) multiply_scores(a, b);
        w.run(a, b, large);
        if (large) multiply_shares(a, b);
    }
    std::free(heap);
}

static void share(void *data) {
    auto &w = *static_cast<Work *>(data);
    const int64_t total = w.a->batch * w.a->heads * w.blocks, number = pool.number(), team = pool.team();
    run_blocks(w, total * number / team, total * (number + 1) / team);
}

extern "C" {
static int32_t attention(const Attention *given) {
    static Blocks *const run = chosen();
    const Attention &a = *given;
    if (a.batch <= 0 || a.heads <= 0 || a.rows <= 0 || a.width <= 0) return 0;
    Work w{given, run, 0, 0, static_cast<float>(a.scale ? a.scale : 1.0 / std::sqrt(static_cast<double>(a.depth))), 0};
    w.block = std::min(a.rows, std::clamp<int64_t>(kScores / std::max<int64_t>(a.keys, 1), 16, 128));
    w.blocks = (a.rows + w.block - 1) / w.block;
    const int64_t total = a.batch * a.heads * w.blocks;
    const double work = static_cast<double>(a.batch) * a.heads * a.rows * a.keys * (a.depth + a.width);
    const int64_t threads = threads_for(work, kGrain, total);
    if (threads > 1) pool.parallel(share, &w, static_cast<unsigned>(threads), 0);
    else run_blocks(w, 0, total);
    return w.status;
}
}

// attention_function(sgemm_, whether to use our own products) -> address of `int32 attention(Attention *)`
static PyObject *function(PyObject *, PyObject *args) {
    unsigned long long single;
    int own;
    if (!PyArg_ParseTuple(args, "Kp", &single, &own)) return nullptr;
    sgemm = reinterpret_cast<Sgemm *>(single);
    own_products = own && matmul_runs();
    return PyLong_FromUnsignedLongLong(reinterpret_cast<unsigned long long>(&attention));
}

static PyMethodDef methods[] = {
    {"attention_function", function, METH_VARARGS, "Address of the attention of segments."},
    {nullptr, nullptr, 0, nullptr},
};

} // namespace pliant

extern "C" int pl_attention_init(PyObject *module) { return PyModule_AddFunctions(module, pliant::methods); }
