// Prints the tables of knobs and errors, for docs/settings and docs/errors: a line for each row, its fields separated
// by tabs. `docs_tables knobs` or `docs_tables errors`.
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error_ids.hpp"
#include "base/settings/config.hpp"

namespace {

void print_line(std::initializer_list<std::string_view> fields) {
  std::string line;
  for (std::string_view field : fields) line += (line.empty() ? "" : "\t") + std::string(field);
  std::puts(line.c_str());
}

std::string limit(double value) {
  return std::to_string(static_cast<long long>(value));
}

// Returns a knob's values in words: "`mpi`, `gloo`", "count from 1".
std::string values_of(const hvd::KnobRow& knob) {
  std::string text = knob.kind;
  if (text.find(" | ") != std::string::npos) {
    for (std::size_t at = 0; (at = text.find(" | ", at)) != std::string::npos;) text.replace(at, 3, "`, `");
    return "`" + text + "`";
  }
  // The upper limits of counts and bytes are there to catch typing errors. Readers do not need them.
  if (knob.least > 0) text += " from " + limit(knob.least);
  if (knob.least > 0 && knob.most < 2147483648.0) text += " to " + limit(knob.most);
  return text;
}

void print_knobs() {
  for (const hvd::KnobRow& knob : hvd::knobs()) {
    for (const hvd::KnobSection& section : hvd::knob_sections())
      if (std::strcmp(section.first_knob, knob.name) == 0) print_line({"section", section.title, section.text});
    const char* is_equal = knob.trait == hvd::KnobTrait::equal ? "equal" : "";
    print_line({"row", knob.name, values_of(knob), knob.default_value, knob.meaning, is_equal});
  }
}

void print_errors() {
  for (const hvd::ErrorRow& error : hvd::error_rows()) {
    for (const hvd::ErrorSection& section : hvd::error_sections())
      if (std::strcmp(section.first_id, error.id) == 0) print_line({"section", section.title});
    print_line({"row", error.id, error.title, error.paragraph});
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view table = count == 2 ? arguments[1] : "";
  if (table == "knobs") return print_knobs(), 0;
  if (table == "errors") return print_errors(), 0;
  std::fputs("usage: docs_tables knobs|errors\n", stderr);
  return 2;
}
