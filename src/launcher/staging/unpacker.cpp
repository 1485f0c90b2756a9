#include "launcher/staging/unpacker.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/text/size_text.hpp"

namespace hvd::launcher::staging {
namespace {

struct Packing {
  const char* name;
  std::string_view begin;
  std::vector<std::string> command;
};

const std::vector<Packing>& packings() {
  static const std::vector<Packing> all = {
      {"gzip", "\x1f\x8b", {"gzip", "-dc"}},
      {"zstd", "\x28\xb5\x2f\xfd", {"zstd", "-dcq", "--long=31"}},
      {"xz",
       std::string_view("\xfd"
                        "7zXZ\0",
                        6),
       {"xz", "-dc"}},
      {"bzip2", "BZh", {"bzip2", "-dc"}},
  };
  return all;
}

bool is_about_room(const std::string& complaint) {
  return complaint.find("No space left") != std::string::npos || complaint.find("quota exceeded") != std::string::npos;
}

}  // namespace

Result<std::string> packing_of(std::string_view begin) {
  for (const Packing& packing : packings())
    if (begin.starts_with(packing.begin)) return std::string(packing.name);
  if (begin.size() >= packing_bytes && begin.substr(257, 5) == "ustar") return std::string("none");
  return Error(
      ErrorCode::invalid_argument,
      "expected an archive of tar, perhaps compressed by gzip, zstd, xz or bzip2, found a file of another kind");
}

Result<std::unique_ptr<Unpacker>> Unpacker::start(Options options) {
  std::unique_ptr<Unpacker> unpacker(new Unpacker(std::move(options)));
  for (const Packing& packing : packings()) {
    if (packing.name != unpacker->options_.packing) continue;
    auto filter = FilterProcess::start(packing.command, /*has_output=*/true);
    if (!filter) return filter.error();
    filter->make_input_non_blocking();
    unpacker->filter_.emplace(std::move(*filter));
  }
  auto tar = FilterProcess::start({"tar", "-x", "--no-same-owner", "-f", "-", "-C", unpacker->options_.folder}, false);
  if (!tar) return tar.error();
  unpacker->tar_.emplace(std::move(*tar));
  return unpacker;
}

Status Unpacker::add(ConstBytes bytes) {
  if (!filter_) return take(bytes);
  while (!bytes.empty()) {
    pollfd ends[] = {{filter_->input(), POLLOUT, 0}, {filter_->output(), POLLIN, 0}};
    ::poll(ends, 2, -1);
    if ((ends[1].revents & POLLIN) != 0) HVD_RETURN_IF_ERROR(drain(false));
    if (ends[0].revents == 0) continue;
    ssize_t count = ::write(filter_->input(), bytes.data(), bytes.size());
    if (count > 0) bytes = bytes.subspan(static_cast<std::size_t>(count));
    else if (errno != EAGAIN && errno != EINTR)
      return Error(ErrorCode::invalid_argument, "it is damaged: " + filter_->end());
  }
  return {};
}

Status Unpacker::drain(bool until_its_end) {
  for (;;) {
    ssize_t count = ::read(filter_->output(), chunk_.data(), chunk_.size());
    if (count > 0) {
      HVD_RETURN_IF_ERROR(take(ConstBytes(chunk_).first(static_cast<std::size_t>(count))));
      continue;
    }
    if (count == 0) return {};
    if (errno == EINTR) continue;
    if (!until_its_end) return {};
    pollfd output{filter_->output(), POLLIN, 0};
    ::poll(&output, 1, -1);
  }
}

Status Unpacker::take(ConstBytes bytes) {
  const bool had_ended = check_.has_ended();
  HVD_RETURN_IF_ERROR(check_.add(bytes));
  if (!has_no_room_ && check_.content_bytes() > options_.room_bytes) {
    has_no_room_ = true;
    tar_.reset();
  }
  // After the archive's end mark come zeros. tar may end before it has read them, so failed writes are ignored then.
  if (!tar_ || tar_->write(bytes) || had_ended || check_.has_ended()) return {};
  return failure_of_tar();
}

Status Unpacker::failure_of_tar() {
  std::string complaint = tar_->end();
  tar_.reset();
  if (complaint.empty()) return {};
  if (!is_about_room(complaint))
    return Error(ErrorCode::system, "it cannot be unpacked to " + options_.folder + ": " + complaint);
  has_no_room_ = true;
  return {};
}

Status Unpacker::finish() {
  if (filter_) {
    filter_->close_input();
    HVD_RETURN_IF_ERROR(drain(true));
    if (std::string complaint = filter_->end(); !complaint.empty())
      return Error(ErrorCode::invalid_argument, "it is damaged: " + complaint);
  }
  HVD_RETURN_IF_ERROR(check_.finish());
  if (tar_) {
    tar_->close_input();
    HVD_RETURN_IF_ERROR(failure_of_tar());
  }
  if (!has_no_room_) return {};
  return Error(ErrorCode::system, "there is no room for it in " + options_.folder + ": its files need " +
                                      size_text(check_.content_bytes()) + ", free are " +
                                      size_text(options_.room_bytes) + "; --stage-to names another folder");
}

}  // namespace hvd::launcher::staging
