#pragma once
// Stable names of the errors that users meet, at the end of messages: "… [HVD1004]". docs/errors.md says about each
// what it means and what to do.
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace hvd {

// The message with the id at its end, unless it has one already: who knows the cause best says it first.
std::string identified(std::string message, std::string_view id);
Error identified(Error error, std::string_view id);

struct ErrorRow {
  const char* id;
  const char* title;
  const char* paragraph;
};
std::span<const ErrorRow> error_rows();

}  // namespace hvd
