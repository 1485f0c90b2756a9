#pragma once
// What the kernel and the loader will make of a program: for deciding what may be preloaded into it.
#include <optional>
#include <string>
#include <vector>

namespace hvd::posix {

struct ProgramFile {
  std::string path;    // of a script, that of its interpreter
  std::string loader;  // ld-linux-x86-64.so.2, ld-musl-x86_64.so.1; empty for a program that is linked statically
  std::vector<std::string> libraries;  // that it is linked to itself
};

// Nothing if the file cannot be read or is a program of another kind of processor than this one. A script without a
// first line that names its interpreter is one for /bin/sh.
std::optional<ProgramFile> read_program_file(const std::string& path);

}  // namespace hvd::posix
