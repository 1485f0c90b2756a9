#pragma once
// Result<T> and Status: functions that can fail return one of these. Nothing below the C API throws. The members have
// the names of std::expected, which GCC 12 does not offer in C++20.
#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/panic.hpp"

namespace hvd {

enum class ErrorCode : std::uint8_t {
  invalid_argument,  // the caller's mistake, found by this rank alone
  mismatch,          // the ranks disagree about an operation
  not_initialized,
  shut_down,  // the runtime was shut down, here or by another rank
  peer_lost,  // another rank ended or cannot be reached
  timeout,
  unsupported,
  out_of_memory,
  system,  // the operating system or a library refused
};

const char* name_of(ErrorCode code) noexcept;

// The message names what was expected, what was found and what to do.
struct Error {
  ErrorCode code;
  std::string message;
  std::source_location origin;
  // The error's stable name in docs/errors.md; empty if it has none. It refers to a literal (base/error_ids.hpp).
  std::string_view id{};
  // True if this error only follows from another rank's failure. That rank knows the cause and will announce it.
  bool is_a_consequence = false;

  Error(ErrorCode code_, std::string message_, std::source_location origin_ = std::source_location::current())
      : code(code_), message(std::move(message_)), origin(origin_) {}
  std::string text() const;  // for people: the message, with the id at its end
};

// errno_text() returns the C library's text for a value of errno.
// system_error() makes an Error of code `system` whose message ends with that text.
std::string errno_text(int errno_value);
Error system_error(std::string what, int errno_value, std::source_location origin = std::source_location::current());

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : content_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const noexcept { return content_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }
  T& value() {
    check();
    return *std::get_if<0>(&content_);
  }
  const T& value() const {
    check();
    return *std::get_if<0>(&content_);
  }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  Error& error() {
    check_failed();
    return *std::get_if<1>(&content_);
  }
  const Error& error() const {
    check_failed();
    return *std::get_if<1>(&content_);
  }

 private:
  void check_failed() const {
    if (has_value()) panic("the error of a Result that has a value was read");
  }
  void check() const {
    if (!has_value()) panic("a failed Result was read as a value: " + error().message);
  }
  std::variant<T, Error> content_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const noexcept { return !error_.has_value(); }
  explicit operator bool() const noexcept { return has_value(); }
  Error& error() {
    check_failed();
    return *error_;
  }
  const Error& error() const {
    check_failed();
    return *error_;
  }

 private:
  void check_failed() const {
    if (has_value()) panic("the error of a Status that is good was read");
  }
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace hvd

// Returns a failed Status or Result to the caller.
#define HVD_RETURN_IF_ERROR(expression)                                                         \
  do {                                                                                          \
    if (auto&& hvd_status_ = (expression); !hvd_status_) return std::move(hvd_status_.error()); \
  } while (false)
