#include "native/cuda/visible.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

#include "base/text/number.hpp"
#include "native/posix/files/folder.hpp"
#include "native/posix/files/text_file.hpp"

namespace hvd::cuda {
namespace {

constexpr const char* driver_folder = "/proc/driver/nvidia/gpus";
constexpr const char* list_variable = "CUDA_VISIBLE_DEVICES";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t";
  std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

// Returns the value of a line such as "GPU UUID: \t GPU-…", or an empty text.
std::string_view value_of(std::string_view key, std::string_view text) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    std::size_t colon = line.find(':');
    if (colon != std::string_view::npos && trimmed(line.substr(0, colon)) == key)
      return trimmed(line.substr(colon + 1));
  }
  return "";
}

// access() is answered as open() would be, also by the device controller of a cgroup. But open() would start the GPU,
// which takes seconds where nothing keeps it running.
bool may_open(const std::string& path) {
  return ::access(path.c_str(), R_OK | W_OK) == 0;
}

// The GPUs that this process may open, ordered by bus id.
std::vector<VisibleGpu> usable_gpus(const std::string& root) {
  std::vector<VisibleGpu> gpus;
  const std::string folder = root + driver_folder;
  for (const std::string& name : posix::names_in(folder)) {
    auto information = posix::read_text(folder + "/" + name + "/information");
    if (!information) continue;
    std::string_view minor = value_of("Device Minor", *information);
    if (!number_in<int>(minor) || !may_open(root + "/dev/nvidia" + std::string(minor))) continue;
    if (value_of("GPU Excluded", *information) == "Yes") continue;
    VisibleGpu gpu{"", std::string(value_of("GPU UUID", *information)), std::string(value_of("Model", *information))};
    for (char letter : name) gpu.bus_id += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    if (gpu.uuid.find('?') != std::string::npos) gpu.uuid.clear();  // before the GPU is used for the first time
    gpus.push_back(std::move(gpu));
  }
  std::ranges::sort(gpus, {}, [](const VisibleGpu& gpu) { return std::tuple(gpu.bus_id.size(), gpu.bus_id); });
  return gpus;
}

// What CUDA_VISIBLE_DEVICES names, among the usable GPUs.
class Choice {
 public:
  Choice(const std::vector<VisibleGpu>& usable, std::string_view list) : usable_(usable) {
    enum class Kind { number, gpu, part };
    std::string_view first = trimmed(list.substr(0, list.find(',')));
    const Kind kind = first.starts_with("GPU-") ? Kind::gpu : first.starts_with("MIG-") ? Kind::part : Kind::number;
    for (bool goes_on = !first.empty(); goes_on;) {
      std::string_view entry = trimmed(list.substr(0, list.find(',')));
      list.remove_prefix(std::min(list.find(','), list.size()));
      goes_on = !list.empty();
      if (goes_on) list.remove_prefix(1);
      auto gpu = kind == Kind::number ? by_number(entry) : kind == Kind::gpu ? by_uuid(entry) : part(entry);
      if (!gpu) return;
      if (!seen_.insert(gpu->bus_id + " " + gpu->uuid).second) {
        chosen.clear();
        return;
      }
      chosen.push_back(std::move(*gpu));
      if (kind == Kind::part) return;
    }
  }

  std::vector<VisibleGpu> chosen;
  bool uses_numbers = false;

 private:
  std::optional<VisibleGpu> by_number(std::string_view entry) {
    uses_numbers = true;
    auto number = leading_number<int>(entry);  // CUDA ignores what follows the digits
    if (!number || *number < 0 || static_cast<std::size_t>(*number) >= usable_.size()) return std::nullopt;
    return usable_[static_cast<std::size_t>(*number)];
  }
  std::optional<VisibleGpu> by_uuid(std::string_view beginning) const {
    std::optional<VisibleGpu> found;
    for (const VisibleGpu& gpu : usable_) {
      if (!beginning.starts_with("GPU-") || !gpu.uuid.starts_with(beginning)) continue;
      if (found) return std::nullopt;
      found = gpu;
    }
    // The system may hide the UUIDs that the user got from the driver.
    bool is_hidden = std::ranges::any_of(usable_, [](const VisibleGpu& gpu) { return gpu.uuid.empty(); });
    if (!found && is_hidden && beginning.starts_with("GPU-")) return VisibleGpu{"", std::string(beginning), ""};
    return found;
  }
  // "MIG-GPU-<UUID of the GPU>/1/0" tells the GPU, "MIG-<UUID of the part>" does not.
  std::optional<VisibleGpu> part(std::string_view entry) const {
    VisibleGpu gpu{"", std::string(entry), ""};
    std::string_view whole = entry.substr(std::string_view("MIG-").size());
    if (!whole.starts_with("GPU-")) return usable_.empty() ? std::nullopt : std::optional(gpu);
    auto found = by_uuid(whole.substr(0, whole.find('/')));
    if (!found) return std::nullopt;
    gpu.bus_id = found->bus_id;
    gpu.model = found->model;
    return gpu;
  }

  const std::vector<VisibleGpu>& usable_;
  std::set<std::string> seen_;
};

bool has_several_models(const std::vector<VisibleGpu>& gpus) {
  return std::ranges::any_of(gpus, [&](const VisibleGpu& gpu) { return gpu.model != gpus.front().model; });
}

}  // namespace

Visible visible(const Environment& environment, const std::string& root) {
  Visible visible;
  visible.has_driver = !posix::names_in(root + driver_folder).empty();
  if (!visible.has_driver) {  // in some containers; under Windows the GPUs are behind another device
    visible.are_hidden = may_open(root + "/dev/nvidiactl") || may_open(root + "/dev/dxg");
    return visible;
  }
  std::vector<VisibleGpu> usable = usable_gpus(root);
  const bool is_order_known =
      environment.get("CUDA_DEVICE_ORDER").value_or("") == "PCI_BUS_ID" || !has_several_models(usable);
  const char* order_in_doubt =
      "the GPUs are of several models, and CUDA counts the fastest one first: only the driver knows which that is. Set "
      "CUDA_DEVICE_ORDER=PCI_BUS_ID";
  auto list = environment.get(list_variable);
  if (!list) {
    visible.gpus = std::move(usable);
    if (!is_order_known) visible.doubt = order_in_doubt;
    return visible;
  }
  Choice choice(usable, *list);
  visible.gpus = std::move(choice.chosen);
  if (choice.uses_numbers && !is_order_known && !visible.gpus.empty()) visible.doubt = order_in_doubt;
  if (std::ranges::any_of(visible.gpus, [](const VisibleGpu& gpu) { return gpu.bus_id.empty(); }))
    visible.doubt = std::string(list_variable) + "=" + *list + ": only the driver knows where these GPUs are";
  return visible;
}

}  // namespace hvd::cuda
