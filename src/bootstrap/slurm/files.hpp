#pragma once
// Small files on a file system that nodes share.
#include <set>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace hvd::bootstrap {

// Whether the file system is one of this machine. Every other (NFS, Lustre, GPFS, FUSE …) is taken for one that all
// nodes see.
bool is_of_one_machine(const std::string& folder);
Result<Buffer> read_file(const std::string& path);
// A reader that sees the file sees all of it.
Status write_file(const std::string& folder, const std::string& name, ConstBytes content);
std::set<std::string> files_of(const std::string& folder);
void remove_files_of(const std::string& folder);

}  // namespace hvd::bootstrap
