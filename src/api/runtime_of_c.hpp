#pragma once
// The struct behind hvd_runtime. horovod.cpp uses it, and so do tests that make runtimes themselves.
#include <memory>

#include "api/horovod.h"
#include "runtime/runtime.hpp"

struct hvd_runtime {
  std::unique_ptr<hvd::runtime::Runtime> runtime;
};

namespace hvd::api {

// usable() is true if the runtime exists and this process may use it; a forked child may not. why_unusable() returns
// the status and the text for a runtime that cannot be used.
bool usable(const hvd_runtime* runtime);
hvd_status why_unusable(const hvd_runtime* runtime);

}  // namespace hvd::api
