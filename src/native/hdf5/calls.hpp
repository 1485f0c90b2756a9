#pragma once
// The functions of an HDF5 library that we call, as a table that is filled at run time. These functions are the same in
// every HDF5 from 1.10 on. So no header is needed to build, and any HDF5 library of the machine can be used.
#include <cstddef>
#include <cstdint>

namespace hvd::hdf5 {

using Id = std::int64_t;     // HDF5's type hid_t
using Size = std::uint64_t;  // HDF5's type hsize_t
using Outcome = int;         // herr_t, htri_t: negative is a failure

// One level of HDF5's description of a failure (H5E_error2_t).
struct Failure {
  Id error_class, major, minor;
  unsigned line;
  const char *function, *file, *text;
};
using OnFailure = Outcome (*)(unsigned depth, const Failure* failure, void* context);
// A callback with the name of an attribute or a link. HDF5's versions differ in what `info` points to.
using OnName = Outcome (*)(Id place, const char* name, const void* info, void* context);
using OnError = Outcome (*)(Id stack, void* context);

// Values of HDF5's enumerations and macros. They are part of its ABI.
inline constexpr Id plain = 0;  // the value of H5P_DEFAULT and H5E_DEFAULT
inline constexpr Id whole = 0;  // the value of H5S_ALL
inline constexpr unsigned open_to_read = 0, create_or_empty = 2;
inline constexpr int scalar_space = 0, null_space = 2;
inline constexpr int compact_layout = 0, contiguous_layout = 1, chunked_layout = 2;
inline constexpr int allocate_at_once = 1, fill_never = 1;
inline constexpr int by_name = 0, ascending = 0;
inline constexpr int group_kind = 2, dataset_kind = 5;
inline constexpr int integer_class = 0, float_class = 1, string_class = 3, compound_class = 6, enum_class = 8;
inline constexpr int utf8 = 1;
inline constexpr int strong_close = 3;
inline constexpr int from_outside = 0;  // the value of H5E_WALK_UPWARD: the innermost error comes first
inline constexpr std::size_t variable_length = static_cast<std::size_t>(-1);
inline constexpr int gzip_filter = 1;
inline constexpr std::uint64_t no_address = ~std::uint64_t{0};

// The calls, as X(result, name, arguments).
#define HVD_HDF5_CALLS(X)                                                                          \
  X(Outcome, H5open, (void))                                                                       \
  X(Outcome, H5get_libversion, (unsigned*, unsigned*, unsigned*))                                  \
  X(Outcome, H5free_memory, (void*))                                                               \
  X(Outcome, H5dont_atexit, (void))                                                                \
  X(Id, H5Fcreate, (const char*, unsigned, Id, Id))                                                \
  X(Id, H5Fopen, (const char*, unsigned, Id))                                                      \
  X(Outcome, H5Fclose, (Id))                                                                       \
  X(Id, H5Pcreate, (Id))                                                                           \
  X(Outcome, H5Pclose, (Id))                                                                       \
  X(Outcome, H5Pset_userblock, (Id, Size))                                                         \
  X(Outcome, H5Pset_meta_block_size, (Id, Size))                                                   \
  X(Outcome, H5Pset_fclose_degree, (Id, int))                                                      \
  X(Outcome, H5Pset_obj_track_times, (Id, bool))                                                   \
  X(Outcome, H5Pset_layout, (Id, int))                                                             \
  X(Outcome, H5Pset_alloc_time, (Id, int))                                                         \
  X(Outcome, H5Pset_fill_time, (Id, int))                                                          \
  X(Outcome, H5Pset_chunk, (Id, int, const Size*))                                                 \
  X(Outcome, H5Pset_shuffle, (Id))                                                                 \
  X(Outcome, H5Pset_deflate, (Id, unsigned))                                                       \
  X(Outcome, H5Pset_filter, (Id, int, unsigned, std::size_t, const unsigned*))                     \
  X(Outcome, H5Pset_char_encoding, (Id, int))                                                      \
  X(Outcome, H5Zfilter_avail, (int))                                                               \
  X(Id, H5Gcreate2, (Id, const char*, Id, Id, Id))                                                 \
  X(Id, H5Gopen2, (Id, const char*, Id))                                                           \
  X(Outcome, H5Gclose, (Id))                                                                       \
  X(Id, H5Oopen, (Id, const char*, Id))                                                            \
  X(Outcome, H5Oclose, (Id))                                                                       \
  X(int, H5Iget_type, (Id))                                                                        \
  X(Id, H5Dcreate2, (Id, const char*, Id, Id, Id, Id, Id))                                         \
  X(Outcome, H5Dclose, (Id))                                                                       \
  X(Outcome, H5Dwrite, (Id, Id, Id, Id, Id, const void*))                                          \
  X(Outcome, H5Dread, (Id, Id, Id, Id, Id, void*))                                                 \
  X(std::uint64_t, H5Dget_offset, (Id))                                                            \
  X(Size, H5Dget_storage_size, (Id))                                                               \
  X(Id, H5Dget_create_plist, (Id))                                                                 \
  X(int, H5Pget_layout, (Id))                                                                      \
  X(Id, H5Dget_space, (Id))                                                                        \
  X(Id, H5Dget_type, (Id))                                                                         \
  X(Id, H5Screate, (int))                                                                          \
  X(Id, H5Screate_simple, (int, const Size*, const Size*))                                         \
  X(Outcome, H5Sclose, (Id))                                                                       \
  X(int, H5Sget_simple_extent_type, (Id))                                                          \
  X(int, H5Sget_simple_extent_ndims, (Id))                                                         \
  X(int, H5Sget_simple_extent_dims, (Id, Size*, Size*))                                            \
  X(Id, H5Tcopy, (Id))                                                                             \
  X(Id, H5Tcreate, (int, std::size_t))                                                             \
  X(Outcome, H5Tclose, (Id))                                                                       \
  X(Outcome, H5Tinsert, (Id, const char*, std::size_t, Id))                                        \
  X(Id, H5Tenum_create, (Id))                                                                      \
  X(Outcome, H5Tenum_insert, (Id, const char*, const void*))                                       \
  X(Outcome, H5Tset_size, (Id, std::size_t))                                                       \
  X(Outcome, H5Tset_cset, (Id, int))                                                               \
  X(Outcome, H5Tset_fields, (Id, std::size_t, std::size_t, std::size_t, std::size_t, std::size_t)) \
  X(Outcome, H5Tset_ebias, (Id, std::size_t))                                                      \
  X(int, H5Tget_class, (Id))                                                                       \
  X(std::size_t, H5Tget_size, (Id))                                                                \
  X(Outcome, H5Tis_variable_str, (Id))                                                             \
  X(Id, H5Acreate2, (Id, const char*, Id, Id, Id, Id))                                             \
  X(Id, H5Aopen, (Id, const char*, Id))                                                            \
  X(Outcome, H5Aclose, (Id))                                                                       \
  X(Outcome, H5Awrite, (Id, Id, const void*))                                                      \
  X(Outcome, H5Aread, (Id, Id, void*))                                                             \
  X(Id, H5Aget_type, (Id))                                                                         \
  X(Id, H5Aget_space, (Id))                                                                        \
  X(Outcome, H5Aiterate2, (Id, int, int, Size*, OnName, void*))                                    \
  X(Outcome, H5Eget_auto2, (Id, OnError*, void**))                                                 \
  X(Outcome, H5Eset_auto2, (Id, OnError, void*))                                                   \
  X(Outcome, H5Eclear2, (Id))                                                                      \
  X(Outcome, H5Ewalk2, (Id, int, OnFailure, void*))

// Ids that the library keeps in variables. They are valid after H5open. X(our name, HDF5's name)
#define HVD_HDF5_IDS(X)                              \
  X(file_create, H5P_CLS_FILE_CREATE_ID_g)           \
  X(file_access, H5P_CLS_FILE_ACCESS_ID_g)           \
  X(group_create, H5P_CLS_GROUP_CREATE_ID_g)         \
  X(dataset_create, H5P_CLS_DATASET_CREATE_ID_g)     \
  X(link_create, H5P_CLS_LINK_CREATE_ID_g)           \
  X(attribute_create, H5P_CLS_ATTRIBUTE_CREATE_ID_g) \
  X(i8, H5T_STD_I8LE_g)                              \
  X(i16, H5T_STD_I16LE_g)                            \
  X(i32, H5T_STD_I32LE_g)                            \
  X(i64, H5T_STD_I64LE_g)                            \
  X(u8, H5T_STD_U8LE_g)                              \
  X(u16, H5T_STD_U16LE_g)                            \
  X(u32, H5T_STD_U32LE_g)                            \
  X(u64, H5T_STD_U64LE_g)                            \
  X(f32, H5T_IEEE_F32LE_g)                           \
  X(f64, H5T_IEEE_F64LE_g)                           \
  X(string, H5T_C_S1_g)

struct Calls {
#define HVD_MEMBER(result, name, arguments) result(*name) arguments = nullptr;
  HVD_HDF5_CALLS(HVD_MEMBER)
#undef HVD_MEMBER
  // this function exists from HDF5 1.10.7 on; otherwise the pointer is null
  Outcome (*H5Pset_file_locking)(Id, bool, bool) = nullptr;
  // This is H5Literate2 from 1.12 on, H5Literate before.
  Outcome (*iterate_links)(Id, int, int, Size*, OnName, void*) = nullptr;
#define HVD_MEMBER(ours, name) Id ours = -1;
  HVD_HDF5_IDS(HVD_MEMBER)
#undef HVD_MEMBER
};

}  // namespace hvd::hdf5
