#pragma once
// Writes the tensors of a checkpoint as a file of the format safetensors. Many programs read this format, and reading
// it runs no code.
#include <string>

#include "base/result.hpp"
#include "checkpoint/reader.hpp"

namespace hvd::launcher {

// Exports the tensors below `group` ("/model") under the rest of their paths. Returns how many there were. The file is
// written whole or not at all.
Result<std::size_t> export_safetensors(const checkpoint::Reader& reader, const std::string& group,
                                       const std::string& path);

}  // namespace hvd::launcher
