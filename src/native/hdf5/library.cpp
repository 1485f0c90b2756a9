#include "native/hdf5/library.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include <memory>
#include <vector>

#include "native/posix/files/file_descriptor.hpp"
#include "native/posix/files/folder.hpp"
#include "native/posix/plugins/shared_library.hpp"

namespace hvd::hdf5 {
namespace {

// The usual names, by the numbers of HDF5 2.0, 1.14, 1.12 and 1.10. Debian's serial build has another name.
constexpr const char* usual_names[] = {
    "libhdf5.so.320",        "libhdf5.so.310", "libhdf5_serial.so.310", "libhdf5.so.200",
    "libhdf5_serial.so.200", "libhdf5.so.103", "libhdf5_serial.so.103", "libhdf5.so",
    "libhdf5_serial.so"};

// RTLD_DEEPBIND: the library finds its own functions before those of another copy that the program shows to all
// libraries (RTLD_GLOBAL). The sanitizers refuse objects that are opened in this way.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int how_to_open = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
#else
constexpr int how_to_open = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | RTLD_DEEPBIND;
#endif

std::string file_of(const posix::SharedLibrary& object) {
  Dl_info info{};
  void* code = object.symbol("H5open");
  if (code == nullptr || ::dladdr(code, &info) == 0 || info.dli_fname == nullptr) return object.path();
  return info.dli_fname;
}

Status fill(const posix::SharedLibrary& object, Calls& calls) {
  std::string missing;
  auto find = [&](const char* name) {
    void* found = object.symbol(name);
    if (found == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(name);
    return found;
  };
#define HVD_FIND(result, name, arguments) calls.name = reinterpret_cast<decltype(calls.name)>(find(#name));
  HVD_HDF5_CALLS(HVD_FIND)
#undef HVD_FIND
  calls.H5Pset_file_locking =
      reinterpret_cast<decltype(calls.H5Pset_file_locking)>(object.symbol("H5Pset_file_locking"));
  void* iterate = object.symbol("H5Literate2");
  if (iterate == nullptr) iterate = find("H5Literate");
  calls.iterate_links = reinterpret_cast<decltype(calls.iterate_links)>(iterate);
  if (!missing.empty())
    return Error(ErrorCode::unsupported, object.path() + " is no HDF5 of 1.10 or later: it lacks " + missing);
  return {};
}

Status read_ids(const posix::SharedLibrary& object, Calls& calls) {
#define HVD_READ(ours, name)                                                                          \
  if (const auto* id = static_cast<const Id*>(object.symbol(#name)); id != nullptr) calls.ours = *id; \
  else return Error(ErrorCode::unsupported, object.path() + " has no variable " #name);
  HVD_HDF5_IDS(HVD_READ)
#undef HVD_READ
  return {};
}

// Opens a copy of the file. The loader takes a file with another inode for another library. The libraries that it needs
// were loaded with the original.
Result<posix::SharedLibrary> open_copy(const std::string& path) {
  posix::FileDescriptor from(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat about {};
  if (!from || ::fstat(from.get(), &about) != 0) return system_error("cannot read " + path, errno);
  posix::FileDescriptor copy(::memfd_create("horovod-hdf5", MFD_CLOEXEC));
  if (!copy) return system_error("cannot make memory for a copy of " + path, errno);
  for (off_t left = about.st_size; left > 0;) {
    ssize_t moved = ::sendfile(copy.get(), from.get(), nullptr, static_cast<std::size_t>(left));
    if (moved <= 0) return system_error("cannot copy " + path, moved < 0 ? errno : EIO);
    left -= moved;
  }
  return posix::SharedLibrary::open(("/proc/self/fd/" + std::to_string(copy.get())).c_str(), how_to_open);
}

// A library from a Python wheel does not find the libraries it needs, although they are beside it. They are opened
// first, so that the loader takes those.
Result<posix::SharedLibrary> open_library(const std::string& name) {
  auto object = posix::SharedLibrary::open(name.c_str(), how_to_open);
  std::size_t slash = name.rfind('/');
  if (object || slash == std::string::npos) return object;
  std::string folder = name.substr(0, slash);
  for (int round = 0; round < 2; ++round)  // two rounds, because these libraries need each other
    for (const std::string& other : posix::names_in(folder))
      if (other.find(".so") != std::string::npos && !other.starts_with("libhdf5"))
        static_cast<void>(posix::SharedLibrary::open((folder + "/" + other).c_str(), how_to_open));
  return posix::SharedLibrary::open(name.c_str(), how_to_open);
}

Result<std::unique_ptr<Library>> load(const std::string& name) {
  auto object = open_library(name);
  if (!object) return object.error();
  auto loaded = std::make_unique<Library>();
  HVD_RETURN_IF_ERROR(fill(*object, loaded->calls));
  loaded->path = file_of(*object);
  // If no copy can be made, the library itself is used. That is correct unless the program uses it at the same time and
  // it is not made for threads.
  if (auto copy = open_copy(loaded->path); copy && fill(*copy, loaded->calls)) {
    object = std::move(copy);
    // HDF5 1.10 keeps a file that it could not close (a full disk), and crashes when it closes it again at the
    // process's end.
    loaded->calls.H5dont_atexit();
  }
  if (loaded->calls.H5open() < 0)
    return Error(ErrorCode::unsupported, loaded->path + " could not be started (H5open failed)");
  HVD_RETURN_IF_ERROR(read_ids(*object, loaded->calls));
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  loaded->calls.H5get_libversion(&major, &minor, &release);
  loaded->version = std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
  if (major == 1 && minor < 10)
    return Error(ErrorCode::unsupported, loaded->path + " is HDF5 " + loaded->version + "; 1.10 or later is needed");
  // The handle is released without closing it: the object stays loaded forever (RTLD_NODELETE).
  return loaded;
}

std::mutex& library_mutex() {
  static auto* mutex = new std::mutex;  // never destroyed: threads may be in the library when the process ends
  return *mutex;
}

}  // namespace

Result<const Library*> library(const Environment& environment, const std::string& otherwise) {
  static const Library* loaded = nullptr;
  std::lock_guard lock(library_mutex());
  if (loaded != nullptr) return loaded;
  std::vector<std::string> names;
  if (auto named = environment.get("HOROVOD_HDF5"); named && !named->empty()) names.push_back(*named);
  else {
    names.assign(std::begin(usual_names), std::end(usual_names));
    if (!otherwise.empty()) names.push_back(otherwise);
  }
  std::string faults;
  for (const std::string& name : names) {
    auto found = load(name);
    if (found) return loaded = found->release();
    faults += (faults.empty() ? "" : "; ") + found.error().message;
  }
  return Error(ErrorCode::unsupported,
               "checkpoints need an HDF5 library of 1.10 or later, and none could be opened: install one (Debian: "
               "libhdf5-103-1, conda: hdf5, pip: h5py, on clusters often a module hdf5), or name its file in "
               "HOROVOD_HDF5. Tried: " +
                   faults);
}

Section::Section(const Library& library) : lock_(library_mutex()), calls_(library.calls) {
  calls_.H5Eget_auto2(plain, &printer_, &context_);
  calls_.H5Eset_auto2(plain, nullptr, nullptr);
}

Section::~Section() {
  calls_.H5Eset_auto2(plain, printer_, context_);
}

}  // namespace hvd::hdf5
