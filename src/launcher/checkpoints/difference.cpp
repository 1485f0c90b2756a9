#include "launcher/checkpoints/difference.hpp"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/overloaded.hpp"
#include "base/text/cut_text.hpp"
#include "checkpoint/element_type.hpp"

namespace hvd::launcher {
namespace {

using checkpoint::Entry;
using checkpoint::Reader;
using checkpoint::Tensor;

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}
std::string number(long double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.20Lg", value);
  return text;
}

// Returns the beginning of a text, without line feeds and cut only between whole letters of UTF-8.
std::string in_one_line(const std::string& text) {
  const std::string_view shown = cut_text(text, 60);
  std::string line;
  for (char letter : shown) line += letter == '\n' ? std::string("\\n") : std::string(1, letter);
  return shown.size() < text.size() ? line + "…" : line;
}

// Returns the element as a number; nullopt for types whose differences have no size. A double would round integers.
std::optional<long double> element_at(const Buffer& bytes, std::size_t index, std::string_view dtype) {
  auto get = [&]<typename T>(T value) {
    std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
    return value;
  };
  if (dtype == "float32") return get(0.0f);
  if (dtype == "float64") return get(0.0);
  if (dtype == "bfloat16") return std::bit_cast<float>(static_cast<std::uint32_t>(get(std::uint16_t{})) << 16);
  if (dtype == "int64") return get(std::int64_t{});
  if (dtype == "uint64") return get(std::uint64_t{});
  if (dtype == "int32") return get(std::int32_t{});
  if (dtype == "uint32") return get(std::uint32_t{});
  if (dtype == "int16") return get(std::int16_t{});
  if (dtype == "uint16") return get(std::uint16_t{});
  if (dtype == "int8") return get(std::int8_t{});
  if (dtype == "uint8") return get(std::uint8_t{});
  return std::nullopt;
}

Result<std::string> difference_of_tensors(const Reader& left, const Reader& right, const Entry& entry) {
  const auto& tensor = std::get<Tensor>(entry.content);
  auto size = static_cast<std::size_t>(checkpoint::bytes_of(tensor).value());
  Buffer one(size);
  Buffer other(size);
  HVD_RETURN_IF_ERROR(left.read(entry.path, one.data(), size));
  HVD_RETURN_IF_ERROR(right.read(entry.path, other.data(), size));
  if (one == other) return std::string();
  std::size_t width = checkpoint::element_type(tensor.dtype)->bytes;
  std::size_t count = 0;
  long double largest = 0;
  bool has_size = true;
  for (std::size_t i = 0; i < size / width; ++i) {
    if (std::memcmp(one.data() + i * width, other.data() + i * width, width) == 0) continue;
    ++count;
    auto a = element_at(one, i, tensor.dtype);
    auto b = element_at(other, i, tensor.dtype);
    has_size = has_size && a && b;
    // A NaN, such as that of an element that is NaN in one checkpoint alone, is kept.
    if (has_size && !std::isnan(largest) && !(std::abs(*a - *b) <= largest)) largest = std::abs(*a - *b);
  }
  std::string text = std::to_string(count) + " of " + std::to_string(size / width) + " elements differ";
  return has_size ? text + ", at most by " + number(largest) : text;
}

// Each type of entry says how two of its contents are compared. Numbers are compared by their bits, since a NaN is not
// equal to itself.
constexpr Overloaded are_same{
    [](const checkpoint::Group&, const checkpoint::Group&) { return true; },
    [](const checkpoint::None&, const checkpoint::None&) { return true; },
    [](bool left, bool right) { return left == right; },
    [](std::int64_t left, std::int64_t right) { return left == right; },
    [](double left, double right) { return std::bit_cast<std::uint64_t>(left) == std::bit_cast<std::uint64_t>(right); },
    [](const std::string& left, const std::string& right) { return left == right; },
    [](const Tensor& left, const Tensor& right) { return left == right; },  // of what type and shape they are
};

bool are_equal(const Entry& left, const Entry& right) {
  return left.path == right.path && left.kind == right.kind && left.content.index() == right.content.index() &&
         std::visit([&]<typename T>(const T& content) { return are_same(content, std::get<T>(right.content)); },
                    left.content);
}

}  // namespace

std::string words_for(const Entry& entry) {
  std::string text = std::visit(
      Overloaded{[](const checkpoint::Group&) { return std::string("group"); },
                 [](const checkpoint::None&) { return std::string("nothing"); },
                 [](bool value) { return std::string(value ? "true" : "false"); },
                 [](std::int64_t value) { return "integer " + std::to_string(value); },
                 [](double value) { return "number " + number(value); },
                 [](const std::string& value) { return "text \"" + in_one_line(value) + "\""; },
                 [](const Tensor& tensor) {
                   std::string shape;
                   for (std::int64_t extent : tensor.shape)
                     shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
                   return tensor.dtype + " [" + shape + "]" + (tensor.unit.empty() ? "" : " in " + tensor.unit);
                 }},
      entry.content);
  return entry.kind.empty() ? text : text + " (" + entry.kind + ")";
}

Result<std::vector<std::string>> differences(const Reader& left, const Reader& right) {
  std::vector<std::string> lines;
  for (const Entry& entry : left.state()) {
    const Entry* other = right.find(entry.path);
    if (other == nullptr) {
      lines.push_back(entry.path + ": only in " + left.path() + ", " + words_for(entry));
    } else if (!are_equal(entry, *other)) {
      if (entry.path != "/saved_at")
        lines.push_back(entry.path + ": " + words_for(entry) + " and " + words_for(*other));
    } else if (std::holds_alternative<Tensor>(entry.content)) {
      auto difference = difference_of_tensors(left, right, entry);
      if (!difference) return difference.error();
      if (!difference->empty()) lines.push_back(entry.path + ": " + *difference);
    }
  }
  for (const Entry& entry : right.state())
    if (left.find(entry.path) == nullptr)
      lines.push_back(entry.path + ": only in " + right.path() + ", " + words_for(entry));
  return lines;
}

}  // namespace hvd::launcher
