#pragma once
// The common parts of all functions of the C interface: they return a status, keep the reason of a failure for the
// calling thread, and accept structs of older and newer headers.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include "api/horovod.h"
#include "base/result.hpp"

namespace hvd::api {

// What hvd_last_error() and hvd_last_error_id() return in the calling thread.
struct LastError {
  std::string text;  // with the id at its end, unless the id is only that of the status
  std::string id;    // empty before the first failure
};
LastError& last_error();

hvd_status status_of(ErrorCode code);
hvd_status fail(ErrorCode code, std::string message);
hvd_status fail(const Error& error);
// Returns the id (base/error_ids) for the message of an error. A mismatch between ranks and a lost rank have the same
// id in every function; a timeout has the function's id `of_timeout`, and everything else its id `otherwise`.
std::string_view id_of(ErrorCode code, std::string_view otherwise, std::string_view of_timeout);
hvd_status wrong_struct(const char* name, std::size_t expected, std::size_t found);
hvd_status missing_struct(const char* name);

// Copies the caller's struct into `ours`. The caller's header may be older or newer than ours. Fields that an older
// struct lacks become zero, which means the default. Fields that only a newer struct has must be zero. `least` is the
// size that the struct had in the first release.
template <typename Struct>
hvd_status copy_in(const char* name, const Struct* given, std::size_t least, Struct& ours) {
  // A value above this limit cannot be a size. It is then the first field of a struct that does not begin with its
  // size.
  constexpr std::size_t most = 4096;
  if (given == nullptr) return missing_struct(name);
  const std::size_t size = given->struct_size;
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
