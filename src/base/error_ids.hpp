#pragma once
// Stable names of the errors that users see, at the end of messages: "… [HVD1004]". docs/errors.md explains each error
// and tells what to do.
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace hvd {

// Returns the message with the id at its end. If the message has an id already, it is not changed, because the code
// that knows the cause best gives the id first.
std::string identified(std::string message, std::string_view id);
Error identified(Error error, std::string_view id);

struct ErrorRow {
  const char* id;
  const char* title;
  const char* paragraph;
};
std::span<const ErrorRow> error_rows();

}  // namespace hvd
