// Attention of f32 inside segments, for lengths that only a run knows: softmax(q k^T * scale + mask) v, block of rows by block of rows and,
// within these, block of keys by block of keys, so that scores never leave the second cache. A row without anything to attend to is 0, as
// in PyTorch's kernel.
//
// Heads that share keys (grouped queries) are rows of one head where they have one row each: their keys are read once. Where there are few
// blocks of rows and many keys (decoding) the keys are cut, too, and what the cuts say is put together afterwards. How, depends on the
// sizes alone: the number of threads changes no bit.
#include "attention.h"
#include "matmul.h"
#include "pool.h"
#include "routines.h"
#include "shared.h"
#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace pliant {

constexpr double kGrain = 1 << 21;     // multiplications that are worth a thread
constexpr int64_t kCutKeys = 2 * kKeys; // of a cut
constexpr int64_t kEnough = 16;        // blocks of rows that need no cuts

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

struct Work {
    Attention a;
    const Loops *loops;
    int64_t blocks, cuts; // of the rows and of the keys of a head
    float scale;
    float *parts; // where keys are cut: of each unit its rows, then their largest scores and totals
    int32_t status;
    int64_t units() const { return a.batch * a.heads * blocks; }
    int64_t part() const { return std::min(a.rows, kBlock) * (a.width + 2); } // floats
};

// Heads of one row that share keys are the rows of one head.
static void group(Attention &a) {
    const int64_t shared = a.heads / a.kv_heads;
    if (a.rows != 1 || shared == 1) return;
    if (a.causal) a.keys = std::min<int64_t>(a.keys, 1), a.causal = 0;
    a.heads = a.kv_heads;
    a.rows = shared;
    for (Strides *s : {&a.sq, &a.so, &a.sm}) s->row = s->head, s->head *= shared;
}

// Where the keys of cut `cut` begin.
static int64_t begin_of(const Work &w, int64_t cut) { return w.a.keys * cut / w.cuts; }

static void run_units(Work &w, int64_t low, int64_t high) {
    const Attention &a = w.a;
    auto *scores = static_cast<float *>(std::aligned_alloc(64, kBlock * kSpan * sizeof(float)));
    if (!scores) {
        __atomic_store_n(&w.status, OUT_OF_MEMORY, __ATOMIC_RELAXED);
        return;
    }
    float most[kBlock], total[kBlock];
    for (int64_t at = low; at < high; at++) {
        const int64_t cut = at % w.cuts, unit = at / w.cuts, first = unit % w.blocks * kBlock;
        const int64_t head = unit / w.blocks % a.heads, batch = unit / w.blocks / a.heads, kv = head / (a.heads / a.kv_heads);
        Rows r;
        r.q = a.q + batch * a.sq.batch + head * a.sq.head + first * a.sq.row;
        r.k = a.k + batch * a.sk.batch + kv * a.sk.head;
        r.v = a.v + batch * a.sv.batch + kv * a.sv.head;
        r.mask = a.mask ? a.mask + batch * a.sm.batch + head * a.sm.head + first * a.sm.row : nullptr;
        r.rows = std::min(kBlock, a.rows - first);
        r.from = begin_of(w, cut);
        r.to = begin_of(w, cut + 1);
        r.depth = a.depth, r.width = a.width;
        r.q_row = a.sq.row, r.k_row = a.sk.row, r.v_row = a.sv.row, r.mask_row = a.sm.row, r.mask_column = a.mask_column;
        r.first = a.causal ? first : -1;
        r.scale = w.scale;
        r.scores = scores;
        r.finish = w.cuts == 1;
        if (r.finish) {
            r.out = a.out + batch * a.so.batch + head * a.so.head + first * a.so.row;
            r.out_row = a.so.row, r.most = most, r.total = total;
        } else {
            r.out = w.parts + at * w.part();
            r.out_row = a.width, r.most = r.out + r.rows * a.width, r.total = r.most + r.rows;
        }
        w.loops->attend(r);
    }
    std::free(scores);
}

// What the cuts of the keys say, put together.
static void join(const Work &w) {
    const Attention &a = w.a;
    for (int64_t unit = 0; unit < w.units(); unit++) {
        const int64_t first = unit % w.blocks * kBlock, rows = std::min(kBlock, a.rows - first);
        const int64_t head = unit / w.blocks % a.heads, batch = unit / w.blocks / a.heads;
        const float *part = w.parts + unit * w.cuts * w.part(), *most = part + rows * a.width;
        for (int64_t i = 0; i < rows; i++) {
            float *out = a.out + batch * a.so.batch + head * a.so.head + (first + i) * a.so.row;
            float top = most[i], total = 0;
            for (int64_t c = 1; c < w.cuts; c++) top = std::max(top, most[c * w.part() + i]);
            std::fill_n(out, a.width, 0.0f);
            for (int64_t c = 0; c < w.cuts; c++) {
                const float *p = part + c * w.part(), mine = most[c * w.part() + i];
                const float factor = mine == top ? 1.0f : std::exp(mine - top);
                total += factor * most[c * w.part() + rows + i];
                for (int64_t j = 0; j < a.width; j++) out[j] += factor * p[i * a.width + j];
            }
            const float factor = total == 0 ? 0.0f : 1.0f / total;
            for (int64_t j = 0; j < a.width; j++) out[j] *= factor;
        }
    }
}

static int32_t attention(const Attention &given, const Loops *loops) {
    Work w{given, loops, 1, 1, 0, nullptr, 0};
    Attention &a = w.a;
    if (a.batch <= 0 || a.heads <= 0 || a.kv_heads <= 0 || a.rows <= 0 || a.width <= 0) return 0;
    w.scale = static_cast<float>(a.scale ? a.scale : 1.0 / std::sqrt(static_cast<double>(a.depth)));
    group(a);
    w.blocks = (a.rows + kBlock - 1) / kBlock;
    if (w.units() < kEnough && a.rows <= kBlock && !a.causal) w.cuts = std::max<int64_t>(a.keys / kCutKeys, 1);
    const int64_t total = w.units() * w.cuts;
    if (w.cuts > 1) {
        w.parts = static_cast<float *>(std::malloc(total * w.part() * sizeof(float)));
        if (!w.parts) return OUT_OF_MEMORY;
    }
    // few rows wait for the memory of keys and values
    const double work = static_cast<double>(a.batch) * a.heads * std::max<int64_t>(a.rows, 8) * a.keys * (a.depth + a.width);
    const int64_t threads = threads_for(work, kGrain, total);
    shared(threads, total, [&](int64_t low, int64_t high) { run_units(w, low, high); });
    if (w.cuts > 1 && !w.status) join(w);
    std::free(w.parts);
    return w.status;
}

static int32_t attention512(const Attention *a) { return attention(*a, &loops512); }
static int32_t attention256(const Attention *a) { return attention(*a, &loops256); }
static int32_t attention_plain(const Attention *a) { return attention(*a, &loops_plain); }

Routine *attention_routine(int64_t bits) {
    const Loops *loops = loops_of(bits);
    return loops ? reinterpret_cast<Routine *>(loops == &loops512 ? &attention512 : &attention256) : nullptr;
}

Routine *plain_attention() { return reinterpret_cast<Routine *>(&attention_plain); }

} // namespace pliant
