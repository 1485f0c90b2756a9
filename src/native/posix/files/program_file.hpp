#pragma once
// What the kernel and the loader will do with a program or a library. It decides what may be preloaded into a program.
#include <optional>
#include <string>
#include <vector>

namespace hvd::posix {

struct ProgramFile {
  std::string path;    // path of the program; for a script, the path of its interpreter
  std::string loader;  // name of the loader: ld-linux-x86-64.so.2, ld-musl-x86_64.so.1; empty for a program that is
                       // linked statically
  std::vector<std::string> libraries;  // libraries that the program itself is linked to
  std::string glibc;                   // the newest release of glibc whose symbols it needs, 2.34; empty: none
};

// Returns nullopt if the file cannot be read, or is a program for another kind of processor. A script whose first line
// names no interpreter is taken for a script of /bin/sh.
std::optional<ProgramFile> read_program_file(const std::string& path);

}  // namespace hvd::posix
