#pragma once
// horovodrun --support-bundle: what somebody who helps wants to see, in one archive without secrets.
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "base/result.hpp"
#include "launcher/options/hosts.hpp"
#include "launcher/options/layers.hpp"

namespace hvd::launcher {

struct BundleFile {
  std::string name, text;
};

// Which rank goes where, a line each.
std::string map_of_ranks(const std::vector<Placement>& placements);

// What is to be known about this place: system, limits, variables, the files of settings, and the ends of logs: those
// of --output-filename, else what the batch system wrote.
std::vector<BundleFile> facts_of_this_place(const Flags& flags, const Layers& layers);

// Writes the files, without secrets, as a .tar.gz that only the user may read; returns its path. `path` empty: a name
// of its own in the working directory.
Result<std::string> write_bundle(std::vector<BundleFile> files, std::string path, const Environment& environment);

}  // namespace hvd::launcher
