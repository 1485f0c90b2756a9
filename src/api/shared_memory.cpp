// The C functions for memory that the ranks of a node share.
#include <memory>
#include <utility>

#include "api/answer.hpp"
#include "api/callbacks.hpp"
#include "api/runtime_of_c.hpp"

using hvd::ErrorCode;
using hvd::api::fail;
using hvd::api::refuse_in_callback;
using hvd::api::usable;
using hvd::api::why_unusable;

struct hvd_shared_hold_s {
  std::shared_ptr<void> memory;
};

extern "C" {

hvd_status hvd_shared_allocate(hvd_runtime* runtime, size_t bytes, void** memory) {
  if (!usable(runtime)) return why_unusable(runtime);
  if (refuse_in_callback("hvd_shared_allocate")) return HVD_INVALID_ARGUMENT;
  if (memory == nullptr || bytes == 0)
    return fail(ErrorCode::invalid_argument, "hvd_shared_allocate needs a size above 0 and a place for the memory");
  auto allocated = runtime->runtime->allocate_shared(bytes);
  if (!allocated) return fail(allocated.error());
  *memory = *allocated;
  return HVD_OK;
}

void hvd_shared_free(hvd_runtime* runtime, void* memory) {
  if (!usable(runtime) || memory == nullptr || refuse_in_callback("hvd_shared_free")) return;
  if (auto freed = runtime->runtime->free_shared(memory); !freed) (void)fail(freed.error());
}

hvd_shared_hold_t* hvd_shared_hold(hvd_runtime* runtime, void* memory) {
  if (!usable(runtime)) return nullptr;
  auto owner = runtime->runtime->hold_shared(memory);
  return owner ? new hvd_shared_hold_s{std::move(owner)} : nullptr;
}

void hvd_shared_drop(hvd_shared_hold_t* hold) {
  delete hold;
}

}  // extern "C"
