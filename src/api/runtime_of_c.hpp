#pragma once
// The struct behind hvd_runtime. horovod.cpp uses it, and tests that make runtimes themselves.
#include <memory>

#include "runtime/runtime.hpp"

struct hvd_runtime {
  std::unique_ptr<hvd::runtime::Runtime> runtime;
};
