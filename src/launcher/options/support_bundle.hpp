#pragma once
// horovodrun --support-bundle: collects in one archive, without secrets, what support staff need to help the user.
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/settings/environment.hpp"
#include "launcher/options/hosts.hpp"
#include "launcher/options/layers.hpp"

namespace hvd::launcher {

struct BundleFile {
  std::string name, text;
};

// Returns one line for each rank: where it is placed.
std::string map_of_ranks(const std::vector<Placement>& placements);

// Collects facts about this machine: the system, limits, variables, the files of settings, and the ends of logs. The
// logs are those of --output-filename; without that flag, the newest logs of batch systems.
std::vector<BundleFile> facts_of_this_machine(const Flags& flags, const Layers& layers);

// Writes the files without secrets as a .tar.gz that only the user may read, and returns its path. If `path` is empty,
// the file gets a new name in the working directory.
Result<std::string> write_bundle(const std::vector<BundleFile>& files, std::string path,
                                 const Environment& environment);

}  // namespace hvd::launcher
