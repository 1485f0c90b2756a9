#pragma once
// The values in the tensors of a program, and the values that must be in them afterwards: the naive model.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "programs/program.hpp"

namespace hvd::programs {

// One use of an operation in one step.
struct Occasion {
  const Program* program = nullptr;
  int phase = 0, use = 0, step = 0;

  const Use& what() const {
    return program->phases[static_cast<std::size_t>(phase)].uses[static_cast<std::size_t>(use)];
  }
  const Kind& kind() const { return what().kind_in(step); }
  const std::vector<int>& members() const { return program->sets[static_cast<std::size_t>(what().set)].ranks; }
  int place_of(int rank) const;
  // False if the rank has already joined.
  bool takes_part(int rank) const;
};

std::size_t bytes_of(hvd_dtype dtype);
// The number of elements that a rank gives, and the number that it gets.
std::int64_t count_in(const Occasion& it, int rank);
std::int64_t count_out(const Occasion& it, int rank);
// The number of rows that a rank gets from each member.
std::vector<std::int64_t> rows_from(const Occasion& it, int rank);
void fill_input(const Occasion& it, int rank, std::byte* data);
// Describes the first difference from the expected result. Nothing if there is no difference.
std::optional<std::string> find_fault(const Occasion& it, int rank, const std::byte* found);

}  // namespace hvd::programs
