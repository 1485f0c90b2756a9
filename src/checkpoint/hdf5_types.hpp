#pragma once
// HDF5's types for our elements and values, made once for the work on one file. Inside a Section.
#include "checkpoint/element_type.hpp"
#include "native/hdf5/handle.hpp"

namespace hvd::checkpoint {

class Hdf5Types {
 public:
  static Result<Hdf5Types> make(const hdf5::Library& library);

  // In the file and in memory alike: little-endian.
  hdf5::Id of(Storage storage) const noexcept;
  hdf5::Id text() const noexcept { return text_.get(); }  // UTF-8 of any length

 private:
  explicit Hdf5Types(const hdf5::Calls& calls) : calls_(&calls) {}
  const hdf5::Calls* calls_;
  hdf5::Handle boolean_, f16_, c64_, c128_, text_;
};

}  // namespace hvd::checkpoint
