// Arena: the memory that a segment of kernels (codegen/cpu/segment.py) keeps what only it reads in.
//
// One block a thread, kept between calls because fresh pages cost more than most kernels. A segment takes it, runs, and gives it back; no
// Python and no other segment runs on the thread in between, but if one did it would get a block of its own.
#include "routines.h"
#include "shared.h"
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace pliant {

constexpr int64_t kSmallest = 4 << 10;
constexpr int64_t kIdleThread = 256ll << 20; // a larger block is freed when it is given back
constexpr int64_t kIdleAll = 1ll << 30;      // and so is any, while threads together keep more than this
constexpr int kPatience = 256;               // uses of less than a quarter of the block before it is made smaller

static std::atomic<int64_t> idle{0}, idle_limit{kIdleThread}, held{0}, most_held{0};

struct Arena {
    char *block = nullptr;
    int64_t size = 0;
    int wasteful = 0;
    bool taken = false;
    void drop() {
        if (!block) return;
        std::free(block);
        idle -= size;
        held -= size;
        block = nullptr;
        size = 0;
    }
    ~Arena() { drop(); }
};

static thread_local Arena arena;

static char *allocate(int64_t bytes) {
    auto *p = static_cast<char *>(std::aligned_alloc(ALIGNMENT, static_cast<size_t>(bytes)));
    if (!p) return nullptr;
    const int64_t now = held += bytes;
    int64_t seen = most_held.load();
    while (now > seen && !most_held.compare_exchange_weak(seen, now)) {}
    return p;
}

static int64_t rounded(int64_t bytes) { return bytes < kSmallest ? kSmallest : (bytes + 4095) & ~4095ll; }

// A block of at least `bytes`, aligned to 64; null where there is no memory, or `bytes` is absurd.
void *arena_take(int64_t bytes) {
    if (bytes < 0 || bytes > (1ll << 46)) return nullptr;
    Arena &a = arena;
    if (a.taken) return allocate(rounded(bytes));
    if (!a.block || a.size < bytes || (a.wasteful > kPatience && rounded(bytes) < a.size)) {
        a.drop();
        const int64_t size = rounded(bytes);
        a.block = allocate(size);
        if (!a.block) return nullptr;
        a.size = size;
        a.wasteful = 0;
        idle += size;
    }
    a.wasteful = bytes * 4 < a.size ? a.wasteful + 1 : 0;
    a.taken = true;
    return a.block;
}

void arena_give(void *block, int64_t bytes) {
    Arena &a = arena;
    if (block != a.block) {
        std::free(block);
        held -= rounded(bytes);
        return;
    }
    a.taken = false;
    if (a.size > idle_limit.load(std::memory_order_relaxed) || idle.load(std::memory_order_relaxed) > kIdleAll) a.drop();
}

// For debugging: every float in here is a NaN from now on.
void arena_poison(void *at, int64_t bytes) {
    if (bytes > 0) std::memset(at, 0xFF, static_cast<size_t>(bytes));
}
ArenaBytes arena_bytes() { return {held.load(), most_held.load(), arena.size}; }

int64_t set_arena_limit(int64_t bytes) {
    const int64_t before = idle_limit.exchange(bytes);
    if (!arena.taken && arena.size > bytes) arena.drop();
    return before;
}

} // namespace pliant
