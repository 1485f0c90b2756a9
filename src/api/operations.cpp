// The C functions that prepare operations and start them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/answer.hpp"
#include "api/runtime_of_c.hpp"
#include "base/closed_set.hpp"
#include "base/reduce_op.hpp"
#include "runtime/runtime.hpp"

using hvd::Error;
using hvd::ErrorCode;
using hvd::api::copy_in;
using hvd::api::fail;
using hvd::api::status_of;
using hvd::api::usable;
using hvd::api::why_unusable;
using hvd::api::wrong_struct;
using hvd::runtime::Callback;
using hvd::runtime::Ended;
using hvd::runtime::Runtime;

// A hvd_op* is the address of the Operation itself.
static hvd::runtime::Operation* from_c(hvd_op* op) {
  return reinterpret_cast<hvd::runtime::Operation*>(op);
}
static hvd_op* to_c(hvd::runtime::Operation* operation) {
  return reinterpret_cast<hvd_op*>(operation);
}

namespace {

// The C enums are cast to ours. Adasum is the first verb without a number in C.
constexpr hvd_verb last_verb = HVD_JOIN;
constexpr hvd_dtype last_dtype = HVD_UINT64;
constexpr hvd_device last_device = HVD_ROCM;
static_assert(last_dtype + 1 == hvd::data_type_count && last_device + 1 == hvd::device_kind_count &&
              last_verb + 1 == static_cast<int>(hvd::Verb::adasum));

struct ReduceOpOfC {
  const char* name;
  hvd::ReduceOp op;
};
constexpr std::optional<ReduceOpOfC> row_of(hvd_reduce_op op) {
  switch (op) {
    case HVD_AVERAGE: return ReduceOpOfC{"average", hvd::ReduceOp::sum};  // with 1/n in the postscale
    case HVD_SUM: return ReduceOpOfC{"sum", hvd::ReduceOp::sum};
    case HVD_ADASUM: return ReduceOpOfC{"Adasum", hvd::ReduceOp::sum};  // a verb of ours
    case HVD_MIN: return ReduceOpOfC{"min", hvd::ReduceOp::min};
    case HVD_MAX: return ReduceOpOfC{"max", hvd::ReduceOp::max};
    case HVD_PRODUCT: return ReduceOpOfC{"product", hvd::ReduceOp::product};
  }
  return std::nullopt;
}
constexpr std::size_t count_in_c = hvd::count_of<hvd_reduce_op>([](hvd_reduce_op op) { return row_of(op); });
static_assert(count_in_c == hvd::reduce_op_count + 2);  // average and Adasum are no ReduceOp

hvd_status read_reduction(const hvd_op_description& description, int size, hvd::runtime::Signature& signature) {
  signature.prescale = description.prescale;
  signature.postscale = description.postscale;
  const auto row = row_of(description.reduce_op);
  if (!row) {
    std::string known;
    for (std::size_t op = 0; op < count_in_c; ++op)
      known += (op == 0                ? ""
                : op + 1 == count_in_c ? " or "
                                       : ", ") +
               (row_of(static_cast<hvd_reduce_op>(op))->name + (" (" + std::to_string(op) + ")"));
    return fail(ErrorCode::invalid_argument,
                "reduce operation " + std::to_string(description.reduce_op) + " is not known; expected " + known);
  }
  signature.op = row->op;
  if (description.reduce_op == HVD_AVERAGE) signature.postscale *= 1.0 / size;
  if (description.reduce_op != HVD_ADASUM) return HVD_OK;
  if (signature.verb != hvd::Verb::allreduce)
    return fail(ErrorCode::unsupported, "reducescatter does sums and averages, not Adasum");
  signature.verb = hvd::Verb::adasum;
  return HVD_OK;
}

std::string describe_place(hvd_device kind, int ordinal) {
  if (kind < HVD_HOST || kind > last_device) return "unknown memory (" + std::to_string(kind) + ")";
  return kind == HVD_HOST ? "the host" : hvd::devices::describe(static_cast<hvd::DeviceKind>(kind), ordinal);
}

// `size` is the number of ranks in the process set.
hvd_status read_description(const hvd_op_description& description, int size, hvd::runtime::Signature& signature) {
  auto invalid = [](const std::string& text) { return fail(ErrorCode::invalid_argument, text); };
  if (description.name == nullptr) return invalid("an operation needs a name; hvd_op_description.name is null");
  if (description.verb < HVD_ALLREDUCE || description.verb > last_verb)
    return invalid("hvd_op_description.verb is " + std::to_string(description.verb) + "; expected an hvd_verb");
  if (description.dtype < HVD_BOOL || description.dtype > last_dtype)
    return invalid("hvd_op_description.dtype is " + std::to_string(description.dtype) + "; expected an hvd_dtype");
  if (description.dimensions < 0 || description.dimensions > HVD_MAX_DIMENSIONS)
    return invalid("hvd_op_description.dimensions is " + std::to_string(description.dimensions) + "; expected 0 to " +
                   std::to_string(HVD_MAX_DIMENSIONS));
  if (description.dimensions > 0 && description.shape == nullptr) return invalid("hvd_op_description.shape is null");
  if (description.device < HVD_HOST || description.device > last_device)
    return invalid("hvd_op_description.device is " + std::to_string(description.device) + "; expected an hvd_device");
  signature.verb = static_cast<hvd::Verb>(description.verb);
  signature.dtype = static_cast<hvd::DataType>(description.dtype);
  signature.transient = description.transient != 0;
  if (description.group != nullptr) signature.group = std::hash<std::string_view>{}(description.group) | 1;
  const hvd::VerbRow& row = signature.row();
  if (row.has_tensor()) signature.device = static_cast<hvd::DeviceKind>(description.device);
  if (row.has_tensor()) signature.shape.assign(description.shape, description.shape + description.dimensions);
  if (row.agreed == hvd::VerbRow::Agreed::all_but_first && !signature.shape.empty()) signature.shape[0] = 0;
  if (row.has_root()) signature.root = hvd::Rank{description.root_rank};
  return row.reduces() ? read_reduction(description, size, signature) : HVD_OK;
}

// Checks that there is a number of rows for each rank, and that the sum of these numbers is the input's number of rows.
hvd_status check_splits(const hvd_start_arguments& use, const hvd::runtime::Operation& operation, size_t members) {
  auto invalid = [&](const std::string& text) {
    return fail(ErrorCode::invalid_argument, "alltoall '" + operation.entry->name + "': " + text);
  };
  if (use.splits == nullptr) {
    if (use.first_dimension % static_cast<int64_t>(members) == 0) return HVD_OK;
    return invalid("without splits the " + std::to_string(use.first_dimension) + " rows have to be a multiple of the " +
                   std::to_string(members) + " ranks; give the rows for each rank as splits");
  }
  if (use.split_count != members)
    return invalid("splits has " + std::to_string(use.split_count) + " numbers; expected one for each of the " +
                   std::to_string(members) + " ranks");
  int64_t rows = 0;
  for (size_t i = 0; i < members; ++i) {
    if (use.splits[i] < 0) return invalid("splits[" + std::to_string(i) + "] is " + std::to_string(use.splits[i]));
    if (__builtin_add_overflow(rows, use.splits[i], &rows)) rows = INT64_MAX;
  }
  if (rows <= use.first_dimension) return HVD_OK;
  return invalid("splits add up to " + std::to_string(rows) + " rows; the tensor has " +
                 std::to_string(use.first_dimension));
}

// Refuses an output that shares a part of the input's memory. Results there would depend on which rank is first.
hvd_status check_overlap(const hvd_start_arguments& use, const hvd::runtime::Operation& operation,
                         const Runtime& runtime) {
  const auto in = reinterpret_cast<std::uintptr_t>(use.input), out = reinterpret_cast<std::uintptr_t>(use.output);
  const std::uintptr_t input_bytes = static_cast<std::uintptr_t>(operation.count) * size_of(operation.signature.dtype);
  const std::uintptr_t distance = out > in ? out - in : in - out;
  if (distance == 0 || distance >= input_bytes) return HVD_OK;
  if (operation.signature.row().outcome == hvd::VerbRow::Outcome::share) {
    auto sets = runtime.process_sets();
    const auto* set = sets->find(operation.entry->set);
    if (set == nullptr) return HVD_OK;  // a removed set is refused later
    const auto mine = std::lower_bound(set->ranks.begin(), set->ranks.end(), runtime.world().rank);
    const int64_t rows = operation.signature.shape[0];
    const int64_t share =
        hvd_rows_of(rows, static_cast<int>(mine - set->ranks.begin()), static_cast<int>(set->ranks.size()));
    const auto output_bytes = input_bytes / static_cast<std::uintptr_t>(rows) * static_cast<std::uintptr_t>(share);
    if (output_bytes == 0 || (out < in && distance >= output_bytes)) return HVD_OK;
  }
  return fail(ErrorCode::invalid_argument,
              "'" + operation.entry->name +
                  "': input and output overlap; give the same memory for both, or memory without a common part");
}

hvd_status check_use(const hvd_start_arguments& use, const Runtime& runtime) {
  if (use.op == nullptr) return fail(ErrorCode::invalid_argument, "hvd_start_arguments.op is null");
  const hvd::runtime::Operation& operation = *from_c(use.op);
  const hvd::VerbRow& row = operation.signature.row();
  if (use.stream != nullptr && operation.signature.device == hvd::DeviceKind::host)
    return fail(ErrorCode::invalid_argument, "hvd_start_arguments.stream is given for a tensor in host memory");
  bool has_rows_of_its_own = row.agreed == hvd::VerbRow::Agreed::all_but_first;
  if (has_rows_of_its_own && use.first_dimension < 0)
    return fail(ErrorCode::invalid_argument,
                "first_dimension is " + std::to_string(use.first_dimension) + "; expected 0 or more");
  bool has_input = operation.count > 0 && (!has_rows_of_its_own || use.first_dimension > 0);
  bool needs_output = row.outcome == hvd::VerbRow::Outcome::as_input;
  if (has_input && (use.input == nullptr || (needs_output && use.output == nullptr)))
    return fail(ErrorCode::invalid_argument,
                "'" + operation.entry->name + "' has elements and needs " +
                    (needs_output ? "an input and an output" : "an input") +
                    "; got null: the tensor has no memory of its own (a meta tensor, a wrapper of others)");
  if (use.output != use.input && use.output != nullptr && use.input != nullptr &&
      row.agreed == hvd::VerbRow::Agreed::shape)
    if (hvd_status status = check_overlap(use, operation, runtime); status != HVD_OK) return status;
  if (row.sizes != hvd::VerbRow::Sizes::splits) return HVD_OK;
  auto sets = runtime.process_sets();
  const hvd::runtime::ProcessSet* set = sets->find(operation.entry->set);
  return set == nullptr ? HVD_OK : check_splits(use, operation, set->ranks.size());  // a removed set is refused later
}

hvd_status status_of_end(const Ended& ended) {
  return ended.error == nullptr ? HVD_OK : status_of(ended.error->code);
}
const char* message_of_end(const Ended& ended) {
  return ended.error == nullptr ? "" : ended.error->message.c_str();
}

// Both call a function of a program.
void call_on_done(const Callback& callback, const Ended& ended) {
  using OnDone = void (*)(void*, hvd_status, const char*);
  reinterpret_cast<OnDone>(callback.function)(callback.context, status_of_end(ended), message_of_end(ended));
}
void call_on_end(const Callback& callback, const Ended& ended) {
  using OnEnd = void (*)(void*, const hvd_completion*);
  const hvd_completion completion{sizeof completion,     status_of_end(ended),
                                  message_of_end(ended), static_cast<hvd_runtime*>(callback.owner),
                                  ended.handle,          ended.index};
  reinterpret_cast<OnEnd>(callback.function)(callback.context, &completion);
}

hvd_status take_functions(const hvd_start_arguments& use, hvd_runtime* runtime, hvd::runtime::Start& start) {
  const hvd::runtime::Operation& operation = *start.operation;
  auto refuse = [&](ErrorCode code, const std::string& text) {
    return fail(code, "'" + operation.entry->name + "': " + text);
  };
  if (use.on_done != nullptr && use.on_end != nullptr)
    return refuse(ErrorCode::invalid_argument, "on_done and on_end are given; give one of them");
  if (use.callback_thread != HVD_ENGINE_THREAD && use.callback_thread != HVD_CALLBACK_THREAD)
    return refuse(ErrorCode::invalid_argument, "hvd_start_arguments.callback_thread is " +
                                                   std::to_string(use.callback_thread) +
                                                   "; expected an hvd_callback_thread");
  if (use.allocate != nullptr && operation.signature.device != hvd::DeviceKind::host)
    return refuse(ErrorCode::unsupported, "allocate is for results in host memory; take the result in " +
                                              std::string(name_of(operation.signature.device)) +
                                              " memory by hvd_result_take");
  Callback& callback = start.on_done;
  if (use.on_done != nullptr) {
    callback.tell = &call_on_done;
    callback.function = reinterpret_cast<void (*)()>(use.on_done);
  } else if (use.on_end != nullptr) {
    callback.tell = &call_on_end;
    callback.function = reinterpret_cast<void (*)()>(use.on_end);
  }
  callback.context = use.context;
  callback.owner = runtime;
  callback.on_its_own_thread = callback.tell != nullptr && use.callback_thread == HVD_CALLBACK_THREAD;
  start.allocate = {use.allocate, use.context};
  return HVD_OK;
}

}  // namespace

