#include "base/panic.hpp"

#include <cstdio>
#include <cstdlib>

namespace hvd {

void panic(std::string_view what, std::source_location where) noexcept {
  std::fprintf(stderr, "horovod: internal error at %s:%u: %.*s\n", where.file_name(), where.line(),
               static_cast<int>(what.size()), what.data());
  std::abort();
}

}  // namespace hvd
