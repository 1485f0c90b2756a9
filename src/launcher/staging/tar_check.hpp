#pragma once
// Reads a tar archive as it passes, and refuses what would be unpacked outside of its folder.
#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace hvd::launcher::staging {

// Knows ustar, pax and the GNU format. Of links out of the folder it lets only those pass that venv makes: an absolute
// bin/python*. A pure object.
class TarCheck {
 public:
  // Takes the next bytes. Fails at a member that is to be refused, before the last of its header has been taken.
  Status add(ConstBytes bytes);
  // All bytes were added. Fails if the archive is cut, has no member, or if its links lead out together.
  Status finish() const;
  bool has_ended() const { return has_ended_; }             // the mark of the end was there
  std::uint64_t content_bytes() const { return content_; }  // of the files so far
  std::uint64_t members() const { return members_; }

 private:
  enum class Text { none, path, link, attributes, of_all };  // what the bytes of this member say about the next ones
  Status take_header();
  Status take_text();
  Status take_member(char type, std::uint64_t size);
  Status check_path(const std::string& path, const char* what) const;
  Status check_link(const std::string& path, const std::string& target);
  bool leaves(const std::string& path, int depth_of_links) const;

  std::array<char, 512> header_{};
  std::size_t filled_ = 0;
  std::uint64_t left_ = 0, padding_ = 0;  // of the member's content
  Text text_kind_ = Text::none;
  std::string text_;
  std::string next_path_, next_sparse_path_, next_link_;  // from a member before
  std::int64_t next_size_ = -1;
  bool is_extended_ = false;  // a further header of a sparse file follows
  bool has_ended_ = false;
  std::uint64_t content_ = 0, members_ = 0;
  std::map<std::string, std::string> links_;  // symbolic links: path → target; absolute ones are those of venv
};

}  // namespace hvd::launcher::staging
