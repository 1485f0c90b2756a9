#include "native/archive/calls.hpp"

#include <dlfcn.h>

#include <optional>
#include <string>

#include "native/posix/plugins/shared_library.hpp"

namespace hvd::archive {
namespace {

// libarchive itself needs zlib, so one package has both.
Error lacking(const std::string& why) {
  return Error(ErrorCode::unsupported,
               "unpacking needs libarchive, which cannot be used: " + why +
                   "; install it on all nodes (Debian: libarchive13, Red Hat, SUSE and conda: libarchive), or name its "
                   "folder in LD_LIBRARY_PATH");
}

Result<Calls> load() {
  Calls calls;
  const char* missing = nullptr;
  auto find = [&](const posix::SharedLibrary& library, const char* name) {
    void* found = library.symbol(name);
    if (found == nullptr) missing = name;
    return found;
  };
  constexpr int how = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  auto libarchive = posix::SharedLibrary::open("libarchive.so.13", how);
  if (!libarchive) return lacking(libarchive.error().message);
  auto zlib = posix::SharedLibrary::open("libz.so.1", how);
  if (!zlib) return lacking(zlib.error().message);
#define HVD_FIND(result, name, arguments) calls.name = reinterpret_cast<decltype(calls.name)>(find(*libarchive, #name));
  HVD_LIBARCHIVE_CALLS(HVD_FIND)
#undef HVD_FIND
#define HVD_FIND(result, name, arguments) calls.name = reinterpret_cast<decltype(calls.name)>(find(*zlib, #name));
  HVD_ZLIB_CALLS(HVD_FIND)
#undef HVD_FIND
  if (missing != nullptr) return lacking(std::string("it has no function ") + missing + ", 3.3.3 or later has it");
  return calls;
}

}  // namespace

Result<const Calls*> calls() {
  static std::optional<Calls> loaded;
  if (!loaded) {
    auto found = load();
    if (!found) return found.error();
    loaded = *found;
  }
  return &*loaded;
}

}  // namespace hvd::archive
