// The extension module: one init function for each file.
#include "core.h"

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "pliant.native._core", "Guards, entries and the frame hook.", -1,
                                 nullptr,               nullptr,               nullptr,                              nullptr,
                                 nullptr};

PyMODINIT_FUNC PyInit__core(void) {
    PyObject *m = PyModule_Create(&definition);
    if (!m) return nullptr;
    if (pl_layout_init(m) < 0 || pl_state_init(m) < 0 || pl_guards_init(m) < 0 || pl_entries_init(m) < 0 ||
        pl_entry_point_init(m) < 0 || pl_hook_init(m) < 0 || pl_launch_init(m) < 0 || pl_library_init(m) < 0 ||
        pl_decode_init(m) < 0 || pl_empty_init(m) < 0 || pl_lifetimes_init(m) < 0 || pl_shadows_init(m) < 0 ||
        pl_namespaces_init(m) < 0 || pl_shared_init(m) < 0 || pl_marks_init(m) < 0 || pl_sets_init(m) < 0 ||
        pl_by_identity_init(m) < 0 || pl_positions_init(m) < 0) {
        Py_DECREF(m);
        return nullptr;
    }
    return m;
}
