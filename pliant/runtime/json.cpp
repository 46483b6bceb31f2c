// JSON, read strictly: no duplicates are looked for, numbers are 64-bit integers or doubles, nesting has a limit.
#include "runtime.h"
#include <charconv>

namespace pliant::runtime {
namespace {

constexpr int kDeepest = 64;

class Parser {
  public:
    explicit Parser(std::string_view text) : p_(text.data()), end_(text.data() + text.size()) {}
    Json whole() {
        Json v = value(0);
        blank();
        if (p_ != end_) wrong();
        return v;
    }

  private:
    const char *p_, *end_;
    [[noreturn]] static void wrong() { fail("the plan is no JSON"); }
    void blank() {
        while (p_ != end_ && (*p_ == ' ' || *p_ == '\n' || *p_ == '\t' || *p_ == '\r')) p_++;
    }
    char next() {
        if (p_ == end_) wrong();
        return *p_++;
    }
    bool take(char c) {
        blank();
        if (p_ == end_ || *p_ != c) return false;
        p_++;
        return true;
    }
    void word(const char *w) {
        for (; *w; w++)
            if (next() != *w) wrong();
    }
    Json value(int depth) {
        if (depth > kDeepest) wrong();
        blank();
        if (p_ == end_) wrong();
        Json v;
        switch (*p_) {
        case '{':
            p_++;
            v.kind = Json::Table;
            if (take('}')) return v;
            do {
                blank();
                v.names.push_back(text());
                if (!take(':')) wrong();
                v.items.push_back(value(depth + 1));
            } while (take(','));
            if (!take('}')) wrong();
            return v;
        case '[':
            p_++;
            v.kind = Json::List;
            if (take(']')) return v;
            do v.items.push_back(value(depth + 1));
            while (take(','));
            if (!take(']')) wrong();
            return v;
        case '"':
            v.kind = Json::Text;
            v.text = text();
            return v;
        case 't': word("true"); v.kind = Json::Bool; v.number = 1; return v;
        case 'f': word("false"); v.kind = Json::Bool; return v;
        case 'n': word("null"); return v;
        default: return number();
        }
    }
    Json number() {
        Json v;
        v.kind = Json::Int;
        const auto r = std::from_chars(p_, end_, v.number);
        if (r.ec == std::errc() && (r.ptr == end_ || (*r.ptr != '.' && *r.ptr != 'e' && *r.ptr != 'E'))) {
            p_ = r.ptr;
            return v;
        }
        v.kind = Json::Float;
        const auto f = std::from_chars(p_, end_, v.real);
        if (f.ec != std::errc() || f.ptr == p_) wrong();
        p_ = f.ptr;
        return v;
    }
    int hex() {
        int n = 0;
        for (int i = 0; i < 4; i++) {
            const char c = next();
            const int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
            if (d < 0) wrong();
            n = n * 16 + d;
        }
        return n;
    }
    static void put(std::string &s, uint32_t c) {
        if (c < 0x80) s += static_cast<char>(c);
        else if (c < 0x800) s += static_cast<char>(0xC0 | c >> 6), s += static_cast<char>(0x80 | (c & 63));
        else if (c < 0x10000) s += static_cast<char>(0xE0 | c >> 12), s += static_cast<char>(0x80 | (c >> 6 & 63)), s += static_cast<char>(0x80 | (c & 63));
        else s += static_cast<char>(0xF0 | c >> 18), s += static_cast<char>(0x80 | (c >> 12 & 63)), s += static_cast<char>(0x80 | (c >> 6 & 63)), s += static_cast<char>(0x80 | (c & 63));
    }
    std::string text() {
        if (next() != '"') wrong();
        std::string s;
        for (;;) {
            const char c = next();
            if (c == '"') return s;
            if (static_cast<unsigned char>(c) < 0x20) wrong();
            if (c != '\\') {
                s += c;
                continue;
            }
            const char e = next();
            switch (e) {
            case '"': case '\\': case '/': s += e; break;
            case 'b': s += '\b'; break;
            case 'f': s += '\f'; break;
            case 'n': s += '\n'; break;
            case 'r': s += '\r'; break;
            case 't': s += '\t'; break;
            case 'u': {
                uint32_t u = hex();
                if (u >= 0xD800 && u < 0xDC00) {
                    if (next() != '\\' || next() != 'u') wrong();
                    const uint32_t low = hex();
                    if (low < 0xDC00 || low > 0xDFFF) wrong();
                    u = 0x10000 + ((u - 0xD800) << 10) + (low - 0xDC00);
                }
                put(s, u);
                break;
            }
            default: wrong();
            }
        }
    }
};

[[noreturn]] void not_a(const char *what) { fail("the plan is damaged: ", what, " was expected"); }

} // namespace

Json parse_json(std::string_view text) { return Parser(text).whole(); }

const Json *Json::find(std::string_view name) const {
    for (size_t i = 0; kind == Table && i < names.size(); i++)
        if (names[i] == name) return &items[i];
    return nullptr;
}
const Json &Json::operator[](std::string_view name) const {
    const Json *found = find(name);
    if (!found) not_a(std::string(name).c_str());
    return *found;
}
const Json &Json::operator[](size_t i) const {
    if (kind != List || i >= items.size()) not_a("a longer list");
    return items[i];
}
const std::vector<Json> &Json::list() const {
    if (kind != List) not_a("a list");
    return items;
}
const std::string &Json::string() const {
    if (kind != Text) not_a("a text");
    return text;
}
int64_t Json::integer() const {
    if (kind != Int) not_a("a whole number");
    return number;
}
int64_t Json::below(int64_t limit) const {
    if (kind != Int || number < 0 || number >= limit) not_a("a number that is in range");
    return number;
}

} // namespace pliant::runtime
