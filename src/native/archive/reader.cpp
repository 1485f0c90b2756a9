#include "native/archive/reader.hpp"

#include <cerrno>

namespace hvd::archive {
namespace {

constexpr std::size_t bytes_at_once = 256 << 10;

std::string text_of(const char* text) {
  return text == nullptr ? "" : text;
}

Member::Kind kind_of(unsigned type) {
  switch (type) {
    case file_type: return Member::Kind::file;
    case folder_type: return Member::Kind::folder;
    case link_type: return Member::Kind::link;
    default: return Member::Kind::other;
  }
}

}  // namespace

void Reader::EndOfReading::operator()(Handle handle) const {
  if (auto loaded = calls()) (*loaded)->archive_read_free(handle);
}

void Reader::EndOfWriting::operator()(Handle handle) const {
  if (auto loaded = calls()) (*loaded)->archive_write_free(handle);
}

Error Reader::not_read() const {
  const std::string said = text_of(calls_->archive_error_string(archive_.get()));
  // The error of zstd for a window of more than 2^27 bytes.
  if (said.find("requires too much memory") != std::string::npos)
    return Error(
        ErrorCode::invalid_argument,
        "its window is too long for libarchive: pack with a window of at most 128 MiB, zstd --long=27 (" + said + ")");
  if (!has_filter_)
    return Error(ErrorCode::unsupported, "libarchive was built without " + packing_ +
                                             " on this node: install one that has it, or pack by gzip (" + said + ")");
  return Error(ErrorCode::invalid_argument, "it is damaged, or no archive of tar: " + said);
}

Error Reader::not_written() const {
  return Error(ErrorCode::system, text_of(calls_->archive_error_string(disk_.get())));
}

Result<Reader> Reader::open(const Calls& call, int descriptor, std::string packing) {
  Reader reader(call, std::move(packing));
  reader.archive_.reset(call.archive_read_new());
  reader.disk_.reset(call.archive_write_disk_new());
  if (!reader.archive_ || !reader.disk_) return Error(ErrorCode::out_of_memory, "no memory to unpack with");
  Handle archive = reader.archive_.get();
  call.archive_read_support_format_tar(archive);
  const std::pair<const char*, int (*)(Handle)> filters[] = {{"bzip2", call.archive_read_support_filter_bzip2},
                                                             {"xz", call.archive_read_support_filter_xz},
                                                             {"zstd", call.archive_read_support_filter_zstd}};
  // A warning tells that libarchive has no such filter and will call a program, which the node may lack.
  for (const auto& [name, support] : filters)
    if (support(archive) != fine && reader.packing_ == name) reader.has_filter_ = false;
  // Otherwise it would not read what follows the first end mark, and not see that a compressed stream is damaged there.
  call.archive_read_set_format_option(archive, "tar", "read_concatenated_archives", "1");
  call.archive_write_disk_set_options(reader.disk_.get(),
                                      keep_times | not_through_links | no_dot_dot | no_absolute_paths);
  if (call.archive_read_open_fd(archive, descriptor, bytes_at_once) != fine) return reader.not_read();
  return reader;
}

// A warning is about a name that is not in UTF-8, for example. What libarchive then takes is what we are given, too.
Result<std::optional<Member>> Reader::next() {
  const int code = calls_->archive_read_next_header(archive_.get(), &entry_);
  if (code == end_of_archive) return std::optional<Member>();
  if (code != fine && code != only_a_warning) return not_read();
  Member member;
  member.path = text_of(calls_->archive_entry_pathname(entry_));
  member.kind = kind_of(calls_->archive_entry_filetype(entry_));
  if (member.kind == Member::Kind::file) member.bytes = static_cast<std::uint64_t>(calls_->archive_entry_size(entry_));
  if (member.kind == Member::Kind::link) member.target = text_of(calls_->archive_entry_symlink(entry_));
  if (const char* target = calls_->archive_entry_hardlink(entry_); target != nullptr) {
    member.kind = Member::Kind::hard_link;
    member.target = target;
  }
  return std::optional(std::move(member));
}

Status Reader::extract() {
  const int code = calls_->archive_write_header(disk_.get(), entry_);
  if (code != fine && code != only_a_warning) return not_written();
  for (;;) {
    const void* bytes = nullptr;
    std::size_t count = 0;
    std::int64_t offset = 0;
    const int read = calls_->archive_read_data_block(archive_.get(), &bytes, &count, &offset);
    if (read == end_of_archive) break;
    if (read != fine) return not_read();
    if (calls_->archive_write_data_block(disk_.get(), bytes, count, offset) < 0) return not_written();
  }
  const int ended = calls_->archive_write_finish_entry(disk_.get());
  return ended == fine || ended == only_a_warning ? Status() : not_written();
}

bool Reader::lacks_room() const {
  const int error = calls_->archive_errno(disk_.get());
  return error == ENOSPC || error == EDQUOT;
}

bool Reader::has_end_mark() const {
  return calls_->archive_filter_bytes(archive_.get(), 0) > calls_->archive_read_header_position(archive_.get());
}

Status Reader::finish() {
  const int code = calls_->archive_write_close(disk_.get());
  return code == fine || code == only_a_warning ? Status() : not_written();
}

}  // namespace hvd::archive
