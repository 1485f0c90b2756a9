#pragma once
// Reads a tar archive in pieces, and refuses members that would be unpacked outside of the archive's folder.
#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace hvd::launcher::staging {

// Knows the formats ustar, pax and GNU. A link that leads out of the folder is refused, except the links that venv
// makes: absolute ones named bin/python*. A pure object.
class TarCheck {
 public:
  // Takes the next bytes. Fails at a member that is to be refused, before the end of the member's header was taken.
  Status add(ConstBytes bytes);
  // Call it when all bytes were added. Fails if the archive is cut off, has no member, or if several of its links
  // together lead out of the folder.
  Status finish() const;
  bool has_ended() const { return has_ended_; }             // the archive's end mark has come
  std::uint64_t content_bytes() const { return content_; }  // number of bytes of all files that have come
  std::uint64_t members() const { return members_; }

 private:
  enum class Text { none, path, link, attributes, of_all };  // what the text in this member means for the next ones
  Status take_header();
  Status take_text();
  Status take_member(char type, std::uint64_t size);
  Status check_path(const std::string& path, const char* what) const;
  Status check_link(const std::string& path, const std::string& target);
  Status check_hard_link(const std::string& path, const std::string& target);
  bool leaves(const std::string& path, int depth_of_links) const;

  std::array<char, 512> header_{};
  std::size_t filled_ = 0;
  std::uint64_t left_ = 0, padding_ = 0;  // what is left of the member's content and padding
  Text text_kind_ = Text::none;
  std::string text_;
  std::string next_path_, next_sparse_path_, next_link_;  // given by an earlier member
  std::int64_t next_size_ = -1;
  bool is_extended_ = false;  // another header of a sparse file follows
  bool has_ended_ = false;
  std::uint64_t content_ = 0, members_ = 0;
  std::map<std::string, std::string> links_;  // symbolic links: path → target; absolute ones are those of venv
};

}  // namespace hvd::launcher::staging
