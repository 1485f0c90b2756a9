#include "base/result.hpp"

#include <system_error>

#include "base/error_ids.hpp"

namespace hvd {

const char* name_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument: return "invalid argument";
    case ErrorCode::mismatch: return "mismatch between ranks";
    case ErrorCode::not_initialized: return "not initialized";
    case ErrorCode::shut_down: return "shut down";
    case ErrorCode::peer_lost: return "peer lost";
    case ErrorCode::timeout: return "timeout";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::out_of_memory: return "out of memory";
    case ErrorCode::system: return "system error";
  }
  return "unknown error";
}

std::string Error::text() const {
  return id.empty() ? message : with_id(message, id);
}

std::string errno_text(int errno_value) {
  return std::generic_category().message(errno_value);
}

Error system_error(std::string what, int errno_value, std::source_location origin) {
  return {ErrorCode::system, std::move(what) + ": " + errno_text(errno_value), origin};
}

}  // namespace hvd
