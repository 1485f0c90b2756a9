#pragma once
// What the ranks must agree on about an operation, besides its name.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/collective.hpp"
#include "base/verb.hpp"
#include "base/world.hpp"

namespace hvd::runtime {

struct Signature {
  Verb verb = Verb::allreduce;
  DataType dtype = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  double prescale = 1.0;
  double postscale = 1.0;
  Rank root;
  DeviceKind device = DeviceKind::host;
  bool transient = false;   // the name will not come again
  std::uint64_t group = 0;  // the group that may share a batch, if groups do not mix; the ranks need not agree on it
  std::vector<std::int64_t> shape;  // of the input; the first dimension may be each rank's own affair (verb row)

  friend bool operator==(const Signature&, const Signature&) = default;

  const VerbRow& row() const { return row_of(verb); }
  std::int64_t count() const;  // elements; per row where the first dimension is each rank's own affair
  // So many times count() elements; nothing if 64 bits cannot hold the number.
  std::optional<std::int64_t> bytes(std::int64_t times) const;
  std::string shape_text() const;
  std::size_t hash() const;
  // Two operations of equal kind may share a batch.
  bool fuses_with(const Signature& other) const;

  void write(ByteWriter& out) const;
  static Signature read(ByteReader& in);
};

// Whether the ranks that submitted these under one name meant the same.
bool agree(const Signature& first, const Signature& second);

// The first difference that matters between what two ranks submitted under one name, as a sentence for people; nothing
// if they agree.
std::optional<std::string> find_mismatch(const std::string& name, const Signature& first, const std::string& first_rank,
                                         const Signature& second, const std::string& second_rank);

}  // namespace hvd::runtime
