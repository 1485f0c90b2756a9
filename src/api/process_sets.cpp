// The C functions that add, remove and describe process sets.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "api/answer.hpp"
#include "api/callbacks.hpp"
#include "api/runtime_of_c.hpp"
#include "base/settings/config.hpp"
#include "runtime/operations/process_sets.hpp"

using hvd::ErrorCode;
using hvd::api::fail;
using hvd::api::refuse_in_callback;
using hvd::api::usable;
using hvd::api::why_unusable;

extern "C" {

hvd_status hvd_add_process_set(hvd_runtime* runtime, const int* ranks, size_t count, int* id) {
  if (!usable(runtime)) return why_unusable(runtime);
  if (refuse_in_callback("hvd_add_process_set")) return HVD_INVALID_ARGUMENT;
  if ((ranks == nullptr && count > 0) || id == nullptr)
    return fail(ErrorCode::invalid_argument, "hvd_add_process_set needs ranks and a place for the id; got null");
  if (!runtime->runtime->config().dynamic_process_sets)
    return fail(ErrorCode::invalid_argument,
                "process sets can be added and removed after the start only if HOROVOD_DYNAMIC_PROCESS_SETS=1 was set "
                "before it (hvd.init(process_sets=\"dynamic\") does that); else list them in init");
  std::vector<hvd::Rank> members;
  for (size_t i = 0; i < count; ++i) members.emplace_back(ranks[i]);
  auto added = runtime->runtime->add_process_set(members);
  if (added) return *id = *added, HVD_OK;
  std::sort(members.begin(), members.end());
  const hvd::runtime::CurrentSets sets = runtime->runtime->process_sets();
  if (const auto* known = sets->of(members)) *id = known->number;
  return fail(added.error());
}

hvd_status hvd_remove_process_set(hvd_runtime* runtime, int id) {
  if (!usable(runtime)) return why_unusable(runtime);
  if (refuse_in_callback("hvd_remove_process_set")) return HVD_INVALID_ARGUMENT;
  if (!runtime->runtime->config().dynamic_process_sets)
    return fail(ErrorCode::invalid_argument,
                "process sets can be added and removed after the start only if HOROVOD_DYNAMIC_PROCESS_SETS=1 was set "
                "before it (hvd.init(process_sets=\"dynamic\") does that)");
  if (id == 0) return fail(ErrorCode::invalid_argument, "the global process set (0) cannot be removed");
  auto removed = runtime->runtime->remove_process_set(id);
  return removed ? HVD_OK : fail(removed.error());
}

int hvd_process_set_ids(hvd_runtime* runtime, int* ids, int capacity) {
  if (!usable(runtime)) {
    (void)why_unusable(runtime);
    return -1;
  }
  std::vector<int> all;
  const hvd::runtime::CurrentSets sets = runtime->runtime->process_sets();
  for (const auto& [id, set] : sets->all()) all.push_back(set.number);
  std::sort(all.begin(), all.end());
  if (ids != nullptr)
    std::copy_n(all.begin(), std::min<size_t>(all.size(), static_cast<size_t>(std::max(capacity, 0))), ids);
  return static_cast<int>(all.size());
}

hvd_status hvd_process_set(hvd_runtime* runtime, int id, int* rank, int* size, int* ranks, int capacity) {
  if (!usable(runtime)) return why_unusable(runtime);
  auto found = runtime->runtime->process_set(id);
  if (!found) return fail(found.error());
  const std::vector<hvd::Rank>& members = found->ranks;
  auto mine = std::lower_bound(members.begin(), members.end(), runtime->runtime->world().rank);
  bool is_member = mine != members.end() && *mine == runtime->runtime->world().rank;
  if (rank != nullptr) *rank = is_member ? static_cast<int>(mine - members.begin()) : -1;
  if (size != nullptr) *size = static_cast<int>(members.size());
  for (size_t i = 0; ranks != nullptr && i < members.size() && static_cast<int>(i) < capacity; ++i)
    ranks[i] = members[i].value;
  return HVD_OK;
}

}  // extern "C"
