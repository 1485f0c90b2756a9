#pragma once
// The tensors of a checkpoint as a file of the format safetensors, which many programs read and which runs nothing.
#include <string>

#include "base/result.hpp"
#include "checkpoint/reader.hpp"

namespace hvd::launcher {

// Those below `group` ("/model"), by the rest of their paths; how many there were. The file is whole or not there.
Result<std::size_t> export_safetensors(const checkpoint::Reader& reader, const std::string& group,
                                       const std::string& path);

}  // namespace hvd::launcher
