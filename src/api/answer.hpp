#pragma once
// What every function of the C interface does alike: it answers with a status, keeps the reason for the calling thread,
// and takes structs of other releases.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "api/horovod.h"
#include "base/result.hpp"

namespace hvd::api {

// Of the calling thread: what hvd_last_error() shows.
std::string& last_error();

hvd_status status_of(ErrorCode code);
hvd_status fail(ErrorCode code, std::string message);
hvd_status fail(const Error& error);
hvd_status wrong_struct(const char* name, std::size_t expected, std::size_t found);

// The caller's struct, whose header may be older or newer than ours. Fields that it lacks are zero, which means the
// default; fields that we do not know must be zero. `least` is the size that the first release had.
template <typename Struct>
hvd_status copy_in(const char* name, const Struct* given, std::size_t least, Struct& ours) {
  // A larger value is no size, but the first field of a struct that does not begin with its size.
  constexpr std::size_t most = 4096;
  std::size_t size = given == nullptr ? 0 : given->struct_size;
  if (size < least || size > most) return wrong_struct(name, sizeof(Struct), size);
  ours = {};
  std::memcpy(&ours, given, std::min(size, sizeof(Struct)));
  ours.struct_size = sizeof(Struct);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(Struct); i < size; ++i)
    if (bytes[i] != 0)
      return fail(ErrorCode::unsupported,
                  std::string(name) + " has " + std::to_string(size) + " bytes, of which Horovod " + HVD_VERSION +
                      " knows " + std::to_string(sizeof(Struct)) + "; a field behind them is set (byte " +
                      std::to_string(i) + "). Load a newer libhorovod, or leave that field zero");
  return HVD_OK;
}

}  // namespace hvd::api
