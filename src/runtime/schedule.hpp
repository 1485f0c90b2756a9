#pragma once
// The records of the schedule: what the writer appends to the log and every rank executes in order; and the requests
// that ranks send to it. How they look as bytes is known here only.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "runtime/signature.hpp"

namespace hvd::runtime {

// ---- from a rank to the writer

struct OpRequest {  // "I have submitted this op, and know no slot for it"
  std::string_view name;
  Signature signature;
};
struct ShutdownRequest {
  std::string_view reason;  // empty: the program asked for it
};
struct PublishRequest {  // a value for all ranks, while links are made
  std::string_view key;
  ConstBytes value;
};
struct StallRequest {  // "I have waited long": the writer knows best for whom, and tells people
  double waited_s;
  Rank missing;  // the rank that a running batch waits for; -1 if the op is not agreed yet
  std::string_view name;
  bool final;  // long enough to end the job
};
using Request = std::variant<OpRequest, ShutdownRequest, PublishRequest, StallRequest>;

void encode(const Request& request, Buffer& out);
Result<Request> decode_request(ConstBytes bytes);  // views point into `bytes`

// ---- from the writer to everybody

struct GiveRecord {  // the op of this name has this slot from now on
  SlotId slot;
  std::string_view name;
};
struct EvictRecord {  // the slot means nothing any more; who has arrived at it must send a request
  SlotId slot;
};
struct BatchRecord {  // carry out these together
  Sequence sequence;
  std::span<const SlotId> slots;  // valid until the next decode into the same storage
};
struct FailRecord {  // the ranks disagree about the op of this name
  std::string_view name;
  std::string_view message;
};
struct ShutdownRecord {
  Rank by;
  std::string_view reason;
};
struct PublishedRecord {
  Rank by;
  std::string_view key;
  ConstBytes value;
};
using Record = std::variant<GiveRecord, EvictRecord, BatchRecord, FailRecord, ShutdownRecord, PublishedRecord>;

void encode(const Record& record, Buffer& out);
// `slots` is storage for a batch's slots, so that reading one allocates nothing.
Result<Record> decode_record(ConstBytes bytes, std::vector<SlotId>& slots);

}  // namespace hvd::runtime
