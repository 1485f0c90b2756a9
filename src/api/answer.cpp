#include "api/answer.hpp"

namespace hvd::api {

LastError& last_error() {
  thread_local LastError last;
  return last;
}

hvd_status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return HVD_INVALID_ARGUMENT;
    case ErrorCode::mismatch: return HVD_MISMATCH;
    case ErrorCode::not_initialized: return HVD_NOT_INITIALIZED;
    case ErrorCode::shut_down: return HVD_SHUT_DOWN;
    case ErrorCode::peer_lost: return HVD_PEER_LOST;
    case ErrorCode::timeout: return HVD_TIMEOUT;
    case ErrorCode::unsupported: return HVD_UNSUPPORTED;
    case ErrorCode::out_of_memory: return HVD_OUT_OF_MEMORY;
    case ErrorCode::system: return HVD_SYSTEM_ERROR;
  }
  return HVD_SYSTEM_ERROR;
}

namespace {

// The id of an error that nothing more is known of. It is not in the text, which is often one that users know.
std::string_view id_of_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return "HVD2106";
    case ErrorCode::mismatch: return "HVD2101";
    case ErrorCode::not_initialized: return "HVD2004";
    case ErrorCode::shut_down: return "HVD2107";
    case ErrorCode::peer_lost: return "HVD2102";
    case ErrorCode::timeout: return "HVD2103";
    case ErrorCode::unsupported: return "HVD2108";
    case ErrorCode::out_of_memory: return "HVD2109";
    case ErrorCode::system: return "HVD2110";
  }
  return "HVD2110";
}

}  // namespace

hvd_status fail(ErrorCode code, std::string message) {
  last_error() = {std::move(message), std::string(id_of_code(code))};
  return status_of(code);
}
hvd_status fail(const Error& error) {
  last_error() = {error.text(), std::string(error.id.empty() ? id_of_code(error.code) : error.id)};
  return status_of(error.code);
}

std::string_view id_of(ErrorCode code, std::string_view otherwise, std::string_view of_timeout) {
  switch (code) {
    case ErrorCode::mismatch:
    case ErrorCode::peer_lost: return id_of_code(code);
    case ErrorCode::timeout: return of_timeout;
    case ErrorCode::invalid_argument:
    case ErrorCode::not_initialized:
    case ErrorCode::shut_down:
    case ErrorCode::unsupported:
    case ErrorCode::out_of_memory:
    case ErrorCode::system: break;
  }
  return otherwise;
}

hvd_status wrong_struct(const char* name, std::size_t expected, std::size_t found) {
  return fail(ErrorCode::invalid_argument, std::string(name) + ".struct_size is " + std::to_string(found) +
                                               "; set it to sizeof(" + name + "), here " + std::to_string(expected));
}

hvd_status missing_struct(const char* name) {
  return fail(ErrorCode::invalid_argument, std::string("expected a ") + name + "; got null");
}

}  // namespace hvd::api
