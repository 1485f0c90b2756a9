#include "launcher/staging/tar_check.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "base/text/number.hpp"
#include "base/text/trimmed.hpp"

namespace hvd::launcher::staging {
namespace {

constexpr std::size_t block = 512;
constexpr std::size_t longest_text = 1 << 20;

Error refused(std::string message) {
  return Error(ErrorCode::invalid_argument, std::move(message));
}

Error damaged(const std::string& how) {
  return Error(ErrorCode::invalid_argument, "it is damaged, or no archive of tar: " + how);
}

std::string text_at(const std::array<char, block>& header, std::size_t at, std::size_t size) {
  std::string_view field(header.data() + at, size);
  return std::string(field.substr(0, field.find('\0')));
}

// Reads a number of a header: octal digits, or a binary number if the first bit is set. A number with a blank in it is
// none: tar would end it there, and see other members than this check.
std::optional<std::uint64_t> number_at(const std::array<char, block>& header, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  const auto first = static_cast<unsigned char>(header[at]);
  if ((first & 0x80) != 0) {
    bool has_more = false;
    for (std::size_t each = at + 1; each < at + size; ++each) {
      has_more = has_more || (each + 8 < at + size && header[each] != 0);
      value = value << 8 | static_cast<unsigned char>(header[each]);
    }
    return first == 0x80 && !has_more && value < std::uint64_t{1} << 62 ? std::optional(value) : std::nullopt;
  }
  const std::string text = text_at(header, at, size);
  for (char each : trimmed(text)) {
    if (each < '0' || each > '7') return std::nullopt;
    value = value << 3 | static_cast<std::uint64_t>(each - '0');
  }
  return value;
}

bool has_right_sum(const std::array<char, block>& header) {
  std::uint64_t sum = std::uint64_t{8} * ' ';
  for (std::size_t at = 0; at < block; ++at)
    if (at < 148 || at >= 156) sum += static_cast<unsigned char>(header[at]);
  return number_at(header, 148, 8) == sum;
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

Status TarCheck::add(ConstBytes bytes) {
  while (!bytes.empty() && !has_ended_) {
    if (left_ > 0 || padding_ > 0) {
      std::uint64_t& of = left_ > 0 ? left_ : padding_;
      auto count = static_cast<std::size_t>(std::min<std::uint64_t>(of, bytes.size()));
      if (left_ > 0 && text_kind_ != Text::none) text_.append(reinterpret_cast<const char*>(bytes.data()), count);
      of -= count;
      bytes = bytes.subspan(count);
      if (left_ == 0 && text_kind_ != Text::none) HVD_RETURN_IF_ERROR(take_text());
      continue;
    }
    std::size_t count = std::min(block - filled_, bytes.size());
    std::copy_n(reinterpret_cast<const char*>(bytes.data()), count, header_.data() + filled_);
    filled_ += count;
    bytes = bytes.subspan(count);
    if (filled_ < block) continue;
    filled_ = 0;
    HVD_RETURN_IF_ERROR(take_header());
  }
  return {};
}

Status TarCheck::take_header() {
  if (is_extended_) {
    is_extended_ = header_[504] != 0;
    return {};
  }
  if (std::ranges::all_of(header_, [](char each) { return each == 0; })) {
    has_ended_ = true;
    return {};
  }
  if (!has_right_sum(header_)) return damaged("a header has a wrong checksum");
  auto size = number_at(header_, 124, 12);
  if (!size) return damaged("a header has a size that is no number");
  const char type = header_[156];
  text_kind_ = type == 'L'   ? Text::path
               : type == 'K' ? Text::link
               : type == 'x' ? Text::attributes
               : type == 'g' ? Text::of_all
                             : Text::none;
  if (text_kind_ != Text::none && *size > longest_text) return damaged("a name of more than a mebibyte");
  text_.clear();
  const bool has_content = type == 0 || type == '0' || type == '7' || type == 'S' || text_kind_ != Text::none;
  std::uint64_t bytes = has_content ? *size : 0;
  if (text_kind_ == Text::none) {
    if (has_content && next_size_ >= 0) bytes = static_cast<std::uint64_t>(next_size_);
    is_extended_ = type == 'S' && header_[482] != 0;
    HVD_RETURN_IF_ERROR(take_member(type, bytes));
  }
  left_ = bytes;
  padding_ = (block - bytes % block) % block;
  return {};
}

Status TarCheck::take_text() {
  const Text kind = std::exchange(text_kind_, Text::none);
  if (kind == Text::path) next_path_ = text_.substr(0, text_.find('\0'));
  if (kind == Text::link) next_link_ = text_.substr(0, text_.find('\0'));
  if (kind != Text::attributes && kind != Text::of_all) return {};
  // Reads an attribute such as "30 mtime=1700000000.123456789\n".
  for (std::string_view rest = text_; !rest.empty();) {
    auto size = leading_number<std::size_t>(rest);
    std::size_t blank = rest.find(' ');
    if (!size || blank == std::string_view::npos || *size <= blank + 1 || *size > rest.size())
      return damaged("an extended header that cannot be read");
    std::string_view entry = rest.substr(blank + 1, *size - blank - 2);
    rest.remove_prefix(*size);
    std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    std::string_view key = entry.substr(0, equals), value = entry.substr(equals + 1);
    if (kind == Text::of_all) {
      if (key == "path" || key == "linkpath" || key == "size" || key.starts_with("GNU.sparse."))
        return refused("it has one " + std::string(key) + " for all of its members");
      continue;
    }
    if (key == "path") next_path_ = value;
    if (key == "GNU.sparse.name") next_sparse_path_ = value;  // "path" then is a name for who knows no sparse files
    if (key == "linkpath") next_link_ = value;
    if (key == "size") next_size_ = number_in<std::int64_t>(value).value_or(-1);
  }
  return {};
}

Status TarCheck::take_member(char type, std::uint64_t size) {
  std::string path = std::exchange(next_path_, {}), target = std::exchange(next_link_, {});
  if (std::string sparse = std::exchange(next_sparse_path_, {}); !sparse.empty()) path = std::move(sparse);
  next_size_ = -1;
  if (path.empty()) {
    path = text_at(header_, 0, 100);
    const std::string prefix =
        text_at(header_, 257, 5) == "ustar" && header_[262] == 0 ? text_at(header_, 345, 155) : "";
    if (!prefix.empty()) path = prefix + "/" + path;
  }
  if (target.empty()) target = text_at(header_, 157, 100);
  HVD_RETURN_IF_ERROR(check_path(path, "member"));
  ++members_;
  switch (type) {
    case 0:
    case '0':
    case '7':
    case 'S': content_ += size; return {};
    case '5': return {};
    case '1': return check_hard_link(path, target);
    case '2': return check_link(path, target);
    default:
      return refused("its member " + path + " is neither file, folder nor link (type '" + std::string(1, type) + "')");
  }
}

Status TarCheck::check_path(const std::string& path, const char* what) const {
  const std::string named = std::string("it has a ") + what + " with the path " + path + ", ";
  if (path.empty()) return damaged("a member without a name");
  if (path.front() == '/') return refused(named + "which is absolute: pack with paths inside of the environment");
  const auto parts = parts_of(path);
  if (std::ranges::find(parts, "..") != parts.end()) return refused(named + "which leaves the folder");
  for (std::size_t count = 1; count < parts.size(); ++count)
    if (auto link = links_.find(joined_path({parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(count)}));
        link != links_.end())
      return refused(named + "which goes through the link " + link->first + " to " + link->second);
  return {};
}

// A hard link to a link is a link, too, and leads elsewhere from another folder.
Status TarCheck::check_hard_link(const std::string& path, const std::string& target) {
  HVD_RETURN_IF_ERROR(check_path(target, "hard link"));
  auto link = links_.find(joined_path(parts_of(target)));
  return link == links_.end() ? Status() : check_link(path, std::string(link->second));
}

Status TarCheck::check_link(const std::string& path, const std::string& target) {
  const auto parts = parts_of(path);
  if (target.starts_with('/') && !is_python_of_venv(parts))
    return refused("its link " + path + " leads out of the folder, to " + target +
                   ": only bin/python may; pack with conda-pack or venv-pack, or with tar --dereference");
  links_[joined_path(parts)] = target;
  return {};
}

// Follows links, because a link may lead to a folder from which the ".." of another link leads out of the archive.
bool TarCheck::leaves(const std::string& path, int depth_of_links) const {
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

Status TarCheck::finish() const {
  if (filled_ > 0 || left_ > 0 || padding_ > 0) return damaged("it ends in the middle of a member");
  if (members_ == 0) return damaged("there is nothing in it");
  if (!has_ended_) return damaged("it has no end: it is cut");
  for (const auto& [path, target] : links_)
    if (leaves(path, 0)) return refused("its link " + path + " leads out of the folder, to " + target);
  return {};
}

}  // namespace hvd::launcher::staging
