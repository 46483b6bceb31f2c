// PyTorch's thread pool, by addresses that Python found (`codegen/cpu/runtime.py`). Without them the caller works alone.
#pragma once
#include <algorithm>
#include <cstdint>

namespace pliant {

struct Pool {
    void (*parallel)(void (*)(void *), void *, unsigned, unsigned) = nullptr;
    int (*number)() = nullptr, (*team)() = nullptr, (*threads)() = nullptr;
    bool (*inside)() = nullptr;
};
inline Pool pool;

// How many threads `work`, of which `grain` is worth one, should take when it falls into `parts`.
inline int64_t threads_for(double work, double grain, int64_t parts) {
    if (!pool.parallel || pool.inside()) return 1;
    return static_cast<int64_t>(std::min<double>({static_cast<double>(pool.threads()), work / grain, static_cast<double>(parts)}));
}

} // namespace pliant
