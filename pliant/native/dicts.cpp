// Versions of dicts. CPython 3.11 keeps one in each dict. From 3.12 on it tells watchers of a dict before that changes or goes: there
// a version is kept here for each dict that somebody asks about, and is another one when the watcher has been told.
#include "dicts.h"
#include <unordered_map>

namespace pliant {

#if PL_WATCHES_DICTS

namespace {

struct Watched {
    uint64_t version; // first: `DictVersion` has its address
    PyObject *dict;   // null once it died
    size_t holders;
};
using Table = std::unordered_map<PyObject *, Watched *>;

Table &table() { // under the GIL, as all here; never destroyed: dicts change until the process ends
    static Table &t = *new Table;
    return t;
}

uint64_t last = 0;

// The dict is about to change or to die. No Python may run here, and what is raised is lost.
int told(PyDict_WatchEvent event, PyObject *dict, PyObject *, PyObject *) {
    const auto found = table().find(dict);
    if (found == table().end()) return 0;
    Watched *w = found->second;
    w->version = ++last;
    if (event == PyDict_EVENT_DEALLOCATED) { // another may come to lie at its address
        w->dict = nullptr;
        table().erase(found);
    }
    return 0;
}

int watcher() { // -1 where all of the interpreter's are taken
    static const int id = PyDict_AddWatcher(told);
    return id;
}

// An item taken from the end and put back: such a dict keeps its values itself from then on, in the order that they had. There is room
// for the item, and its key is a str: nothing can fail, and no Python runs.
bool make_tell(PyObject *dict) {
    static PyObject *const popitem = PyObject_GetAttrString(reinterpret_cast<PyObject *>(&PyDict_Type), "popitem");
    PyObject *item = popitem && PyDict_GET_SIZE(dict) ? PyObject_CallOneArg(popitem, dict) : nullptr;
    if (item && PyDict_SetItem(dict, PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1)) < 0) PyErr_Clear();
    Py_XDECREF(item);
    return pl_dict_tells(dict);
}

} // namespace

DictVersion::DictVersion(PyObject *dict) : now_(nullptr), then_(0) {
    if (!(pl_dict_tells(dict) || make_tell(dict)) || watcher() < 0 || PyDict_Watch(watcher(), dict) < 0) {
        PyErr_Clear();
        return;
    }
    Watched *&w = table()[dict];
    if (!w) w = new Watched{++last, dict, 0};
    w->holders++;
    now_ = &w->version;
    then_ = w->version;
}

DictVersion::~DictVersion() {
    if (!now_) return;
    auto *w = reinterpret_cast<Watched *>(const_cast<uint64_t *>(now_));
    if (--w->holders) return;
    if (w->dict) {
        table().erase(w->dict);
        if (PyDict_Unwatch(watcher(), w->dict) < 0) PyErr_Clear();
    }
    delete w;
}

#else

DictVersion::DictVersion(PyObject *dict) : now_(pl_dict_version(dict)), then_(*now_) {}
DictVersion::~DictVersion() = default;

#endif

void KeptItem::watch(PyObject *dict, PyObject *name) {
    since_.reset();
    Py_XSETREF(dict_, Py_NewRef(dict));
    Py_XSETREF(name_, Py_NewRef(name));
}

PyObject *KeptItem::look_up() {
    if (!dict_) return nullptr;
    since_.reset();
    value_ = PyDict_GetItemWithError(dict_, name_);
    if (!value_) PyErr_Clear();
    since_.emplace(dict_);
    if (!since_->known()) since_.reset();
    return value_;
}

} // namespace pliant
