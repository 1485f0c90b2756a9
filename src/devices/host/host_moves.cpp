#include "devices/host/host_moves.hpp"

#include <array>
#include <cstddef>
#include <cstring>
#include <string>

#include "devices/host/host_kernels.hpp"
#include "devices/kernels/numbers.hpp"

namespace hvd::devices {

namespace {

using Conversion = void (*)(const void* from, void* to, std::size_t count, double scale);

// The arithmetic is that of the kernels for GPUs. Elements may have any alignment, and `to` may be equal to `from`.
template <typename From, typename To>
void convert(const void* from, void* to, std::size_t count, double scale) {
  for (std::size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, static_cast<const std::byte*>(from) + i * sizeof(From), sizeof(From));
    const To converted = Convert<From, To>::apply(value, scale);
    std::memcpy(static_cast<std::byte*>(to) + i * sizeof(To), &converted, sizeof(To));
  }
}

template <typename From>
constexpr std::array<Conversion, 4> conversions_of{&convert<From, F16>, &convert<From, BF16>, &convert<From, float>,
                                                   &convert<From, double>};
constexpr std::array conversions{conversions_of<F16>, conversions_of<BF16>, conversions_of<float>,
                                 conversions_of<double>};
static_assert(conversions.size() == floating_types && conversions[0].size() == floating_types);

Conversion conversion(const Treatment& treatment) {
  return conversions[row_of_floating(treatment.from)][row_of_floating(treatment.to)];
}

void move_one(const Move& move, const Treatment& treatment) {
  const auto count = static_cast<std::size_t>(move.count);
  const std::size_t bytes = count * size_of(treatment.to);
  const void* from = move.from;
  void* to = move.to;
  if (count == 0) return;
  if (from == nullptr) {
    std::memset(to, 0, bytes);
  } else if (treatment.from != treatment.to) {
    conversion(treatment)(from, to, count, treatment.scale);
  } else if (treatment.scale != 1.0 && treatment.from != DataType::boolean) {
    reduce_kernel(treatment.from, ReduceOp::sum)(&from, 1, &to, 1, move.count, {1.0, treatment.scale});
  } else if (to != from) {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

Status move_on_host(std::span<const Move> moves, const Treatment& treatment) {
  if (!is_possible(treatment))
    return Error(ErrorCode::unsupported, std::string("expected equal types or floating types, found ") +
                                             name_of(treatment.from) + " and " + name_of(treatment.to) +
                                             ": convert before or after the operation");
  const bool is_aborted = treatment.aborted != nullptr && *treatment.aborted != 0 && is_floating(treatment.to);
  for (const Move& move : moves) {
    if (!is_aborted) move_one(move, treatment);
    else if (move.count > 0) std::memset(move.to, 0xff, static_cast<std::size_t>(move.count) * size_of(treatment.to));
  }
  return {};
}

}  // namespace hvd::devices
