#pragma once
// --share: what each rank takes of a job of Slurm in which several horovodruns run side by side.
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace hvd::launcher {

struct SlurmShare {
  int cores = 0;
  int mebibytes = 0;  // 0: the shares have the memory of the job in common
  int gpus = 0;
};

// Reads "cores=2,memory=4G,gpus=1"; only cores must be there.
Result<SlurmShare> parse_share(const std::string& text);

// Returns the options of srun for a step that takes this share alone.
std::vector<std::string> words_of(const SlurmShare& share);

}  // namespace hvd::launcher
