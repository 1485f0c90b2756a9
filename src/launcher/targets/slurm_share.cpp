#include "launcher/targets/slurm_share.hpp"

#include <algorithm>
#include <string_view>

#include "base/text/comma_list.hpp"
#include "base/text/number.hpp"

namespace hvd::launcher {
namespace {

constexpr int most = 1 << 24;

std::optional<int> number_up_to_most(std::string_view text) {
  auto number = number_in<int>(text);
  return number && *number >= 0 && *number <= most ? number : std::nullopt;
}

// Reads "500M" and "4G".
std::optional<int> mebibytes_in(std::string_view text) {
  if (!text.ends_with('M') && !text.ends_with('G')) return std::nullopt;
  auto number = number_up_to_most(text.substr(0, text.size() - 1));
  if (!number || *number == 0 || (text.ends_with('G') && *number > most / 1024)) return std::nullopt;
  return text.ends_with('G') ? *number * 1024 : *number;
}

// Reads "cores=2".
bool read_item(SlurmShare& share, const std::string& item) {
  const std::size_t equals = std::min(item.find('='), item.size());
  const std::string name = item.substr(0, equals), value = item.substr(std::min(equals + 1, item.size()));
  const auto number = name == "memory" ? mebibytes_in(value) : number_up_to_most(value);
  if (!number) return false;
  if (name == "cores") share.cores = *number;
  else if (name == "memory") share.mebibytes = *number;
  else if (name == "gpus") share.gpus = *number;
  else return false;
  return true;
}

}  // namespace

Result<SlurmShare> parse_share(const std::string& text) {
  SlurmShare share;
  const bool is_read =
      std::ranges::all_of(items_of(text), [&](const std::string& item) { return read_item(share, item); });
  if (is_read && share.cores > 0) return share;
  return Error(ErrorCode::invalid_argument,
               "--share: expected what each rank takes, with the number of cores, such as cores=2,memory=4G,gpus=1, "
               "found '" +
                   text + "'");
}

std::vector<std::string> words_of(const SlurmShare& share) {
  std::vector<std::string> words = {"--exact", "-c", std::to_string(share.cores)};
  const int for_each_core = (share.mebibytes + share.cores - 1) / share.cores;
  words.push_back(share.mebibytes > 0 ? "--mem-per-cpu=" + std::to_string(for_each_core) + "M" : "--mem=0");
  if (share.gpus == 0) {
    words.emplace_back("--gres=none");
  } else {
    // Each rank sees all GPUs of the step on its node and chooses one by its local rank.
    words.push_back("--gpus-per-task=" + std::to_string(share.gpus));
    words.emplace_back("--gpu-bind=none");
  }
  return words;
}

}  // namespace hvd::launcher
