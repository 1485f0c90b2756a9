#include "runtime/operations/signature.hpp"

#include <algorithm>
#include <cmath>

#include "base/recently_used.hpp"
#include "runtime/operations/process_sets.hpp"

namespace hvd::runtime {

namespace {

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// Returns the shortest text that is read back as the same number.
std::string text_of(double number) {
  char text[32];
  for (int digits = 6; digits <= 17; digits += 11) {
    std::snprintf(text, sizeof text, "%.*g", digits, number);
    if (std::strtod(text, nullptr) == number) break;
  }
  return text;
}

bool are_equal(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

bool shapes_agree(const Signature& a, const Signature& b) {
  if (a.row().agreed != VerbRow::Agreed::all_but_first) return a.shape == b.shape;
  if (a.shape.empty() || b.shape.empty()) return false;  // without a dimension there is nothing to gather along
  return a.shape.size() == b.shape.size() && std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1);
}

}  // namespace

std::int64_t Signature::count() const {
  return bytes(1).value_or(0) / static_cast<std::int64_t>(size_of(dtype));
}

std::optional<std::int64_t> Signature::bytes(std::int64_t times) const {
  if (!row().has_tensor() || !row().moves_data()) return 0;
  auto first = shape.begin() + (row().agreed == VerbRow::Agreed::all_but_first && !shape.empty() ? 1 : 0);
  // If a tensor is empty, its other dimensions may have any size.
  if (times == 0 || std::find(first, shape.end(), 0) != shape.end()) return 0;
  auto product = static_cast<std::int64_t>(size_of(dtype));
  bool is_too_large = __builtin_mul_overflow(product, times, &product);
  for (auto extent = first; extent != shape.end(); ++extent)
    is_too_large = __builtin_mul_overflow(product, *extent, &product) || is_too_large;
  if (is_too_large) return std::nullopt;
  return product;
}

std::string Signature::shape_text() const {
  return text_of(shape);
}

std::size_t Signature::hash() const {
  auto bits = [](double number) { return std::hash<double>{}(number); };
  std::size_t all = static_cast<std::size_t>(verb) << 16 | static_cast<std::size_t>(dtype) << 8 |
                    static_cast<std::size_t>(op) << 4 | static_cast<std::size_t>(device) << 1 | (transient ? 1 : 0);
  for (std::size_t part : {bits(prescale), bits(postscale), std::hash<Rank>{}(root), static_cast<std::size_t>(group)})
    all = mix_hash(all, part);
  for (std::int64_t extent : shape) all = mix_hash(all, static_cast<std::size_t>(extent));
  return all;
}

bool Signature::fuses_with(const Signature& other) const {
  return row().fuses() && other.verb == verb && dtype == other.dtype && op == other.op && device == other.device &&
         prescale == other.prescale && postscale == other.postscale;
}

void Signature::write(ByteWriter& out) const {
  out.put(verb);
  out.put(dtype);
  out.put(op);
  out.put(device);
  out.put(transient);
  out.put(prescale);
  out.put(postscale);
  out.put(root.value);
  out.put(group);
  out.put(static_cast<std::uint32_t>(shape.size()));
  out.put_raw(shape.data(), shape.size() * sizeof(std::int64_t));
}

Signature Signature::read(ByteReader& in) {
  Signature result;
  result.verb = in.get<Verb>();
  result.dtype = in.get<DataType>();
  result.op = in.get<ReduceOp>();
  result.device = in.get<DeviceKind>();
  result.transient = in.get<bool>();
  result.prescale = in.get<double>();
  result.postscale = in.get<double>();
  result.root = Rank{in.get<std::int32_t>()};
  result.group = in.get<std::uint64_t>();
  auto dimensions = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < dimensions && in.ok(); ++i) result.shape.push_back(in.get<std::int64_t>());
  return result;
}

bool agree(const Signature& first, const Signature& second) {
  return !find_mismatch("", first, "", second, "");
}

std::optional<std::string> find_mismatch(const std::string& name, const Signature& first, const std::string& first_rank,
                                         const Signature& second, const std::string& second_rank) {
  auto differ = [&](const std::string& what, const std::string& a, const std::string& b, const std::string& remedy) {
    return "Mismatched " + what + " for '" + name + "': " + first_rank + " sent " + a + ", " + second_rank + " sent " +
           b + ". " + remedy;
  };
  const std::string same = "All ranks must submit the same under one name.";
  if (first.dtype != second.dtype) return differ("data types", name_of(first.dtype), name_of(second.dtype), same);
  if (first.verb != second.verb)
    return differ("collective operations", name_of(first.verb), name_of(second.verb), same);
  if (first.verb == Verb::add_set && first.shape != second.shape)
    return differ("ranks", "[" + describe(ranks_in(first.shape)) + "]", "[" + describe(ranks_in(second.shape)) + "]",
                  "All ranks must add the same process sets in the same order.");
  if (first.verb == Verb::remove_set && first.shape != second.shape)
    return differ("numbers", text_of(first.shape), text_of(second.shape),
                  "All ranks must remove the same process sets in the same order.");
  if (!shapes_agree(first, second))
    return differ(std::string(name_of(first.verb)) + " tensor shapes", text_of(first.shape), text_of(second.shape),
                  first.row().agreed == VerbRow::Agreed::shape ? same
                  : first.shape.empty() || second.shape.empty()
                      ? "A tensor whose rows are exchanged needs a first dimension, as in [1]."
                      : "Only the first dimension may differ between ranks.");
  if (first.row().reduces()) {
    if (!are_equal(first.prescale, second.prescale))
      return differ("prescale factors", text_of(first.prescale), text_of(second.prescale), same);
    if (!are_equal(first.postscale, second.postscale))
      return differ("postscale factors (an average is a sum with postscale 1/n)", text_of(first.postscale),
                    text_of(second.postscale), same);
    if (first.op != second.op) return differ("reduce operations", name_of(first.op), name_of(second.op), same);
  }
  if (first.row().has_root() && first.root != second.root)
    return differ(std::string(name_of(first.verb)) + " root ranks", std::to_string(first.root.value),
                  std::to_string(second.root.value), same);
  if (first.transient != second.transient)
    return differ("ways of preparing it", first.transient ? "an operation for one use" : "one that comes again",
                  second.transient ? "an operation for one use" : "one that comes again", same);
  if (first.device != second.device)
    return differ("devices", std::string("a tensor in ") + name_of(first.device) + " memory",
                  std::string("one in ") + name_of(second.device) + " memory", same);
  return std::nullopt;
}

}  // namespace hvd::runtime
