#pragma once
// What a C program holds: the object behind hvd_runtime. For horovod.cpp, and for tests that make runtimes of their
// own.
#include <memory>

#include "runtime/runtime.hpp"

struct hvd_runtime {
  std::unique_ptr<hvd::runtime::Runtime> runtime;
};
