#include "transport/nccl/plugin.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "base/settings/environment.hpp"
#include "native/posix/files/settings_files.hpp"
#include "transport/nccl/link.hpp"

namespace hvd::transport::over_nccl {
namespace {

// By these NCCL finds out whether two ranks share memory, and refuses two of them on one GPU.
std::string machine_of(const Environment& environment) {
  if (auto id = environment.get("NCCL_HOSTID")) return *id;
  char host[HOST_NAME_MAX + 1] = "";
  static_cast<void>(::gethostname(host, sizeof host - 1));
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return std::string(host) + " " + boot;
}

// Half of what was asked for is better than nothing.
Result<devices::Memory> allocate_buffer(devices::Device& device, Stream user, std::size_t& bytes) {
  constexpr std::size_t least = 1 << 20;
  for (;; bytes /= 2) {
    auto buffer = device.allocate(bytes, devices::Where::on_device, user);
    if (buffer || buffer.error().code != ErrorCode::out_of_memory || bytes / 2 < least) return buffer;
  }
}

class CandidateOnGpu final : public Candidate {
 public:
  CandidateOnGpu(const Surroundings& surroundings, devices::Device& device, const Group& group, std::string_view name)
      : surroundings_(surroundings), group_(group), name_(name), equipment_{device, {}, nullptr, {}, {}} {
    auto issuer = Issuer::of(device);
    if (issuer) {
      equipment_.issuer = std::move(*issuer);
      equipment_.issuer->push(this, [this] {
        apply();
        is_there_.store(true, std::memory_order_release);
        surroundings_.wake->post();
      });
    } else {
      card_.refusal = std::move(issuer.error().message);
      is_there_ = true;
    }
  }
  ~CandidateOnGpu() override {
    if (equipment_.issuer) equipment_.issuer->forget(this);
  }

  const Card* card() override { return is_there_.load(std::memory_order_acquire) ? &card_ : nullptr; }

  News news() const override {
    const nccl::Library& library = *equipment_.library;
    return {"NCCL " + nccl::version_text(library.version) + " carries tensors from GPU to GPU (" + library.path +
                "); for each group of ranks that uses it, " + std::to_string(card_.buffer_bytes >> 20) +
                " MB of the GPU are kept for tensors that are packed (HOROVOD_DEVICE_FUSION_THRESHOLD)",
            nccl::known_faults_here(library.version)};
  }
  std::unique_ptr<Link> make_link(const Agreement& agreement) override {
    auto issuer = equipment_.issuer;
    issuer->forget(this);
    return std::make_unique<NcclLink>(surroundings_, group_, name_,
                                      Equipment{equipment_.device, issuer, equipment_.library,
                                                std::move(equipment_.stream), std::move(equipment_.abort_word)},
                                      agreement);
  }

 private:
  // On the issuer's thread: loading NCCL takes some time.
  void apply() {
    if (auto prepared = prepare(); !prepared) card_.refusal = std::move(prepared.error().message);
  }
  Status prepare() {
    const Environment environment = posix::environment_with_files();
    auto library = nccl::open_library(environment);
    if (!library) return library.error();
    equipment_.library = *library;
    card_.version = (*library)->version;
    card_.machine = machine_of(environment);
    card_.gpu = equipment_.issuer->context().facts().bus_id;
    card_.uuid = equipment_.issuer->context().facts().uuid;
    card_.shares_gpu =
        (*library)->version >= 23000 && environment.get("NCCL_MULTI_RANK_GPU_ENABLE").value_or("0") == "1";
    card_.sets_nvls = environment.has("NCCL_NVLS_ENABLE");
    auto bytes = static_cast<std::size_t>(surroundings_.config->device_fusion_threshold_bytes);
    bytes = std::max<std::size_t>(bytes, 1 << 20);
    auto stream = equipment_.device.stream();
    if (!stream) return stream.error();
    equipment_.stream = std::move(*stream);
    const Stream user{equipment_.stream.get()};
    // The ranks agree on what all of them can have. The link takes it when it has its first task.
    if (auto buffer = allocate_buffer(equipment_.device, user, bytes); !buffer) return buffer.error();
    card_.buffer_bytes = static_cast<std::int64_t>(bytes);
    auto word = equipment_.device.allocate(sizeof(std::uint32_t), devices::Where::on_host, user);
    if (!word) return word.error();
    std::memset(word->data(), 0, sizeof(std::uint32_t));
    equipment_.abort_word = std::move(*word);
    if (!draws_id(group_.me.value, (*library)->init_scalable != nullptr)) return {};
    nccl::UniqueId id;
    if (const nccl::Code code = (*library)->get_unique_id(&id); code != nccl::Code::success)
      return nccl::error_of(**library, code, nullptr, "no communicator can be made");
    card_.id.assign(id.bytes, sizeof id.bytes);
    return {};
  }
  const Surroundings surroundings_;
  const Group group_;
  const std::string name_;
  Equipment equipment_;
  Card card_;
  std::atomic<bool> is_there_{false};
};

std::unique_ptr<Candidate> apply(const Surroundings& surroundings, devices::Device& device, const Group& group,
                                 std::string_view name) {
  return std::make_unique<CandidateOnGpu>(surroundings, device, group, name);
}

}  // namespace
}  // namespace hvd::transport::over_nccl

extern "C" __attribute__((visibility("default"))) const void* horovod_nccl_plugin() {
  using hvd::transport::over_nccl::Plugin;
  static const Plugin plugin{hvd::posix::plugin_stamp(sizeof(Plugin)), &hvd::transport::over_nccl::apply};
  return &plugin;
}
