// torch's global state, as far as the meaning of a captured graph depends on it.
#pragma once
#include "core.h"

namespace pliant {

struct GlobalState {
    uint64_t included = 0, excluded = 0; // this thread's dispatch keys: autocast on/off, modes, functorch transforms
    int64_t function_modes = 0, dispatch_modes = 0;
    int32_t function_disabled = 0;
    uint8_t grad = 0, inference = 0, dtype = 0, cast_cpu = 0, cast_cuda = 0, cast_cache = 0;
    uint8_t deterministic = 0, warn_only = 0, fill = 0;
    uint8_t anomaly = 0; // the autograd engine looks for nans, and knows where forward calls were made
    uint8_t dual = 0; // in a level of forward-mode differentiation
    uint8_t hooks = 0; // what is saved for gradients is told to somebody
    bool operator==(const GlobalState &) const = default;
};

// Is the present state the one that `snapshot` (a native.GlobalState) recorded? Never raises; runs Python only if modes are on.
bool state_matches(PyObject *snapshot);
bool is_state(PyObject *o);
// Reading a tensor's attributes tells nobody: no `__torch_function__` of a class, no function mode. `able`: false where torch's state cannot be set.
class TorchFunctionsOff {
  public:
    TorchFunctionsOff();
    ~TorchFunctionsOff();
    TorchFunctionsOff(const TorchFunctionsOff &) = delete;
    TorchFunctionsOff &operator=(const TorchFunctionsOff &) = delete;
    bool able() const { return before_ >= 0; }

  private:
    int before_ = -1;
};
// Are no dispatch modes on in this thread? False where that is not known.
bool no_dispatch_modes();
// Does somebody in this thread hear what is saved for gradients? True where that is not known.
bool saved_heard();

} // namespace pliant
