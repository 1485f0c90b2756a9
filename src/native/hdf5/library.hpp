#pragma once
// The HDF5 library of this process. It is found and opened at its first use, and kept until the process ends.
//
// The program may have opened another copy before, for example h5py's, or may open one later. Our library is opened for
// us alone, from a copy in memory with a state of its own, and its own calls stay within it. So it need not be made for
// threads (all our calls are made under one lock), and it does nothing when the process ends.
#include <mutex>
#include <string>

#include "base/result.hpp"
#include "base/settings/environment.hpp"
#include "native/hdf5/calls.hpp"

namespace hvd::hdf5 {

struct Library {
  Calls calls;
  std::string path;     // the file that was opened
  std::string version;  // version of the library, "1.10.8"
};

// Opens the library that HOROVOD_HDF5 names, else the first one that the loader finds, else `otherwise` (a path; empty:
// none). Fails with ErrorCode::unsupported and a list of all that was tried if there is no library; the next call tries
// again. May be called on any thread.
Result<const Library*> library(const Environment& environment, const std::string& otherwise = {});

// While a Section exists, only this thread uses the library, and the library prints no failures.
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
