#pragma once
// Stable names of the errors that users see, at the end of messages: "… [HVD1004]". docs/errors.md explains each error
// and tells what to do.
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace hvd {

// Gives the error an id. An error that has one keeps it, because the code that knows the cause best gives the id first.
Error identified(Error error, std::string_view id);

// Returns the id of the table that is equal to this text, as a literal; empty if there is none. For ids that another
// process has sent.
std::string_view known_id(std::string_view text);

// Returns the message with the id at its end, for people. Everything that prints an id uses this function.
std::string with_id(std::string message, std::string_view id);

struct ErrorRow {
  const char* id;
  const char* title;
  const char* paragraph;
};
std::span<const ErrorRow> error_rows();

// The headings of docs/errors.md, by the first id below each.
struct ErrorSection {
  const char* first_id;
  const char* title;
};
std::span<const ErrorSection> error_sections();

}  // namespace hvd
