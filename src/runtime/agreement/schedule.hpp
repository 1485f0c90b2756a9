#pragma once
// The records of the schedule, and the requests that ranks send to the coordinator. The coordinator appends the records
// to the log, and every rank executes them in order. Each type defines its own form as bytes.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "runtime/operations/op_name.hpp"
#include "runtime/operations/signature.hpp"

namespace hvd::runtime {

// The memory for the lists of decoded records and requests, so that decoding allocates nothing. Valid until the next
// decode.
struct RecordStorage {
  std::vector<SlotId> slots;
  std::vector<Rank> ranks;
};

// The cause for which all ranks leave their loops.
enum class StopCause : std::uint8_t {
  program,     // the program asked for it
  warned,      // a signal that announces the end of the job
  terminated,  // a signal that would otherwise end the process
  time         // the scheduler will end the job
};

// ---- from a rank to the coordinator

struct OpRequest {  // "I have submitted this op and know no slot for it"
  OpNameView name;
  Signature signature;
  std::uint64_t seen = 0;  // number of records that the rank had read
  void write(ByteWriter& out) const;
  static OpRequest read(ByteReader& in, RecordStorage&);
};
struct JoinRequest {    // "I submit nothing more until all ranks have joined"
  bool is_idle = true;  // true if no earlier operation of the rank is under way; if false, a second request follows
                        // later
  void write(ByteWriter& out) const { out.put(is_idle); }
  static JoinRequest read(ByteReader& in, RecordStorage&) { return {in.get<bool>()}; }
};
struct ShutdownRequest {
  std::string_view reason;  // the reason for the end; empty if the program asked for it
  void write(ByteWriter& out) const;
  static ShutdownRequest read(ByteReader& in, RecordStorage&);
};
struct PublishRequest {  // sends a value to the ranks of a set, while they make their links
  ProcessSetId set;
  std::string_view key;
  ConstBytes value;
  void write(ByteWriter& out) const;
  static PublishRequest read(ByteReader& in, RecordStorage&);
};
struct StallRequest {  // "I have waited long". The root finds out for which ranks, and reports that to the user
  double waited_s = 0;
  Rank missing{-1};  // the rank that a running batch waits for; -1 if the op is not agreed yet
  OpNameView name;
  bool final = false;       // long enough to end the job
  std::string_view device;  // where the op was issued and has not ended, "cuda device 0"; empty: it was not issued
  void write(ByteWriter& out) const;
  static StallRequest read(ByteReader& in, RecordStorage&);
};
struct StopPointRequest {  // "all ranks should leave their loops soon"
  StopCause cause = StopCause::program;
  std::string_view reason;
  void write(ByteWriter& out) const;
  static StopPointRequest read(ByteReader& in, RecordStorage&);
};
struct StopAckRequest {  // "my program knows of the stop point". The root reports the ranks that never send this
  void write(ByteWriter&) const {}
  static StopAckRequest read(ByteReader&, RecordStorage&) { return {}; }
};
struct BatchEndedRequest {  // "a batch of this lane has ended". From the lowest member of a set without the root
  ProcessSetId set;
  DeviceKind kind = DeviceKind::host;
  void write(ByteWriter& out) const;
  static BatchEndedRequest read(ByteReader& in, RecordStorage&);
};
using Request = std::variant<OpRequest, JoinRequest, ShutdownRequest, PublishRequest, StallRequest, StopPointRequest,
                             StopAckRequest, BatchEndedRequest>;

void encode(const Request& request, Buffer& out);
Result<Request> decode_request(ConstBytes bytes);  // the views in the result point into `bytes`

// ---- from the coordinator to everybody

struct GiveRecord {  // this op has this slot from now on
  SlotId slot;
  OpNameView name;
  Signature signature;  // signature for a joined rank that never submitted the op; if it is transient, the slot ends
                        // with its batch
  void write(ByteWriter& out) const;
  static GiveRecord read(ByteReader& in, RecordStorage&);
};
struct EvictRecord {  // the slot has no meaning any more; ranks that have arrived at it must send a request
  SlotId slot;
  void write(ByteWriter& out) const { out.put(slot); }
  static EvictRecord read(ByteReader& in, RecordStorage&) { return {in.get<SlotId>()}; }
};
struct BatchRecord {  // carry out these ops together; all are of one set
  Sequence sequence;
  ProcessSetId set;
  std::span<const SlotId> slots;
  void write(ByteWriter& out) const;
  static BatchRecord read(ByteReader& in, RecordStorage& storage);
};
struct FailRecord {  // this op cannot be carried out, for example because the ranks disagree about it
  OpNameView name;
  ErrorCode code = ErrorCode::mismatch;
  std::string_view message;
  void write(ByteWriter& out) const;
  static FailRecord read(ByteReader& in, RecordStorage&);
};
struct JoinRecord {  // from now on the rank takes part with zeros in all ops that it has not submitted
  Rank rank;
  void write(ByteWriter& out) const { out.put(rank); }
  static JoinRecord read(ByteReader& in, RecordStorage&) { return {in.get<Rank>()}; }
};
struct AllJoinedRecord {  // no rank is joined any more
  Rank last;
  void write(ByteWriter& out) const { out.put(last); }
  static AllJoinedRecord read(ByteReader& in, RecordStorage&) { return {in.get<Rank>()}; }
};
struct AddSetRecord {
  std::span<const Rank> ranks;
  void write(ByteWriter& out) const;
  static AddSetRecord read(ByteReader& in, RecordStorage& storage);
};
struct RemoveSetRecord {
  ProcessSetId set;
  void write(ByteWriter& out) const { out.put(set); }
  static RemoveSetRecord read(ByteReader& in, RecordStorage&) { return {in.get<ProcessSetId>()}; }
};
struct ShutdownRecord {
  Rank by;
  std::string_view reason;
  std::string_view id{};  // of the reason (base/error_ids.hpp); a literal. Empty if it has none
  void write(ByteWriter& out) const;
  static ShutdownRecord read(ByteReader& in, RecordStorage&);
};
struct PublishedRecord {
  Rank by;
  ProcessSetId set;
  std::string_view key;
  ConstBytes value;
  void write(ByteWriter& out) const;
  static PublishedRecord read(ByteReader& in, RecordStorage&);
};
// The place of this record in the log is the stop point. A thread leaves its loop once it has waited for an operation
// that was decided later in the log. Its rank has read this record by then, so all ranks leave at the same step.
struct StopPointRecord {
  Rank by;
  StopCause cause = StopCause::program;
  std::string_view reason;
  void write(ByteWriter& out) const;
  static StopPointRecord read(ByteReader& in, RecordStorage&);
};
using Record = std::variant<GiveRecord, EvictRecord, BatchRecord, FailRecord, JoinRecord, AllJoinedRecord, AddSetRecord,
                            RemoveSetRecord, ShutdownRecord, PublishedRecord, StopPointRecord>;

void encode(const Record& record, Buffer& out);
Result<Record> decode_record(ConstBytes bytes, RecordStorage& storage);

void write(ByteWriter& out, OpNameView name);
OpNameView read_name(ByteReader& in);

}  // namespace hvd::runtime
