#pragma once
// Python.h, held to the limited API of Python 3.9. Every file here includes it first.
#define Py_LIMITED_API 0x03090000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

// Python 3.9 calls METH_FASTCALL functions as later versions do. Only its headers hide the name from the limited API.
#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif
