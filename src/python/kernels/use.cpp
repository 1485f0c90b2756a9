#include "python/kernels/use.hpp"

#include <utility>

#include "python/kernels/entered.hpp"
#include "python/kernels/lines.hpp"

namespace hvd::kernels {

namespace {

void note(Ending& ending, hvd_status status, const char* message) {
  if (status != HVD_OK && ending.status == HVD_OK) ending = {status, message};
}

// True if the operation of one is that of the other. Rows of a result whose size no rank knows are those of one use.
bool is_same(const Description& left, const Description& right) {
  if (left.verb != right.verb || (left.verb != HVD_ALLGATHER && left.verb != HVD_ALLTOALL)) return left == right;
  if (left.shape.empty() || left.shape.size() != right.shape.size()) return left == right;
  Description with_rows_of_right = left;
  with_rows_of_right.shape[0] = right.shape[0];
  return with_rows_of_right == right;
}

// Prepares the operation of a member, unless the last use of the name has left the same one.
hvd_status prepare(hvd_runtime* runtime, const Use& use, const Member& member, Line& line) {
  if (line.op != nullptr) {
    if (is_same(line.what, member.what)) return HVD_OK;
    hvd_op_release(runtime, line.op);
  }
  line.op = nullptr;
  hvd_op_description description{};
  description.struct_size = sizeof description;
  description.name = member.name.c_str();
  description.verb = member.what.verb;
  description.dtype = member.what.dtype;
  description.reduce_op = member.what.reduce_op;
  description.dimensions = static_cast<int>(member.what.shape.size());
  description.shape = member.what.shape.data();
  description.prescale = member.what.prescale;
  description.postscale = member.what.postscale;
  description.root_rank = member.what.root_rank;
  description.process_set = use.process_set;
  description.device = member.what.device;
  description.device_ordinal = member.what.ordinal;
  description.group = member.what.group.empty() ? nullptr : member.what.group.c_str();
  const hvd_status status = hvd_prepare(runtime, &description, &line.op);
  line.what = member.what;
  return status;
}

void* allocate(void* context, int dimensions, const std::int64_t* shape, std::size_t bytes) {
  const auto& part = *static_cast<const Turn::Part*>(context);
  return part.turn->use->allocate(part.member, dimensions, shape, bytes);
}

void has_ended(void* context, const hvd_completion* completion);

hvd_status start(hvd_runtime* runtime, Turn& turn) {
  const Use& use = *turn.use;
  void* const stream = use.stream;  // the use may be gone when hvd_start() returns
  std::vector<hvd_start_arguments> all;
  all.reserve(use.members.size());
  turn.left = use.members.size();
  turn.parts.clear();
  for (std::size_t i = 0; i < use.members.size(); ++i) turn.parts.push_back({&turn, i});
  for (std::size_t i = 0; i < use.members.size(); ++i) {
    const Member& member = use.members[i];
    if (hvd_status status = prepare(runtime, use, member, *turn.lines[i]); status != HVD_OK) return status;
    hvd_start_arguments& arguments = all.emplace_back(hvd_use_of(turn.lines[i]->op, member.input, member.output));
    arguments.first_dimension = member.what.shape.empty() ? 0 : member.what.shape[0];
    arguments.splits = member.splits.empty() ? nullptr : member.splits.data();
    arguments.split_count = member.splits.size();
    arguments.context = &turn.parts[i];
    arguments.on_end = &has_ended;
    arguments.callback_thread = HVD_CALLBACK_THREAD;
    arguments.stream = stream;
    if (member.output == nullptr && stream == nullptr) arguments.allocate = &allocate;
  }
  hvd_handle handle = 0;
  const hvd_status status = hvd_start(runtime, all.data(), all.size(), &handle);
  if (status == HVD_OK && stream == nullptr) hvd_release(runtime, handle);  // else the end needs it
  return status;
}

using Refused = std::vector<std::unique_ptr<Turn>>;

// Starts the turns, which are first in their lines. One that cannot be started lets others begin. Returns those; the
// caller ends them when it needs the runtime no more, because that runs code of the program.
[[nodiscard]] Refused start_all(hvd_runtime* runtime, std::vector<Turn*> turns) {
  Refused refused;
  while (!turns.empty()) {
    Turn* turn = turns.back();
    turns.pop_back();
    const hvd_status status = start(runtime, *turn);  // if it succeeds, the turn may be gone now
    if (status == HVD_OK) continue;
    turn->ending = {status, hvd_last_error()};
    for (Turn* next : lines().leave(*turn)) turns.push_back(next);
    refused.emplace_back(turn);
  }
  return refused;
}

void end_all(const Refused& refused) {
  for (const auto& turn : refused) turn->use->end(turn->ending);
}

// All operations of the turn have ended for the host. Lets the framework's stream wait for them on the device, also if
// one has failed: the others may still use their memory. Then takes the results.
void end_on_device(Turn& turn, hvd_completion completion) {
  const hvd_status status = hvd_wait(completion.runtime, completion.handle, -1);
  note(turn.ending, status, hvd_last_error());
  for (completion.index = 0; turn.ending.status == HVD_OK && completion.index < turn.use->members.size();
       ++completion.index)
    turn.use->take(completion.index, completion);
  hvd_release(completion.runtime, completion.handle);
}

// The thread for callbacks calls this for each operation. The last one of a turn ends it.
void has_ended(void* context, const hvd_completion* completion) {
  const auto part = *static_cast<const Turn::Part*>(context);
  note(part.turn->ending, completion->status, completion->message);
  const bool is_on_device = part.turn->use->stream != nullptr;
  if (completion->status == HVD_OK && !is_on_device) part.turn->use->take(part.member, *completion);
  if (--part.turn->left > 0) return;
  if (is_on_device) end_on_device(*part.turn, *completion);
  const std::unique_ptr<Turn> turn(part.turn);
  const Refused refused = start_all(completion->runtime, lines().leave(*turn));
  turn->use->end(turn->ending);
  end_all(refused);
}

}  // namespace

void submit(std::unique_ptr<Use> use) {
  auto turn = std::make_unique<Turn>();
  turn->use = std::move(use);
  Refused refused;
  if (const Entered entered; entered) {
    turn->generation = entered.generation();
    Turn* const joined = turn.release();  // the one that ends it owns it
    if (lines().join(*joined)) refused = start_all(entered.runtime(), {joined});
  } else {
    turn->ending = {entered.status(), entered.message()};
    refused.push_back(std::move(turn));
  }
  end_all(refused);
}

std::size_t known_names() {
  return lines().size();
}

}  // namespace hvd::kernels
