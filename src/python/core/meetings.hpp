#pragma once
// Meetings for Python (hvd_meeting_open). A meeting is a capsule, which closes it when it is destroyed.
#include "python/core/python_api.hpp"

namespace hvd::python {

PyObject* meeting_open(PyObject*, PyObject* arguments);
PyObject* meeting_enter(PyObject*, PyObject* arguments);
PyObject* meeting_variables(PyObject*, PyObject* arguments);
PyObject* meeting_rank_ended(PyObject*, PyObject* arguments);
PyObject* meeting_put(PyObject*, PyObject* arguments);
PyObject* meeting_put_from(PyObject*, PyObject* arguments);
PyObject* meeting_get(PyObject*, PyObject* arguments);
PyObject* meeting_get_into(PyObject*, PyObject* arguments);

}  // namespace hvd::python