extern "C" {

int64_t hvd_rows_of(int64_t rows, int place, int size) {
  if (rows < 0 || size < 1 || place < 0 || place >= size) return -1;
  return rows / size + (place < rows % size ? 1 : 0);
}

hvd_status hvd_prepare(hvd_runtime* runtime, const hvd_op_description* description, hvd_op** op) {
  if (!usable(runtime)) return why_unusable(runtime);
  if (description == nullptr || op == nullptr)
    return fail(ErrorCode::invalid_argument, "hvd_prepare needs a description and a place for the operation; got null");
  hvd_op_description given;
  constexpr size_t first_size = offsetof(hvd_op_description, device);
  if (hvd_status status = copy_in("hvd_op_description", description, first_size, given); status != HVD_OK)
    return status;
  int size = runtime->runtime->world().size();
  if (given.process_set != 0) {
    auto set = runtime->runtime->process_set(given.process_set);
    if (!set) return fail(set.error());
    size = static_cast<int>(set->ranks.size());
  }
  hvd::runtime::Signature signature;
  if (hvd_status status = read_description(given, size, signature); status != HVD_OK) return status;
  // A rank that joins may say by which device it takes part.
  const bool joins = signature.verb == hvd::Verb::join && runtime->runtime->has_device(hvd::DeviceKind(given.device));
  const hvd::DeviceKind kind = joins ? hvd::DeviceKind(given.device) : signature.device;
  if (given.has_output_device != 0 && signature.row().has_tensor() &&
      (given.output_device != given.device || given.output_device_ordinal != given.device_ordinal))
    return fail(ErrorCode::invalid_argument, "'" + std::string(given.name) + "': the input is on " +
                                                 describe_place(given.device, given.device_ordinal) +
                                                 ", the output on " +
                                                 describe_place(given.output_device, given.output_device_ordinal) +
                                                 "; both have to be on one device");
  if (auto opened = runtime->runtime->open_device(kind, given.device_ordinal, given.process_set); !opened)
    return fail(opened.error().code, "'" + std::string(given.name) + "': " + opened.error().message);
  auto prepared = runtime->runtime->prepare(given.name, std::move(signature), given.process_set);
  if (!prepared) return fail(prepared.error());
  *op = to_c(*prepared);
  return HVD_OK;
}

void hvd_op_release(hvd_runtime* runtime, hvd_op* op) {
  if (usable(runtime) && op != nullptr) runtime->runtime->release(*from_c(op));
}

hvd_status hvd_start(hvd_runtime* runtime, const hvd_start_arguments* arguments, size_t count, hvd_handle* handle) {
  if (!usable(runtime)) return why_unusable(runtime);
  if (arguments == nullptr || handle == nullptr || count == 0)
    return fail(ErrorCode::invalid_argument, "hvd_start needs at least one operation and a place for the handle");
  // A few starts fit into memory on the stack. That memory is not cleared first, because clearing it would cost more
  // than one start.
  std::byte on_stack[16 * sizeof(hvd::runtime::Start)];
  std::pmr::monotonic_buffer_resource room(on_stack, sizeof on_stack);
  std::pmr::vector<hvd::runtime::Start> starts(&room);
  starts.reserve(count);
  // The least size is that of the first release in which the struct begins with its size. Fields added later are not
  // required.
  constexpr size_t least = offsetof(hvd_start_arguments, context) + sizeof(void*);
  const size_t step = arguments->struct_size;
  for (size_t i = 0; i < count; ++i) {
    hvd_start_arguments use;
    const auto* place = reinterpret_cast<const std::byte*>(arguments) + i * step;
    const auto* given = reinterpret_cast<const hvd_start_arguments*>(place);
    if (step == sizeof use) use = *given;
    else if (hvd_status status = copy_in("hvd_start_arguments", given, least, use); status != HVD_OK) return status;
    if (use.struct_size != sizeof use) return wrong_struct("hvd_start_arguments", sizeof use, use.struct_size);
    if (hvd_status status = check_use(use, *runtime->runtime); status != HVD_OK) return status;
    hvd::runtime::Start& start = starts.emplace_back();
    start.operation = from_c(use.op);
    start.input = use.input;
    start.output = use.output;
    start.first_dimension = use.first_dimension;
    start.stream = {use.stream};
    if (use.splits != nullptr) start.splits = {use.splits, use.split_count};
    if (use.on_done == nullptr && use.on_end == nullptr && use.allocate == nullptr) continue;
    if (hvd_status status = take_functions(use, runtime, start); status != HVD_OK) return status;
  }
  // The handle is written in submit(), and not here again: a callback may read it meanwhile.
  auto number = runtime->runtime->submit(starts, handle);
  return number ? HVD_OK : fail(number.error());
}

}  // extern "C"
