// What segments call: library routines and the arena. Nothing of Python, so that the runtime without Python (pliant/runtime) has them too.
#pragma once
#include <cstdint>
#include <utility>

namespace pliant {

// A routine gets one box of arguments, filled by the segment, and returns 0 or why it stopped.
using Routine = int32_t(const void *);

// Of matrix products: our own loops for vectors of so many bits, or, for 0, the BLAS whose sgemm_ and cblas_sgemm_batch are at these addresses
// (0: as they were; with none at all, loops without vectors).
Routine *gemm_routine(uint64_t single, uint64_t batch, int64_t bits);
Routine *attention_routine(int64_t bits); // null where this machine has no such vectors
Routine *convolution_routine();           // null where this machine has none
Routine *plain_attention();               // these run everywhere
int32_t plain_convolution(const void *);
Routine *int8_routine(int64_t bits, bool tiles); // of products of int8; `tiles`: those of the processor, if it has some
Routine *dynamic_linear_routine(int64_t bits, bool tiles); // of `quantized::linear_dynamic`
Routine *float_routine(int64_t bits, bool tiles);          // of products of f32 with weights of int8
std::pair<Routine *, Routine *> lstm_routines(int64_t bits); // one direction of a layer, forward and back; null as above

struct ArenaBytes {
    int64_t held, most, mine; // of all threads now, the most there ever were, of this thread
};
// A block of at least `bytes`, aligned to 64; null where there is no memory, or `bytes` is absurd.
void *arena_take(int64_t bytes);
void arena_give(void *block, int64_t bytes);
void arena_poison(void *at, int64_t bytes); // for debugging: every float in here is a NaN from now on
ArenaBytes arena_bytes();
int64_t set_arena_limit(int64_t bytes); // a thread's block beyond it is freed when a segment has ended; the limit before

} // namespace pliant
