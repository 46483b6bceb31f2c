// Memory for tensors. What was dropped is kept a while by the thread that dropped it: fresh pages cost more than most kernels.
#include "runtime.h"
#include <cstdlib>
#include <cstring>

namespace pliant::runtime {
namespace {

constexpr int64_t kIdle = 64ll << 20; // of one thread
constexpr size_t kBlocks = 64;
constexpr int64_t kMost = 1ll << 46;

std::atomic<int64_t> held{0}, most_held{0};

// Sizes that blocks come in: four to each power of two, so that a block fits many tensors of about its size.
int64_t rounded(int64_t bytes) {
    if (bytes <= 256) return 256;
    const int64_t step = 1ll << (61 - __builtin_clzll(static_cast<unsigned long long>(bytes - 1)));
    return (bytes + step - 1) & ~(step - 1);
}

struct Kept {
    struct Block {
        char *data;
        int64_t bytes;
    };
    std::vector<Block> blocks;
    int64_t idle = 0;

    static void let_go(const Block &b) {
        std::free(b.data);
        held -= b.bytes;
    }
    char *take(int64_t bytes) {
        for (size_t i = blocks.size(); i-- > 0;)
            if (blocks[i].bytes == bytes) {
                char *p = blocks[i].data;
                blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(i));
                idle -= bytes;
                return p;
            }
        auto *p = static_cast<char *>(std::aligned_alloc(64, static_cast<size_t>(bytes)));
        if (!p) return nullptr;
        const int64_t now = held += bytes;
        int64_t seen = most_held.load();
        while (now > seen && !most_held.compare_exchange_weak(seen, now)) {}
        return p;
    }
    void give(char *p, int64_t bytes) {
        blocks.push_back({p, bytes});
        idle += bytes;
        while (!blocks.empty() && (idle > kIdle || blocks.size() > kBlocks)) {
            let_go(blocks.front());
            idle -= blocks.front().bytes;
            blocks.erase(blocks.begin());
        }
    }
    ~Kept();
};
thread_local bool over = false; // this thread is ending: nothing is kept
thread_local Kept kept;
Kept::~Kept() {
    over = true;
    for (const Block &b : blocks) let_go(b);
}

struct Dtype {
    int number, size;
    const char *name;
};
constexpr Dtype kDtypes[] = {{PLIANT_U8, 1, "u8"},   {PLIANT_I8, 1, "i8"},   {PLIANT_I16, 2, "i16"}, {PLIANT_I32, 4, "i32"},   {PLIANT_I64, 8, "i64"},
                             {PLIANT_F16, 2, "f16"}, {PLIANT_F32, 4, "f32"}, {PLIANT_F64, 8, "f64"}, {PLIANT_BOOL, 1, "bool"}, {PLIANT_BF16, 2, "bf16"}};

} // namespace

Storage *new_storage(int64_t bytes) {
    if (bytes < 0 || bytes > kMost) fail("a tensor of ", str(bytes), " bytes cannot be");
    auto s = std::make_unique<Storage>();
    s->bytes = rounded(bytes);
    s->data = kept.take(s->bytes);
    if (!s->data) fail("there is not enough memory for a tensor of ", str(bytes), " bytes");
    return s.release();
}

void use(Storage *s) { s->uses.fetch_add(1, std::memory_order_relaxed); }

void drop(Storage *s) {
    if (s->uses.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    if (s->release) s->release(s->torch);
    else if (over) Kept::let_go({s->data, s->bytes});
    else kept.give(s->data, s->bytes);
    Storage *base = s->base;
    delete s;
    if (base) drop(base);
}

std::pair<int64_t, int64_t> bytes_held() { return {held.load(), most_held.load()}; }

int item_size(int dtype) {
    for (const Dtype &d : kDtypes)
        if (d.number == dtype) return d.size;
    return 0;
}
const char *dtype_name(int dtype) {
    for (const Dtype &d : kDtypes)
        if (d.number == dtype) return d.name;
    return "of no known dtype";
}
int dtype_of(const std::string &name) {
    for (const Dtype &d : kDtypes)
        if (name == d.name) return d.number;
    fail("the plan names a dtype that is none: ", name);
}

int64_t bytes_of(int ndim, const int64_t *sizes, const int64_t *strides, int dtype) {
    int64_t extent = 1;
    for (int d = 0; d < ndim; d++) {
        if (sizes[d] < 0) fail("a tensor cannot have ", str(sizes[d]), " elements in a dim");
        if (sizes[d] == 0) return 0;
    }
    for (int d = 0; d < ndim; d++) {
        int64_t span;
        if (strides[d] < 0 || __builtin_mul_overflow(sizes[d] - 1, strides[d], &span) || __builtin_add_overflow(extent, span, &extent))
            fail("a tensor of such sizes cannot be");
    }
    int64_t bytes;
    if (__builtin_mul_overflow(extent, static_cast<int64_t>(item_size(dtype)), &bytes) || bytes > kMost) fail("a tensor of such sizes cannot be");
    return bytes;
}

void contiguous(int ndim, const int64_t *sizes, int64_t *strides) {
    int64_t step = 1;
    for (int d = ndim; d-- > 0;) {
        strides[d] = step;
        if (__builtin_mul_overflow(step, sizes[d] > 1 ? sizes[d] : 1, &step)) fail("a tensor of such sizes cannot be");
    }
}

bool same_layout(int ndim, const int64_t *sizes, const int64_t *a, const int64_t *b) {
    for (int d = 0; d < ndim; d++)
        if (sizes[d] == 0) return true;
    for (int d = 0; d < ndim; d++)
        if (sizes[d] > 1 && a[d] != b[d]) return false;
    return true;
}

void copy_strided(char *to, const int64_t *to_strides, const char *from, const int64_t *from_strides, const int64_t *sizes, int ndim, int item) {
    int64_t at[kDims] = {};
    for (int d = 0; d < ndim; d++)
        if (sizes[d] <= 0) return;
    const int inner = ndim - 1;
    for (;;) {
        const int64_t n = ndim ? sizes[inner] : 1, tstep = ndim ? to_strides[inner] * item : 0, fstep = ndim ? from_strides[inner] * item : 0;
        int64_t t = 0, f = 0;
        for (int d = 0; d < inner; d++) t += at[d] * to_strides[d], f += at[d] * from_strides[d];
        char *p = to + t * item;
        const char *q = from + f * item;
        if (tstep == item && fstep == item) std::memcpy(p, q, static_cast<size_t>(n * item));
        else
            for (int64_t i = 0; i < n; i++, p += tstep, q += fstep) std::memcpy(p, q, static_cast<size_t>(item));
        int d = inner - 1;
        for (; d >= 0; d--) {
            if (++at[d] < sizes[d]) break;
            at[d] = 0;
        }
        if (d < 0) return;
    }
}

} // namespace pliant::runtime
