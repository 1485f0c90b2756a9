#pragma once
// The struct behind hvd_runtime. horovod.cpp uses it, and tests that make runtimes themselves.
#include <memory>

#include "api/horovod.h"
#include "runtime/runtime.hpp"

struct hvd_runtime {
  std::unique_ptr<hvd::runtime::Runtime> runtime;
};

namespace hvd::api {

// There is a runtime, and this process may use it: it is no forked child. Else why not, as the answer.
bool usable(const hvd_runtime* runtime);
hvd_status why_unusable(const hvd_runtime* runtime);

}  // namespace hvd::api
