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

inline int64_t pieces(int64_t n, int64_t of) { return (n + of - 1) / of; }

// f(low, high) for all of [0, total), cut between so many threads.
template <class F> void shared(int64_t threads, int64_t total, const F &f) {
    struct Job {
        const F &f;
        int64_t total;
    } job{f, total};
    const auto part = [](void *data) {
        const auto &j = *static_cast<Job *>(data);
        const int64_t number = pool.number(), team = pool.team();
        j.f(j.total * number / team, j.total * (number + 1) / team);
    };
    if (threads > 1) pool.parallel(part, &job, static_cast<unsigned>(threads), 0);
    else f(0, total);
}

} // namespace pliant
