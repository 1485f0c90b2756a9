#include "checkpoint/hdf5_types.hpp"

namespace hvd::checkpoint {
namespace {

using hdf5::Calls;
using hdf5::Handle;
using hdf5::Id;

// The type that h5py uses for bool, so that h5py reads it as bool.
Handle make_boolean(const Calls& calls) {
  Handle type(calls.H5Tenum_create(calls.i8), calls.H5Tclose);
  const std::int8_t no = 0;
  const std::int8_t yes = 1;
  if (!type || calls.H5Tenum_insert(type.get(), "FALSE", &no) < 0 || calls.H5Tenum_insert(type.get(), "TRUE", &yes) < 0)
    return {};
  return type;
}

// IEEE binary16: the sign is bit 15, the exponent has five bits from bit 10, the fraction has ten bits from bit 0.
Handle make_f16(const Calls& calls) {
  Handle type(calls.H5Tcopy(calls.f32), calls.H5Tclose);
  if (!type || calls.H5Tset_fields(type.get(), 15, 10, 5, 0, 10) < 0 || calls.H5Tset_size(type.get(), 2) < 0 ||
      calls.H5Tset_ebias(type.get(), 15) < 0)
    return {};
  return type;
}

// The type that h5py uses for complex numbers: a compound of r and i.
Handle make_complex(const Calls& calls, Id part, std::size_t part_bytes) {
  Handle type(calls.H5Tcreate(hdf5::compound_class, 2 * part_bytes), calls.H5Tclose);
  if (!type || calls.H5Tinsert(type.get(), "r", 0, part) < 0 || calls.H5Tinsert(type.get(), "i", part_bytes, part) < 0)
    return {};
  return type;
}

Handle make_text(const Calls& calls) {
  Handle type(calls.H5Tcopy(calls.string), calls.H5Tclose);
  if (!type || calls.H5Tset_size(type.get(), hdf5::variable_length) < 0 ||
      calls.H5Tset_cset(type.get(), hdf5::utf8) < 0)
    return {};
  return type;
}

}  // namespace

Result<Hdf5Types> Hdf5Types::make(const hdf5::Library& library) {
  const Calls& calls = library.calls;
  Hdf5Types types(calls);
  types.boolean_ = make_boolean(calls);
  types.f16_ = make_f16(calls);
  types.c64_ = make_complex(calls, calls.f32, 4);
  types.c128_ = make_complex(calls, calls.f64, 8);
  types.text_ = make_text(calls);
  if (!types.boolean_ || !types.f16_ || !types.c64_ || !types.c128_ || !types.text_)
    return hdf5::failure_of(library, "HDF5 could not make its types");
  return types;
}

Id Hdf5Types::of(Storage storage) const noexcept {
  switch (storage) {
    case Storage::boolean: return boolean_.get();
    case Storage::i8: return calls_->i8;
    case Storage::u8: return calls_->u8;
    case Storage::i16: return calls_->i16;
    case Storage::u16: return calls_->u16;
    case Storage::i32: return calls_->i32;
    case Storage::u32: return calls_->u32;
    case Storage::i64: return calls_->i64;
    case Storage::u64: return calls_->u64;
    case Storage::f16: return f16_.get();
    case Storage::f32: return calls_->f32;
    case Storage::f64: return calls_->f64;
    case Storage::c64: return c64_.get();
    case Storage::c128: return c128_.get();
  }
  return -1;
}

}  // namespace hvd::checkpoint
