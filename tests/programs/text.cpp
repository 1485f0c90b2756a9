#include <sstream>

#include "programs/program.hpp"

namespace hvd::programs {

namespace {

constexpr const char* verb_names[] = {"allreduce",     "allgather", "broadcast", "barrier",
                                      "reducescatter", "alltoall",  "join"};
constexpr const char* type_names[] = {"bool",    "uint8",    "int8",    "uint16",  "int16",  "int32", "int64",
                                      "float16", "bfloat16", "float32", "float64", "uint32", "uint64"};
constexpr const char* op_names[] = {"average", "sum", "adasum", "min", "max", "product"};
constexpr const char* fault_names[] = {"none", "dtype", "shape", "op", "root", "scale", "verb", "use", "no rows"};
constexpr const char* change_names[] = {"add", "remove", "add again", "remove an unknown one", "disagree about"};

template <typename T>
std::string list_of(const std::vector<T>& all) {
  std::string text;
  for (const T& it : all) text += (text.empty() ? "" : ",") + std::to_string(it);
  return "[" + text + "]";
}

void describe(const Use& use, int number, std::ostringstream& out) {
  out << "    use " << number << " '" << (use.name.size() > 40 ? "nnn…" + std::to_string(use.name.size()) : use.name)
      << "' set " << use.set << (use.is_transient ? " transient" : "");
  if (use.group != 0) out << " group " << use.group;
  for (std::size_t i = 0; i < use.kinds.size(); ++i) out << (i == 0 ? ": " : "; then ") << text_of(use.kinds[i]);
  if (use.kinds.size() > 1) out << "; period " << use.period;
  if (use.steps != ~0ull) out << "; steps " << std::hex << use.steps << std::dec;
  if (use.fault != Fault::none)
    out << "; FAULT " << fault_names[static_cast<int>(use.fault)] << " in step " << use.fault_step << " by place "
        << use.odd_place;
  out << '\n';
}

}  // namespace

std::string text_of(const Kind& kind) {
  std::ostringstream out;
  out << verb_names[kind.verb];
  if (kind.verb == HVD_BARRIER) return out.str();
  out << ' ' << type_names[kind.dtype] << ' ' << list_of(kind.shape);
  if (kind.has_own_rows()) out << " at most " << kind.most_rows << " rows";
  if (kind.verb == HVD_ALLREDUCE || kind.verb == HVD_REDUCESCATTER)
    out << ' ' << op_names[kind.op] << " x" << kind.prescale << " x" << kind.postscale;
  if (kind.verb == HVD_BROADCAST) out << " root " << kind.root;
  return out.str();
}

std::string text_of(const Program& program) {
  std::ostringstream out;
  out << "seed " << program.seed << ": nodes of " << list_of(program.nodes) << ", cache " << program.cache_capacity
      << ", fusion " << program.fusion_threshold << ", chunk " << program.chunk
      << (program.groups_do_not_mix ? ", groups do not mix" : "") << ", ending " << static_cast<int>(program.ending)
      << '\n';
  for (std::size_t set = 1; set < program.sets.size(); ++set)
    out << "  set " << set << ' ' << list_of(program.sets[set].ranks) << (program.sets[set].is_static ? " static" : "")
        << '\n';
  for (std::size_t number = 0; number < program.phases.size(); ++number) {
    const Phase& phase = program.phases[number];
    out << "  phase " << number << ": " << phase.steps << " steps" << (phase.is_in_lockstep ? ", in lockstep" : "");
    if (!phase.join_after.empty())
      out << ", join after " << list_of(phase.join_after) << (phase.joins_before_wait ? " before the wait" : "");
    out << '\n';
    for (const Change& change : phase.changes)
      out << "    " << change_names[static_cast<int>(change.what)] << " set " << change.set
          << (change.has_pending ? " with pending" : "") << '\n';
    for (std::size_t use = 0; use < phase.uses.size(); ++use) describe(phase.uses[use], static_cast<int>(use), out);
  }
  return out.str();
}

}  // namespace hvd::programs
