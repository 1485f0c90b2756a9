#include "checkpoint/state.hpp"

#include <limits>
#include <optional>
#include <unordered_map>

#include "checkpoint/element_type.hpp"

namespace hvd::checkpoint {
namespace {

constexpr std::size_t longest_name = 4096;

Error invalid(std::string text) {
  return {ErrorCode::invalid_argument, std::move(text)};
}

std::string hex_of(unsigned char letter) {
  constexpr char digits[] = "0123456789ABCDEF";
  return {'%', digits[letter >> 4], digits[letter & 15]};
}

std::optional<int> digit_of(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  if (letter >= 'A' && letter <= 'F') return letter - 'A' + 10;
  return std::nullopt;
}

// True if the name is one of the attributes that checkpoints use themselves.
bool is_reserved(std::string_view name) {
  return name == "kind" || name == "dtype" || name == "unit";
}

}  // namespace

std::string escape(std::string_view name) {
  if (name.empty()) return "%";
  if (name == "." || name == ".." || is_reserved(name))
    return hex_of(static_cast<unsigned char>(name[0])) + std::string(name.substr(1));
  std::string part;
  for (char letter : name) {
    if (letter == '/' || letter == '%' || letter == '\0') part += hex_of(static_cast<unsigned char>(letter));
    else part += letter;
  }
  return part;
}

std::string unescape(std::string_view part) {
  if (part == "%") return {};
  std::string name;
  for (std::size_t at = 0; at < part.size(); ++at) {
    if (part[at] == '%' && at + 2 < part.size()) {
      auto high = digit_of(part[at + 1]);
      auto low = digit_of(part[at + 2]);
      if (high && low) {
        name += static_cast<char>(*high * 16 + *low);
        at += 2;
        continue;
      }
    }
    name += part[at];
  }
  return name;
}

std::string_view parent_of(std::string_view path) {
  std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos || slash == 0 ? "/" : path.substr(0, slash);
}

std::string_view last_part_of(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

Result<std::int64_t> bytes_of(const Tensor& tensor) {
  const ElementType* type = element_type(tensor.dtype);
  if (type == nullptr)
    return invalid("elements of type \"" + tensor.dtype + "\" are not known; expected one of " + element_type_names());
  if (tensor.shape.size() > most_dimensions)
    return invalid(std::to_string(tensor.shape.size()) + " dimensions; HDF5 has at most " +
                   std::to_string(most_dimensions));
  auto bytes = static_cast<std::int64_t>(type->bytes);
  bool is_empty = false;
  for (std::int64_t extent : tensor.shape) {
    if (extent < 0) return invalid("a dimension of " + std::to_string(extent));
    is_empty = is_empty || extent == 0;
  }
  if (is_empty) return 0;
  for (std::int64_t extent : tensor.shape) {
    if (bytes > std::numeric_limits<std::int64_t>::max() / extent) return invalid("more than 2^63 bytes");
    bytes *= extent;
  }
  return bytes;
}

Status check(const State& state) {
  std::unordered_map<std::string_view, const Entry*> known;
  for (const Entry& entry : state) {
    std::string_view path = entry.path;
    if (path.empty() || path[0] != '/' || (path.size() > 1 && path.back() == '/') ||
        path.find("//") != std::string_view::npos || path.find('\0') != std::string_view::npos)
      return invalid("\"" + entry.path + "\" is no path: expected /names/separated/by.slashes");
    std::string_view last = last_part_of(path);
    if (last == "." || last == ".." || last.size() > longest_name || (is_reserved(last) && path.size() > 1))
      return invalid("\"" + entry.path +
                     "\": the last name is reserved or too long; write a character of it as % and two hexadecimal "
                     "digits, or choose a shorter one");
    if (const auto* text = std::get_if<std::string>(&entry.content); text != nullptr && text->find('\0') != text->npos)
      return invalid("\"" + entry.path + "\" is a text with a zero byte in it; write it as bytes (uint8)");
    if (!known.emplace(path, &entry).second) return invalid("\"" + entry.path + "\" appears twice");
    if (const auto* tensor = std::get_if<Tensor>(&entry.content)) {
      auto bytes = bytes_of(*tensor);
      if (!bytes) return invalid("\"" + entry.path + "\": " + bytes.error().message);
      if (*bytes > 0 && tensor->data == nullptr) return invalid("\"" + entry.path + "\" has no memory");
    }
  }
  for (const Entry& entry : state) {
    if (entry.path == "/") continue;
    auto around = known.find(parent_of(entry.path));
    if (around == known.end() && parent_of(entry.path) == "/") continue;
    if (around == known.end() || !std::holds_alternative<Group>(around->second->content))
      return invalid("\"" + entry.path + "\" is in \"" + std::string(parent_of(entry.path)) + "\", which is " +
                     (around == known.end() ? "missing" : "no group"));
  }
  return {};
}

}  // namespace hvd::checkpoint
