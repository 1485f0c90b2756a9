#include "bootstrap/store/visitor.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

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
  for (std::size_t at = 0; at < value.size(); at += store::piece_bytes) {
    Buffer body;
    ByteWriter out(body);
    out.put_string(key);
    const auto size = std::min(store::piece_bytes, value.size() - at);
    out.put(static_cast<std::uint32_t>(size));
    out.put_raw(value.data() + at, size);
    auto reply = client_->request(Verb::put, body, Deadline::after(answer_time), what);
    if (!reply) return std::move(reply.error());
  }
  Buffer body;
  ByteWriter(body).put_string(key);
  auto reply = client_->request(Verb::publish, body, Deadline::after(answer_time), what);
  if (!reply) return std::move(reply.error());
  return {};
}

Result<StoreVisitor::Piece> StoreVisitor::fetch(std::string_view key, const Fetch& wanted, Deadline deadline) {
  HVD_RETURN_IF_ERROR(check_key(key));
  Buffer body;
  ByteWriter out(body);
  out.put_string(key);
  out.put(wanted.piece);
  out.put(static_cast<std::uint8_t>(wanted.forgets));
  out.put(static_cast<std::uint8_t>(wanted.waits));
  out.put(wanted.size);
  auto reply = client_->request(Verb::fetch, body, deadline, "getting " + std::string(key));
  if (!reply) return std::move(reply.error());
  ByteReader in(*reply);
  Piece piece;
  piece.whole = in.get<std::uint64_t>();
  ConstBytes bytes = as_bytes(in.get_string());
  if (!in.ok() || !in.at_end())
    return Error(ErrorCode::mismatch, "the answer of the store is not of this protocol: use one Horovod everywhere");
  piece.bytes.assign(bytes.begin(), bytes.end());
  return piece;
}

Result<std::uint64_t> StoreVisitor::size_of(std::string_view key, Deadline deadline) {
  const bool waits = !deadline.passed();
  auto piece = fetch(key, {.waits = waits}, waits ? deadline : Deadline::after(answer_time));
  if (!piece) return std::move(piece.error());
  return piece->whole;
}

Status StoreVisitor::read(std::string_view key, Bytes into, bool forgets) {
  std::size_t at = 0;
  for (std::uint64_t number = 0; number == 0 || at < into.size(); ++number) {
    auto piece = fetch(key, {.piece = number, .forgets = forgets, .size = into.size()}, Deadline::after(answer_time));
    if (!piece) return std::move(piece.error());
    if (piece->whole != into.size() || piece->bytes.size() > into.size() - at ||
        (piece->bytes.empty() && !into.empty()))
      return Error(ErrorCode::invalid_argument, "\"" + std::string(key) + "\" has " + std::to_string(piece->whole) +
                                                    " bytes; there is room for " + std::to_string(into.size()));
    std::copy(piece->bytes.begin(), piece->bytes.end(), into.begin() + static_cast<std::ptrdiff_t>(at));
    at += piece->bytes.size();
  }
  return {};
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
