#pragma once
// The functions of libarchive and zlib that we call, as a table that is filled at run time. They are the same in all
// releases with these sonames, so no header is needed to build.
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "base/result.hpp"

namespace hvd::archive {

using Handle = struct OfLibarchive*;      // struct archive*
using Entry = struct EntryOfLibarchive*;  // struct archive_entry*

// Values of libarchive's macros. They are part of its ABI.
inline constexpr int end_of_archive = 1, fine = 0, only_a_warning = -20;
inline constexpr unsigned file_type = 0100000, folder_type = 0040000, link_type = 0120000;
inline constexpr int keep_times = 0x4, not_through_links = 0x100, no_dot_dot = 0x200, no_absolute_paths = 0x10000;

// zlib's z_stream.
struct Inflation {
  const unsigned char* next_in;
  unsigned bytes_in;
  unsigned long total_in;
  unsigned char* next_out;
  unsigned bytes_out;
  unsigned long total_out;
  const char* message;
  void* state;
  void* (*allocate)(void*, unsigned, unsigned);
  void (*release)(void*, void*);
  void* context;
  int data_type;
  unsigned long adler, reserved;
};

// The calls, as X(result, name, arguments).
#define HVD_LIBARCHIVE_CALLS(X)                                                                             \
  X(Handle, archive_read_new, (void))                                                                       \
  X(int, archive_read_free, (Handle))                                                                       \
  X(int, archive_read_support_format_tar, (Handle))                                                         \
  X(int, archive_read_support_filter_bzip2, (Handle))                                                       \
  X(int, archive_read_support_filter_xz, (Handle))                                                          \
  X(int, archive_read_support_filter_zstd, (Handle))                                                        \
  X(int, archive_read_set_format_option, (Handle, const char* format, const char* name, const char* value)) \
  X(int, archive_read_open_fd, (Handle, int descriptor, std::size_t block))                                 \
  X(int, archive_read_next_header, (Handle, Entry*))                                                        \
  X(int, archive_read_data_block, (Handle, const void**, std::size_t*, std::int64_t* offset))               \
  X(std::int64_t, archive_read_header_position, (Handle))                                                   \
  X(std::int64_t, archive_filter_bytes, (Handle, int filter))                                               \
  X(const char*, archive_error_string, (Handle))                                                            \
  X(int, archive_errno, (Handle))                                                                           \
  X(const char*, archive_entry_pathname, (Entry))                                                           \
  X(const char*, archive_entry_hardlink, (Entry))                                                           \
  X(const char*, archive_entry_symlink, (Entry))                                                            \
  X(mode_t, archive_entry_filetype, (Entry))                                                                \
  X(std::int64_t, archive_entry_size, (Entry))                                                              \
  X(Handle, archive_write_disk_new, (void))                                                                 \
  X(int, archive_write_disk_set_options, (Handle, int flags))                                               \
  X(int, archive_write_header, (Handle, Entry))                                                             \
  X(ssize_t, archive_write_data_block, (Handle, const void*, std::size_t, std::int64_t offset))             \
  X(int, archive_write_finish_entry, (Handle))                                                              \
  X(int, archive_write_close, (Handle))                                                                     \
  X(int, archive_write_free, (Handle))

#define HVD_ZLIB_CALLS(X)                                                                   \
  X(const char*, zlibVersion, (void))                                                       \
  X(int, inflateInit2_, (Inflation*, int window, const char* version, int bytes_of_stream)) \
  X(int, inflate, (Inflation*, int flush))                                                  \
  X(int, inflateReset, (Inflation*))                                                        \
  X(int, inflateEnd, (Inflation*))

struct Calls {
#define HVD_MEMBER(result, name, arguments) result(*name) arguments = nullptr;
  HVD_LIBARCHIVE_CALLS(HVD_MEMBER)
  HVD_ZLIB_CALLS(HVD_MEMBER)
#undef HVD_MEMBER
};

// Opens libarchive and zlib at the first call, for the rest of the process's life. Fails with ErrorCode::unsupported
// and names the package if one of them is missing. For one thread.
Result<const Calls*> calls();

}  // namespace hvd::archive
