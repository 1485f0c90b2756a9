#include "native/posix/files/program_file.hpp"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "native/posix/files/file_descriptor.hpp"

namespace hvd::posix {
namespace {

constexpr int most_scripts = 4;  // scripts may be interpreters of scripts; the kernel has this limit
constexpr std::size_t longest_name = 4096;
constexpr std::size_t most_entries = 4096;

class File {
 public:
  explicit File(const std::string& path) : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}

  // Returns up to `size` bytes; fewer at the end of the file.
  std::string text(std::uint64_t at, std::size_t size) const {
    std::string text(size, '\0');
    ssize_t count = file_ ? ::pread(file_.get(), text.data(), size, static_cast<off_t>(at)) : -1;
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    return text;
  }
  std::string word(std::uint64_t at) const {
    std::string text = this->text(at, longest_name);
    return text.substr(0, text.find('\0'));
  }
  template <typename Record>
  std::optional<Record> record(std::uint64_t at) const {
    Record record;
    std::string bytes = text(at, sizeof record);
    if (bytes.size() != sizeof record) return std::nullopt;
    std::memcpy(&record, bytes.data(), sizeof record);
    return record;
  }

 private:
  FileDescriptor file_;
};

// Returns the first word after "#!".
std::string interpreter_in(const std::string& beginning) {
  std::string line =
      beginning.substr(2, beginning.find('\n') == std::string::npos ? std::string::npos : beginning.find('\n') - 2);
  std::size_t first = line.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return line.substr(first, line.find_first_of(" \t", first) - first);
}

std::string name_in(const std::string& path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

std::vector<ElfW(Phdr)> segments_of(const File& file, const ElfW(Ehdr) & header) {
  std::vector<ElfW(Phdr)> segments;
  for (std::size_t number = 0; number < header.e_phnum; ++number)
    if (auto segment = file.record<ElfW(Phdr)>(header.e_phoff + number * sizeof(ElfW(Phdr))))
      segments.push_back(*segment);
  return segments;
}

// What the loader reads. Positions are addresses in memory, except those of the libraries' names.
struct ForLoader {
  std::vector<std::uint64_t> libraries;  // positions of their names in the table of strings
  std::uint64_t strings = 0, versions = 0, number_of_versions = 0;
};

ForLoader read_for_loader(const File& file, const std::vector<ElfW(Phdr)>& segments) {
  ForLoader found;
  for (const auto& segment : segments) {
    if (segment.p_type != PT_DYNAMIC) continue;
    std::size_t count = std::min<std::size_t>(segment.p_filesz / sizeof(ElfW(Dyn)), most_entries);
    for (std::size_t number = 0; number < count; ++number) {
      auto entry = file.record<ElfW(Dyn)>(segment.p_offset + number * sizeof(ElfW(Dyn)));
      if (!entry || entry->d_tag == DT_NULL) break;
      if (entry->d_tag == DT_NEEDED) found.libraries.push_back(entry->d_un.d_val);
      if (entry->d_tag == DT_STRTAB) found.strings = entry->d_un.d_ptr;
      if (entry->d_tag == DT_VERNEED) found.versions = entry->d_un.d_ptr;
      if (entry->d_tag == DT_VERNEEDNUM) found.number_of_versions = entry->d_un.d_val;
    }
  }
  return found;
}

// Where in the file this place in memory comes from.
std::optional<std::uint64_t> in_file(const std::vector<ElfW(Phdr)>& segments, std::uint64_t place) {
  for (const auto& segment : segments)
    if (segment.p_type == PT_LOAD && place >= segment.p_vaddr && place - segment.p_vaddr < segment.p_filesz)
      return place - segment.p_vaddr + segment.p_offset;
  return std::nullopt;
}

bool is_newer(const std::string& version, const std::string& than) {
  return ::strverscmp(version.c_str(), than.c_str()) > 0;
}

// The newest of the versions GLIBC_2.34 of libc.so.6 and its like. There are also names as GLIBC_ABI_DT_RELR.
std::string newest_glibc(const File& file, std::uint64_t versions, std::size_t count, std::uint64_t strings) {
  constexpr std::string_view prefix = "GLIBC_";
  std::string newest;
  for (count = std::min(count, most_entries); count > 0; --count) {
    auto of_library = file.record<ElfW(Verneed)>(versions);
    if (!of_library) break;
    std::uint64_t at = versions + of_library->vn_aux;
    for (int left = of_library->vn_cnt; left > 0; --left) {
      auto version = file.record<ElfW(Vernaux)>(at);
      if (!version) break;
      std::string name = file.word(strings + version->vna_name);
      name.erase(0, name.starts_with(prefix) ? prefix.size() : name.size());
      if (!name.empty() && name[0] >= '0' && name[0] <= '9' && is_newer(name, newest)) newest = name;
      at += version->vna_next;
    }
    versions += of_library->vn_next;
  }
  return newest;
}

}  // namespace

std::optional<ProgramFile> read_program_file(const std::string& path) {
  ProgramFile program{path, {}, {}, {}};
  File file(path);
  std::string beginning = file.text(0, 256);
  for (int scripts = 0; beginning.starts_with("#!"); ++scripts) {
    if (scripts == most_scripts) return std::nullopt;
    program.path = interpreter_in(beginning);
    file = File(program.path);
    beginning = file.text(0, 256);
  }
  if (beginning.empty()) return std::nullopt;
  if (!beginning.starts_with(ELFMAG)) return path == "/bin/sh" ? std::nullopt : read_program_file("/bin/sh");
  auto header = file.record<ElfW(Ehdr)>(0);
  auto ours = File("/proc/self/exe").record<ElfW(Ehdr)>(0);
  bool runs_as_we_do = header && ours && std::memcmp(header->e_ident, ours->e_ident, EI_VERSION) == 0 &&
                       header->e_machine == ours->e_machine;
  if (!runs_as_we_do) return std::nullopt;
  auto segments = segments_of(file, *header);
  for (const auto& segment : segments)
    if (segment.p_type == PT_INTERP) program.loader = name_in(file.word(segment.p_offset));
  const ForLoader found = read_for_loader(file, segments);
  auto strings = in_file(segments, found.strings), versions = in_file(segments, found.versions);
  if (!strings) return program;
  for (std::uint64_t name : found.libraries) program.libraries.push_back(file.word(*strings + name));
  if (versions) program.glibc = newest_glibc(file, *versions, found.number_of_versions, *strings);
  return program;
}

}  // namespace hvd::posix
