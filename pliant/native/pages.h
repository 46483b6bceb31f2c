// Memory that holds machine code: an image (`codegen/cpu/image.py`) and behind it the addresses of what it imports.
#pragma once
#include <cstddef>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace pliant {

class Pages {
  public:
    Pages() = default;
    Pages(const Pages &) = delete;
    Pages &operator=(const Pages &) = delete;
    ~Pages() {
        if (at_) munmap(at_, size_);
    }
    // False with errno: there is no memory, or the system does not let it be made executable. `size`: whole pages.
    bool fill(const void *code, size_t size, const void *const *imports, size_t count) {
        const size_t page = page_size(), table = (count * sizeof(void *) + page - 1) / page * page;
        void *p = mmap(nullptr, size + table, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) return false;
        at_ = static_cast<char *>(p);
        size_ = size + table;
        std::memcpy(at_, code, size);
        if (count) std::memcpy(at_ + size, imports, count * sizeof(void *));
        return !mprotect(at_, size, PROT_READ | PROT_EXEC) && !(table && mprotect(at_ + size, table, PROT_READ));
    }
    char *at() const { return at_; }
    static size_t page_size() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

  private:
    char *at_ = nullptr;
    size_t size_ = 0;
};

} // namespace pliant
