#pragma once
// A GPU as a program counts it.
#include <string>

namespace hvd {

struct VisibleGpu {
  std::string bus_id;  // "0000:07:00.0" in lower case; empty: a part of a GPU (MIG) whose GPU only the driver knows
  std::string uuid;    // "GPU-…"; for a part of a GPU "MIG-…", as the user wrote it; empty: not known
  std::string model;   // "NVIDIA A100-SXM4-40GB"; empty: not known

  friend bool operator==(const VisibleGpu&, const VisibleGpu&) = default;
};

}  // namespace hvd
