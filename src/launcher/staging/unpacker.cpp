#include "launcher/staging/unpacker.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/text/size_text.hpp"
#include "launcher/staging/archive_rules.hpp"
#include "native/posix/processes/thread.hpp"

namespace hvd::launcher::staging {
namespace {

constexpr int pipe_bytes = 1 << 20;

struct Packing {
  const char* name;
  std::string_view begin;
};

constexpr Packing packings[] = {
    {"gzip", "\x1f\x8b"},
    {"zstd", "\x28\xb5\x2f\xfd"},
    {"xz",
     "\xfd"
     "7zXZ"},
    {"bzip2", "BZh"},
};

}  // namespace

Result<std::string> packing_of(std::string_view begin) {
  for (const Packing& packing : packings)
    if (begin.starts_with(packing.begin)) return std::string(packing.name);
  if (begin.size() >= packing_bytes && begin.substr(257, 5) == "ustar") return std::string("none");
  return Error(
      ErrorCode::invalid_argument,
      "expected an archive of tar, perhaps compressed by gzip, zstd, xz or bzip2, found a file of another kind");
}

Result<std::unique_ptr<Unpacker>> Unpacker::start(Options options) {
  std::unique_ptr<Unpacker> unpacker(new Unpacker(std::move(options)));
  if (unpacker->options_.packing == "gzip") {
    auto gunzip = archive::Gunzip::start();
    if (!gunzip) return gunzip.error();
    unpacker->gunzip_.emplace(std::move(*gunzip));
  }
  auto calls = archive::calls();
  if (!calls) return calls.error();
  if (::chdir(unpacker->options_.folder.c_str()) != 0)
    return system_error("cannot go to " + unpacker->options_.folder, errno);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("no pipe to unpack with (see ulimit -n)", errno);
  posix::FileDescriptor from(ends[0]);
  unpacker->to_thread_ = posix::FileDescriptor(ends[1]);
  ::fcntl(ends[1], F_SETPIPE_SZ, pipe_bytes);  // if the system does not allow this size, the pipe keeps its size
  // The thread closes its end when it has ended, and add() fails then.
  auto thread = posix::start_thread("hvd unpack", [it = unpacker.get(), end = from.get(), &calls = **calls] {
    const posix::FileDescriptor bytes(end);
    auto reader = archive::Reader::open(calls, bytes.get(), it->options_.packing);
    it->outcome_ = reader ? it->unpack(*reader) : Status(reader.error());
  });
  if (!thread) return thread.error();
  from.release();
  unpacker->thread_ = std::move(*thread);
  return unpacker;
}

Status Unpacker::add(ConstBytes bytes) {
  if (!gunzip_) return write(bytes);
  return gunzip_->add(bytes, [this](ConstBytes piece) { return write(piece); });
}

Status Unpacker::write(ConstBytes bytes) {
  while (!bytes.empty()) {
    ssize_t count = ::write(to_thread_.get(), bytes.data(), bytes.size());
    if (count > 0) bytes = bytes.subspan(static_cast<std::size_t>(count));
    else if (errno != EINTR) return end();
  }
  return {};
}

Status Unpacker::end() {
  to_thread_.reset();
  if (thread_.joinable()) thread_.join();
  return outcome_;
}

Status Unpacker::unpack(archive::Reader& reader) const {
  ArchiveRules rules;
  bool has_room = true;  // without room, later members are only counted
  for (;;) {
    auto member = reader.next();
    if (!member) return member.error();
    if (!*member) break;
    HVD_RETURN_IF_ERROR(rules.add(**member));
    has_room = has_room && rules.content_bytes() <= options_.room_bytes;
    if (!has_room) continue;
    auto done = reader.extract();
    has_room = done || !reader.lacks_room();
    if (!done && has_room) {
      if (done.error().code == ErrorCode::system)
        done.error().message = "it cannot be unpacked to " + options_.folder + ": " + done.error().message;
      return done;
    }
  }
  HVD_RETURN_IF_ERROR(rules.finish());
  if (!reader.has_end_mark()) return Error(ErrorCode::invalid_argument, "it is damaged: it has no end: it is cut");
  if (has_room) return reader.finish();
  return Error(ErrorCode::system, "there is no room for it in " + options_.folder + ": its files need " +
                                      size_text(rules.content_bytes()) + ", free are " +
                                      size_text(options_.room_bytes) + "; --stage-to names another folder");
}

Status Unpacker::finish() {
  if (gunzip_) HVD_RETURN_IF_ERROR(gunzip_->finish());
  return end();
}

}  // namespace hvd::launcher::staging
