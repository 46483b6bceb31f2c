// Whether a dict changed since it was looked at.
#pragma once
#include "core.h"
#include <optional>

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

// An item of a namespace that lives as long as the process: looked up again only when the namespace has changed.
class KeptItem {
  public:
    void watch(PyObject *dict, PyObject *name); // holds both
    PyObject *get() { return since_ && since_->same() ? value_ : look_up(); } // borrowed; null if there is none, without an exception
  private:
    PyObject *look_up();
    PyObject *dict_ = nullptr, *name_ = nullptr, *value_ = nullptr; // the dict holds the value while it is the same
    std::optional<DictVersion> &since_ = *new std::optional<DictVersion>; // not destroyed: by the end of the process Python has gone
};

} // namespace pliant
