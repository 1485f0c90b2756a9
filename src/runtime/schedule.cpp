#include "runtime/schedule.hpp"

#include "base/overloaded.hpp"

namespace hvd::runtime {

namespace {

// The kind of a record is its place in the variant.
template <typename Variant>
ByteWriter begin(const Variant& variant, Buffer& out) {
  out.clear();
  ByteWriter writer(out);
  writer.put(static_cast<std::uint8_t>(variant.index()));
  return writer;
}

std::string_view as_text(ConstBytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Error broken() {
  return {ErrorCode::system, "a record of the agreement is broken; this is a defect of the runtime"};
}

}  // namespace

void encode(const Request& request, Buffer& out) {
  ByteWriter writer = begin(request, out);
  std::visit(Overloaded{[&](const OpRequest& it) {
                          writer.put_string(it.name);
                          it.signature.write(writer);
                        },
                        [&](const ShutdownRequest& it) { writer.put_string(it.reason); },
                        [&](const PublishRequest& it) {
                          writer.put_string(it.key);
                          writer.put_string(as_text(it.value));
                        },
                        [&](const StallRequest& it) {
                          writer.put(it.waited_s);
                          writer.put(it.missing);
                          writer.put_string(it.name);
                          writer.put(it.final);
                        }},
             request);
}

Result<Request> decode_request(ConstBytes bytes) {
  ByteReader reader(bytes);
  Request request;
  switch (reader.get<std::uint8_t>()) {
    case 0: {
      auto name = reader.get_string();
      request = OpRequest{name, Signature::read(reader)};
      break;
    }
    case 1: request = ShutdownRequest{reader.get_string()}; break;
    case 2: {
      auto key = reader.get_string();
      request = PublishRequest{key, as_bytes(reader.get_string())};
      break;
    }
    case 3: {
      auto waited_s = reader.get<double>();
      auto missing = reader.get<Rank>();
      auto name = reader.get_string();
      request = StallRequest{waited_s, missing, name, reader.get<bool>()};
      break;
    }
    default: return broken();
  }
  if (!reader.ok()) return broken();
  return request;
}

void encode(const Record& record, Buffer& out) {
  ByteWriter writer = begin(record, out);
  std::visit(Overloaded{[&](const GiveRecord& it) {
                          writer.put(it.slot);
                          writer.put_string(it.name);
                        },
                        [&](const EvictRecord& it) { writer.put(it.slot); },
                        [&](const BatchRecord& it) {
                          writer.put(it.sequence);
                          writer.put(static_cast<std::uint32_t>(it.slots.size()));
                          writer.put_raw(it.slots.data(), it.slots.size_bytes());
                        },
                        [&](const FailRecord& it) {
                          writer.put_string(it.name);
                          writer.put_string(it.message);
                        },
                        [&](const ShutdownRecord& it) {
                          writer.put(it.by);
                          writer.put_string(it.reason);
                        },
                        [&](const PublishedRecord& it) {
                          writer.put(it.by);
                          writer.put_string(it.key);
                          writer.put_string(as_text(it.value));
                        }},
             record);
}

Result<Record> decode_record(ConstBytes bytes, std::vector<SlotId>& slots) {
  ByteReader reader(bytes);
  Record record;
  switch (reader.get<std::uint8_t>()) {
    case 0: {
      auto slot = reader.get<SlotId>();
      record = GiveRecord{slot, reader.get_string()};
      break;
    }
    case 1: record = EvictRecord{reader.get<SlotId>()}; break;
    case 2: {
      auto sequence = reader.get<Sequence>();
      auto count = reader.get<std::uint32_t>();
      slots.clear();
      for (std::uint32_t i = 0; i < count && reader.ok(); ++i) slots.push_back(reader.get<SlotId>());
      record = BatchRecord{sequence, slots};
      break;
    }
    case 3: {
      auto name = reader.get_string();
      record = FailRecord{name, reader.get_string()};
      break;
    }
    case 4: {
      auto by = reader.get<Rank>();
      record = ShutdownRecord{by, reader.get_string()};
      break;
    }
    case 5: {
      auto by = reader.get<Rank>();
      auto key = reader.get_string();
      record = PublishedRecord{by, key, as_bytes(reader.get_string())};
      break;
    }
    default: return broken();
  }
  if (!reader.ok()) return broken();
  return record;
}

}  // namespace hvd::runtime
