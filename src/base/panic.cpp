#include "base/panic.hpp"

#include <cstdio>
#include <cstdlib>

#include "base/source_file.hpp"

namespace hvd {

void panic(std::string_view what, std::source_location where) noexcept {
  const std::string_view file = source_file_of(where);
  std::fprintf(stderr, "horovod: internal error at %.*s:%u: %.*s\n", static_cast<int>(file.size()), file.data(),
               where.line(), static_cast<int>(what.size()), what.data());
  std::abort();
}

}  // namespace hvd
