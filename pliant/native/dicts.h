// Whether a dict changed since it was looked at.
#pragma once
#include "core.h"

namespace pliant {

// The state of a dict at the time this is made.
class DictVersion {
  public:
    explicit DictVersion(PyObject *dict);
    DictVersion(DictVersion &&other) noexcept : now_(other.now_), then_(other.then_) { other.now_ = nullptr; }
    DictVersion(const DictVersion &) = delete;
    DictVersion &operator=(DictVersion &&) = delete;
    ~DictVersion();
    bool known() const { return now_ != nullptr; } // else nobody tells of changes
    bool same() const { return *now_ == then_; }   // the dict must be alive
  private:
    const uint64_t *now_; // where a number stands that changes with the dict, and is never that of another state of any dict
    uint64_t then_;
};

} // namespace pliant
