#pragma once
// What an archive may have in it: refuses members that would be unpacked outside of the archive's folder.
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "base/result.hpp"
#include "native/archive/reader.hpp"

namespace hvd::launcher::staging {

// A link that leads out of the folder is refused, except the links that venv makes: absolute ones named bin/python*.
// A pure object.
class ArchiveRules {
 public:
  // Takes the next member. Call it before the member is written.
  Status add(const archive::Member& member);
  // Call it when all members were added. Fails if there was none, or if several links together lead out of the folder.
  Status finish() const;
  std::uint64_t content_bytes() const { return content_; }  // number of bytes of all files that were added

 private:
  Status check_path(const std::string& path, const char* what) const;
  Status check_folder(const std::string& path);
  Status check_link(const std::string& path, const std::string& target);
  Status check_hard_link(const std::string& path, const std::string& target);
  bool leaves(const std::string& path, int depth_of_links) const;

  std::uint64_t content_ = 0, members_ = 0;
  std::map<std::string, std::string> links_;  // symbolic links: path → target; absolute ones are those of venv
  std::set<std::string> folders_;
};

}  // namespace hvd::launcher::staging
