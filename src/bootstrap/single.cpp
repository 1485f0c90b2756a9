// Nobody started us but a person: a job of one rank. Always detected, and therefore the last to be asked.
#include <unistd.h>

#include <charconv>
#include <memory>
#include <string>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/own_values.hpp"

namespace hvd::bootstrap {
namespace {

// How launchers tell their processes that there are more of them. Where one of these says so and yet nothing better
// than `single` was found, every process would silently train alone.
struct Trace {
  const char* launcher;
  const char* size_variable;
  const char* rank_variable;  // must be there too: a batch script has some sizes of its job, but is no rank of it
};
constexpr Trace traces[] = {
    {"MPICH's mpiexec or srun --mpi=pmi2", "PMI_SIZE", "PMI_RANK"},
    {"Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    {"jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"},
    {"PALS's mpiexec", "PALS_SIZE", "PALS_RANKID"},
};

Status check_alone(const Environment& environment) {
  for (const Trace& trace : traces) {
    std::string text = environment.get(trace.size_variable).value_or("");
    int size = 0;
    std::from_chars(text.data(), text.data() + text.size(), size);
    if (size < 2 || !environment.has(trace.rank_variable)) continue;
    return Error(
        ErrorCode::unsupported,
        std::string("this process is one of ") + text + " started by " + trace.launcher + " (" + trace.size_variable +
            "=" + text +
            "), but nothing was found by which they could find each other: start them with horovodrun or by a PMIx "
            "launcher (srun --mpi=pmix), or set HOROVOD_BOOTSTRAP=single to let each run alone");
  }
  return {};
}

class Single final : public Bootstrap {
 public:
  const char* name() const override { return "single"; }
  bool detected(const Environment&) const override { return true; }
  Result<Identity> join(const Environment& environment, const Config& config) override {
    if (config.bootstrap != name()) HVD_RETURN_IF_ERROR(check_alone(environment));
    return Identity{Rank{0}, 1, "single-" + std::to_string(::getpid())};
  }
  Status put(std::string_view key, ConstBytes value) override { return values_.put(key, value); }
  Result<Buffer> get(Rank from, std::string_view key, Deadline) override { return values_.get(from, key); }
  Status fence(Deadline) override { return {}; }
  void abort(std::string_view) noexcept override {}  // nobody is there to be asked

 private:
  OwnValues values_;
};

}  // namespace

std::unique_ptr<Bootstrap> make_single() {
  return std::make_unique<Single>();
}

}  // namespace hvd::bootstrap
