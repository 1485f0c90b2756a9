#include "bootstrap/store/visitor.hpp"

#include <algorithm>
#include <chrono>
#include <optional>

#include "bootstrap/store/pieces.hpp"
#include "bootstrap/store/tcp_client.hpp"
#include "bootstrap/store/verbs.hpp"

namespace hvd::bootstrap {
namespace {

using store::Verb;

constexpr auto answer_time = std::chrono::seconds(30);  // limit for answers that depend on nobody else

Status check_key(std::string_view key) {
  if (!key.empty() && key.size() <= store::largest_key) return {};
  return Error(ErrorCode::invalid_argument,
               "a key has 1 to " + std::to_string(store::largest_key) + " bytes; found " + std::to_string(key.size()));
}

struct Fetch {
  std::uint64_t piece = StorePieces::no_piece;
  bool forgets = false;
  bool waits = false;
  std::uint64_t size = 0;  // of the value that may be forgotten
};

void write(ByteWriter& out, std::string_view key, const Fetch& wanted) {
  out.put_string(key);
  out.put(wanted.piece);
  out.put(static_cast<std::uint8_t>(wanted.forgets));
  out.put(static_cast<std::uint8_t>(wanted.waits));
  out.put(wanted.size);
}

struct Answer {
  std::uint64_t whole = 0;  // bytes of the whole value
  std::uint32_t number = 0;
};

Result<Answer> read_answer(ConstBytes body) {
  ByteReader in(body);
  Answer answer;
  answer.whole = in.get<std::uint64_t>();
  answer.number = in.get<std::uint32_t>();
  if (in.ok() && in.at_end()) return answer;
  return Error(ErrorCode::mismatch, "the answer of the store is not of this protocol: use one Horovod everywhere");
}

std::uint64_t pieces_of(std::size_t bytes) {
  return (bytes + store::piece_bytes - 1) / store::piece_bytes;
}

}  // namespace

Result<std::unique_ptr<StoreVisitor>> StoreVisitor::enter(std::string_view addresses, std::string_view port,
                                                          std::string_view secret, Deadline deadline) {
  auto client = enter_tcp_store(addresses, port, secret, Rank{StorePieces::visitors_rank}, 0, deadline);
  if (!client) return std::move(client.error());
  return std::unique_ptr<StoreVisitor>(new StoreVisitor(std::move(*client)));
}

Status StoreVisitor::put(std::string_view key, ConstBytes value) {
  HVD_RETURN_IF_ERROR(check_key(key));
  const std::string what = "putting " + std::string(key);
  // A put without bytes begins, too: it drops what an earlier one has left that failed.
  HVD_RETURN_IF_ERROR(client_->request_all(
      Verb::put, std::max<std::uint64_t>(pieces_of(value.size()), 1),
      [&](std::uint64_t number, ByteWriter& body) {
        const std::size_t at = number * store::piece_bytes;
        const ConstBytes piece = value.subspan(at, std::min(store::piece_bytes, value.size() - at));
        body.put_string(key);
        body.put(static_cast<std::uint64_t>(at));
        body.put(static_cast<std::uint32_t>(piece.size()));
        body.put_raw(piece.data(), piece.size());
      },
      [](ConstBytes) { return Status(); }, answer_time, what));
  Buffer body;
  ByteWriter(body).put_string(key);
  auto reply = client_->request(Verb::publish, body, Deadline::after(answer_time), what);
  if (!reply) return std::move(reply.error());
  return {};
}

Result<std::uint64_t> StoreVisitor::size_of(std::string_view key, Deadline deadline) {
  HVD_RETURN_IF_ERROR(check_key(key));
  const bool waits = !deadline.passed();
  Buffer body;
  ByteWriter out(body);
  write(out, key, {.waits = waits});
  auto reply = client_->request(Verb::fetch, body, waits ? deadline : Deadline::after(answer_time),
                                "getting " + std::string(key));
  if (!reply) return std::move(reply.error());
  auto answer = read_answer(*reply);
  if (!answer) return std::move(answer.error());
  return answer->whole;
}

Status StoreVisitor::read(std::string_view key, Bytes into, bool forgets) {
  HVD_RETURN_IF_ERROR(check_key(key));
  std::size_t at = 0;
  std::optional<std::uint32_t> first;
  return client_->request_all(
      Verb::fetch, std::max<std::uint64_t>(pieces_of(into.size()), 1),
      [&](std::uint64_t number, ByteWriter& body) {
        write(body, key, {.piece = number, .forgets = forgets, .size = into.size()});
      },
      [&](ConstBytes body) -> Status {
        auto answer = read_answer(body);
        if (!answer) return std::move(answer.error());
        const Buffer piece = client_->take_pieces(answer->number);
        if (first.value_or(answer->number) != answer->number)
          return Error(ErrorCode::peer_lost, "\"" + std::string(key) + "\" was put anew while it was read");
        first = answer->number;
        if (answer->whole != into.size() || piece.size() > into.size() - at || (piece.empty() && !into.empty()))
          return Error(ErrorCode::invalid_argument, "\"" + std::string(key) + "\" has " +
                                                        std::to_string(answer->whole) + " bytes; there is room for " +
                                                        std::to_string(into.size()));
        std::copy(piece.begin(), piece.end(), into.begin() + static_cast<std::ptrdiff_t>(at));
        at += piece.size();
        return {};
      },
      answer_time, "getting " + std::string(key));
}

Status StoreVisitor::rank_ended(Rank rank, std::string_view how) {
  Buffer body;
  ByteWriter out(body);
  out.put(rank.value);
  out.put_string(how.substr(0, store::piece_bytes));
  auto reply = client_->request(Verb::ended, body, Deadline::after(answer_time), "telling the end of a rank");
  if (!reply) return std::move(reply.error());
  return {};
}

}  // namespace hvd::bootstrap
