// A program's file: a zip, mapped into memory. Every number in it is looked at before it is believed.
#include "runtime.h"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pliant::runtime {
namespace {

template <class T> T at(const char *p) {
    T v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

uint32_t checksum(std::string_view data) {
    static const auto table = [] {
        std::vector<uint32_t> t(256);
        for (uint32_t n = 0; n < 256; n++) {
            uint32_t c = n;
            for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ c >> 1 : c >> 1;
            t[n] = c;
        }
        return t;
    }();
    uint32_t c = ~0u;
    for (const char b : data) c = table[(c ^ static_cast<unsigned char>(b)) & 255] ^ c >> 8;
    return ~c;
}

constexpr uint32_t kEnd = 0x06054B50, kEntry = 0x02014B50, kLocal = 0x04034B50, kEnd64 = 0x06064B50, kLocator = 0x07064B50;

} // namespace

Archive::Archive(const char *path) : path_(path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail(path_, " cannot be read: ", std::strerror(errno));
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        fail(path_, " is no file");
    }
    size_ = static_cast<uint64_t>(st.st_size);
    void *p = size_ ? mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (p == MAP_FAILED) fail(path_, " is empty, or cannot be mapped");
    data_ = static_cast<const char *>(p);
    try {
        read_directory();
    } catch (...) {
        munmap(const_cast<char *>(data_), size_);
        throw;
    }
}

Archive::~Archive() { munmap(const_cast<char *>(data_), size_); }

void Archive::read_directory() {
    if (size_ < 22) fail(path_, " is no saved program");
    uint64_t end = size_ - 22;
    const uint64_t stop = end > 65535 ? end - 65535 : 0;
    while (at<uint32_t>(data_ + end) != kEnd) {
        if (end == stop) fail(path_, " is no saved program, or is truncated");
        end--;
    }
    uint64_t count = at<uint16_t>(data_ + end + 10), size = at<uint32_t>(data_ + end + 12), offset = at<uint32_t>(data_ + end + 16);
    if ((count == 0xFFFF || size == 0xFFFFFFFF || offset == 0xFFFFFFFF) && end >= 20 && at<uint32_t>(data_ + end - 20) == kLocator) {
        const uint64_t far = at<uint64_t>(data_ + end - 20 + 8);
        if (far > size_ || size_ - far < 56 || at<uint32_t>(data_ + far) != kEnd64) fail(path_, " is damaged");
        count = at<uint64_t>(data_ + far + 32), size = at<uint64_t>(data_ + far + 40), offset = at<uint64_t>(data_ + far + 48);
    }
    if (offset > end || size > end - offset) fail(path_, " is damaged: its directory does not fit");
    const char *p = data_ + offset, *last = p + size;
    for (uint64_t i = 0; i < count; i++) {
        if (last - p < 46 || at<uint32_t>(p) != kEntry) fail(path_, " is damaged: its directory");
        const uint64_t n = at<uint16_t>(p + 28), extra = at<uint16_t>(p + 30), comment = at<uint16_t>(p + 32);
        if (static_cast<uint64_t>(last - p) < 46 + n + extra + comment) fail(path_, " is damaged: its directory");
        Member m{std::string(p + 46, n), at<uint32_t>(p + 42), at<uint32_t>(p + 24), at<uint32_t>(p + 16), at<uint16_t>(p + 10)};
        const uint64_t packed = at<uint32_t>(p + 20);
        const char *e = p + 46 + n, *stop_extra = e + extra;
        while (stop_extra - e >= 4) {
            const uint16_t id = at<uint16_t>(e), length = at<uint16_t>(e + 2);
            if (stop_extra - e - 4 < length) break;
            const char *q = e + 4, *q_end = q + length;
            if (id == 1) {
                if (m.size == 0xFFFFFFFF && q_end - q >= 8) m.size = at<uint64_t>(q), q += 8;
                if (packed == 0xFFFFFFFF && q_end - q >= 8) q += 8;
                if (m.offset == 0xFFFFFFFF && q_end - q >= 8) m.offset = at<uint64_t>(q);
            }
            e += 4 + length;
        }
        members_.push_back(std::move(m));
        p += 46 + n + extra + comment;
    }
}

bool Archive::has(std::string_view name) const {
    for (const Member &m : members_)
        if (m.name == name) return true;
    return false;
}

std::string_view Archive::member(std::string_view name, bool checked) const {
    for (const Member &m : members_) {
        if (m.name != name) continue;
        if (m.method != 0) fail(std::string(name), " is compressed in ", path_, ": it is mapped, so it must be stored");
        if (m.offset > size_ || size_ - m.offset < 30 || at<uint32_t>(data_ + m.offset) != kLocal) fail(path_, " is damaged: ", m.name);
        const uint64_t head = 30 + at<uint16_t>(data_ + m.offset + 26) + at<uint16_t>(data_ + m.offset + 28);
        if (size_ - m.offset < head || size_ - m.offset - head < m.size) fail(path_, " is truncated: ", m.name);
        const std::string_view found(data_ + m.offset + head, m.size);
        if (checked && checksum(found) != m.crc) fail(path_, " is damaged: the checksum of ", m.name);
        return found;
    }
    fail(path_, " has no ", std::string(name), ": it was saved, but not compiled (program.compile)");
}

} // namespace pliant::runtime
