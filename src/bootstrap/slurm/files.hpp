#pragma once
// Small files on a file system that several nodes share.
#include <set>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace hvd::bootstrap {

// True if only this machine sees the file system. Every unknown type (NFS, Lustre, GPFS, FUSE …) is taken for a file
// system that all nodes see.
bool is_of_one_machine(const std::string& folder);
Result<Buffer> read_file(const std::string& path);
// The file appears as a whole: a reader that sees it sees all of its content.
Status write_file(const std::string& folder, const std::string& name, ConstBytes content);
std::set<std::string> files_of(const std::string& folder);
void remove_files_of(const std::string& folder);

}  // namespace hvd::bootstrap
