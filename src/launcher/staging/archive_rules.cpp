#include "launcher/staging/archive_rules.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

namespace hvd::launcher::staging {
namespace {

Error refused(std::string message) {
  return Error(ErrorCode::invalid_argument, std::move(message));
}

std::vector<std::string> parts_of(std::string_view path) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    std::string_view part = path.substr(0, path.find('/'));
    if (!part.empty() && part != ".") parts.emplace_back(part);
    path.remove_prefix(std::min(part.size() + 1, path.size()));
  }
  return parts;
}

std::string joined_path(const std::vector<std::string>& parts) {
  std::string path;
  for (const std::string& part : parts) path += (path.empty() ? "" : "/") + part;
  return path;
}

// True for bin/python and similar names. In a venv they are links to the Python from which the venv was made.
bool is_python_of_venv(const std::vector<std::string>& parts) {
  return parts.size() >= 2 && parts[parts.size() - 2] == "bin" && parts.back().starts_with("python");
}

}  // namespace

Status ArchiveRules::add(const archive::Member& member) {
  HVD_RETURN_IF_ERROR(check_path(member.path, "member"));
  ++members_;
  content_ += member.bytes;
  switch (member.kind) {
    case archive::Member::Kind::file: return {};
    case archive::Member::Kind::folder: return check_folder(member.path);
    case archive::Member::Kind::hard_link: return check_hard_link(member.path, member.target);
    case archive::Member::Kind::link: return check_link(member.path, member.target);
    case archive::Member::Kind::other: break;
  }
  return refused("its member " + member.path + " is neither file, folder nor link");
}

Status ArchiveRules::check_path(const std::string& path, const char* what) const {
  const std::string named = std::string("it has a ") + what + " with the path " + path + ", ";
  if (path.empty()) return refused("it has a member without a name");
  if (path.front() == '/') return refused(named + "which is absolute: pack with paths inside the environment");
  const auto parts = parts_of(path);
  if (std::ranges::find(parts, "..") != parts.end()) return refused(named + "which leaves the folder");
  for (std::size_t count = 1; count < parts.size(); ++count)
    if (auto link = links_.find(joined_path({parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(count)}));
        link != links_.end())
      return refused(named + "which goes through the link " + link->first + " to " + link->second);
  return {};
}

// Modes and times of folders are set at the end, by their paths, and some releases of libarchive follow links then.
Status ArchiveRules::check_folder(const std::string& path) {
  const std::string place = joined_path(parts_of(path));
  folders_.insert(place);
  return links_.contains(place) ? refused("its folder " + path + " takes the place of a link") : Status();
}

// A hard link to a link is a link, too, and leads elsewhere from another folder.
Status ArchiveRules::check_hard_link(const std::string& path, const std::string& target) {
  HVD_RETURN_IF_ERROR(check_path(target, "hard link"));
  auto link = links_.find(joined_path(parts_of(target)));
  return link == links_.end() ? Status() : check_link(path, std::string(link->second));
}

Status ArchiveRules::check_link(const std::string& path, const std::string& target) {
  const auto parts = parts_of(path);
  if (target.starts_with('/') && !is_python_of_venv(parts))
    return refused("its link " + path + " leads out of the folder, to " + target +
                   ": only bin/python may; pack with conda-pack or venv-pack, or with tar --dereference");
  const std::string place = joined_path(parts);
  if (folders_.contains(place)) return refused("its link " + path + " takes the place of a folder");
  links_[place] = target;
  return {};
}

// Follows links, because a link may lead to a folder from which the ".." of another link leads out of the archive.
bool ArchiveRules::leaves(const std::string& path, int depth_of_links) const {
  constexpr int most_links = 40;
  if (depth_of_links > most_links) return false;  // the links form a circle, which leads to no file
  std::vector<std::string> at;
  const auto parts = parts_of(path);
  for (std::size_t each = 0; each < parts.size(); ++each) {
    if (parts[each] == "..") {
      if (at.empty()) return true;
      at.pop_back();
      continue;
    }
    at.push_back(parts[each]);
    auto link = links_.find(joined_path(at));
    if (link == links_.end()) continue;
    if (link->second.starts_with('/')) return each + 1 < parts.size();  // beyond the Python of a venv, nothing is ours
    at.pop_back();
    std::string further = joined_path(at) + "/" + link->second;
    for (std::size_t rest = each + 1; rest < parts.size(); ++rest) further += "/" + parts[rest];
    return leaves(further, depth_of_links + 1);
  }
  return false;
}

Status ArchiveRules::finish() const {
  if (members_ == 0) return refused("there is nothing in it");
  for (const auto& [path, target] : links_)
    if (leaves(path, 0)) return refused("its link " + path + " leads out of the folder, to " + target);
  return {};
}

}  // namespace hvd::launcher::staging
