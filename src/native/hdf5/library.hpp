#pragma once
// The HDF5 library of this process: found and opened when it is first wanted, kept until the process ends.
//
// The program may have another copy, h5py's for one, before or after: ours is opened for us alone, and its own calls
// stay within it. A copy that is not made for threads is opened a second time, so that nobody else is in it; all our
// calls are made under one lock.
#include <mutex>
#include <string>

#include "base/environment.hpp"
#include "base/result.hpp"
#include "native/hdf5/calls.hpp"

namespace hvd::hdf5 {

struct Library {
  Calls calls;
  std::string path;     // what was opened
  std::string version;  // "1.10.8"
  bool is_private_copy = false;
};

// Opens the library that HOROVOD_HDF5 names, else the first that the loader finds, else `otherwise` (a path; empty:
// none). ErrorCode::unsupported if there is none, with all that was tried; asking again then tries again. Any thread.
Result<const Library*> library(const Environment& environment, const std::string& otherwise = {});

// While it exists, this thread alone is in the library, and the library prints no failures of its own.
class Section {
 public:
  explicit Section(const Library& library);
  ~Section();
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;

 private:
  std::unique_lock<std::mutex> lock_;
  const Calls& calls_;
  OnError printer_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace hvd::hdf5
