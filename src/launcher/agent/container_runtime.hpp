#pragma once
// Makes the command that runs a rank's program inside an image. It chooses one of the site's runtimes and the
// folders that must be seen inside, so that the rank finds its launcher's server, its folder and the GPUs.
#include <string>
#include <vector>

#include "base/settings/environment.hpp"
#include "base/tensor_view.hpp"
#include "launcher/options/image_file.hpp"

namespace hvd::launcher {

struct Bind {
  std::string source;
  std::string target;
  friend bool operator==(const Bind&, const Bind&) = default;
};

// What a process on the rank's host sees.
struct HostView {
  std::string folder;                  // the working directory
  DeviceKind gpus = DeviceKind::host;  // host: it sees none
  bool (*exists)(const std::string& path) = nullptr;
  // Returns the path of a program; empty if there is none.
  std::string (*program)(const std::string& name) = nullptr;
};
HostView host_view();

// Returns the folders that a rank with these variables needs to see: its working folder, those of its launcher's
// server, those that the user names in HOROVOD_CONTAINER_BIND, and the MPI of HOROVOD_CONTAINER_MPI at /host/mpi. Fails
// if a folder that the user named is not there.
Result<std::vector<Bind>> binds_for_rank(const Environment& of_rank, const HostView& host);

// Fails if the host has no runtime for images of this kind, or lacks the runtime that HOROVOD_CONTAINER_RUNTIME names.
Result<std::vector<std::string>> command_in_image(const Image& image, const std::vector<std::string>& command,
                                                  const Environment& of_rank, const HostView& host);

}  // namespace hvd::launcher
