#pragma once
// The properties of an operation, besides its name, on which the ranks must agree.
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
  bool transient = false;           // the name will not be used again
  std::uint64_t group = 0;          // if groups must not mix: the group whose operations may share a batch; may differ
                                    // between ranks
  std::vector<std::int64_t> shape;  // shape of the input; some verbs allow another first dimension on each rank

  friend bool operator==(const Signature&, const Signature&) = default;

  const VerbRow& row() const { return row_of(verb); }
  std::int64_t count() const;  // number of elements; elements per row if the first dimension may differ between ranks
  // Returns the bytes of `times` times count() elements. Returns nothing if the number does not fit into 64 bits.
  std::optional<std::int64_t> bytes(std::int64_t times) const;
  std::string shape_text() const;
  std::size_t hash() const;
  // True if the two operations may share a batch.
  bool fuses_with(const Signature& other) const;

  void write(ByteWriter& out) const;
  static Signature read(ByteReader& in);
};

// True if the two signatures that ranks submitted under one name fit together.
bool agree(const Signature& first, const Signature& second);

// Describes, as a sentence for people, the first difference between two signatures that ranks submitted under one name.
// Returns nothing if the ranks agree.
std::optional<std::string> find_mismatch(const std::string& name, const Signature& first, const std::string& first_rank,
                                         const Signature& second, const std::string& second_rank);

}  // namespace hvd::runtime
