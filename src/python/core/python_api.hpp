#pragma once
// Includes Python.h with the limited API of Python 3.9. Every file here must include this header first.
#define Py_LIMITED_API 0x03090000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

// Python 3.9 calls METH_FASTCALL functions like every later version. Only its headers do not define the name under the
// limited API.
#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif
