#pragma once
// HDF5's types for the elements and values of checkpoints. They are made once for the work on one file, inside a
// Section.
#include "checkpoint/element_type.hpp"
#include "native/hdf5/handle.hpp"

namespace hvd::checkpoint {

class Hdf5Types {
 public:
  static Result<Hdf5Types> make(const hdf5::Library& library);

  // The type is little-endian, in the file and in memory.
  hdf5::Id of(Storage storage) const noexcept;
  hdf5::Id text() const noexcept { return text_.get(); }  // UTF-8 of any length

 private:
  explicit Hdf5Types(const hdf5::Calls& calls) : calls_(&calls) {}
  const hdf5::Calls* calls_;
  hdf5::Handle boolean_, f16_, c64_, c128_, text_;
};

}  // namespace hvd::checkpoint
