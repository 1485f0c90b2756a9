#include "launcher/checkpoints/command.hpp"

#include <sys/stat.h>

#include <cstdio>
#include <ctime>

#include "base/text/size_text.hpp"
#include "checkpoint/generations.hpp"
#include "launcher/checkpoints/difference.hpp"
#include "launcher/checkpoints/safetensors.hpp"
#include "native/posix/files/folder.hpp"

namespace hvd::launcher {
namespace {

using checkpoint::Reader;

constexpr int different = 1;
constexpr int wrong = 2;

int report(const std::string& text, int code = wrong) {
  std::fprintf(stderr, "horovodrun --checkpoint: %s\n", text.c_str());
  return code;
}

int report(const Error& error) {
  return report(error.message, error.code == ErrorCode::system ? different : wrong);
}

std::string time_text(std::int64_t seconds) {
  std::time_t time = seconds;
  std::tm parts{};
  char text[32] = "";
  if (::gmtime_r(&time, &parts) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%SZ", &parts);
  return text;
}

std::string step_text(std::int64_t step) {
  return step < 0 ? "-" : std::to_string(step);
}

int list_folder(const std::string& folder) {
  auto found = checkpoint::generations_in(folder);
  if (!found) return report(found.error());
  std::printf("%12s  %12s  %-20s  %s\n", "step", "size", "saved", "file");
  for (const checkpoint::Generation& each : found->whole)
    std::printf("%12s  %12s  %-20s  %s\n", step_text(each.header.step).c_str(),
                size_text(each.header.file_bytes).c_str(), time_text(each.header.saved_at_s).c_str(),
                each.path.c_str());
  for (const checkpoint::Damaged& each : found->damaged) std::printf("damaged: %s\n", each.why.c_str());
  return found->damaged.empty() ? 0 : different;
}

void list_file(const Reader& reader) {
  const checkpoint::Header& header = reader.header();
  std::printf("%s: step %s, %s, saved %s, layout %d\n", reader.path().c_str(), step_text(header.step).c_str(),
              size_text(header.file_bytes).c_str(), time_text(header.saved_at_s).c_str(), header.layout);
  for (const checkpoint::Entry& entry : reader.state())
    std::printf("%s: %s\n", entry.path.c_str(), words_for(entry).c_str());
}

// Opens the newest checkpoint of a folder, or the given file. A damaged checkpoint is not skipped.
Result<Reader> open(const hdf5::Library& library, const std::string& path) {
  if (!posix::is_folder(path)) return Reader::open(library, path);
  return checkpoint::open_newest(library, path, false, [](const std::string& why) { report(why); });
}

int list(const hdf5::Library& library, const std::vector<std::string>& paths) {
  int code = 0;
  for (const std::string& path : paths) {
    int one = 0;
    if (posix::is_folder(path)) one = list_folder(path);
    else if (auto reader = Reader::open(library, path)) list_file(*reader);
    else one = report(reader.error());
    code = std::max(code, one);
  }
  return code;
}

int verify_file(const hdf5::Library& library, const std::string& path) {
  auto reader = Reader::open(library, path);
  if (!reader) return report(reader.error());
  if (auto whole = reader->verify(); !whole) return report(whole.error());
  std::printf("%s is whole: step %s, %s\n", path.c_str(), step_text(reader->header().step).c_str(),
              size_text(reader->header().file_bytes).c_str());
  return 0;
}

int verify(const hdf5::Library& library, const std::vector<std::string>& paths) {
  int code = 0;
  for (const std::string& path : paths) {
    if (!posix::is_folder(path)) {
      code = std::max(code, verify_file(library, path));
      continue;
    }
    auto found = checkpoint::generations_in(path);
    if (!found) return report(found.error());
    for (const checkpoint::Generation& each : found->whole) code = std::max(code, verify_file(library, each.path));
    for (const checkpoint::Damaged& each : found->damaged) code = std::max(code, report(each.why, different));
  }
  return code;
}

int compare(const hdf5::Library& library, const std::string& left_path, const std::string& right_path) {
  auto left = open(library, left_path);
  if (!left) return report(left.error());
  auto right = open(library, right_path);
  if (!right) return report(right.error());
  auto lines = differences(*left, *right);
  if (!lines) return report(lines.error());
  for (const std::string& line : *lines) std::printf("%s\n", line.c_str());
  return lines->empty() ? 0 : different;
}

int export_one(const hdf5::Library& library, const std::vector<std::string>& arguments) {
  auto reader = open(library, arguments[0]);
  if (!reader) return report(reader.error());
  std::string group = arguments.size() > 2 ? arguments[2] : "/model";
  if (!arguments[1].ends_with(".safetensors"))
    return report(
        "cannot write " + arguments[1] +
        ": expected a name that ends in .safetensors. There is no export to .pt: that is a pickle, which runs "
        "code when it is read; safetensors.torch.load_file() reads what this writes");
  auto count = export_safetensors(*reader, group, arguments[1]);
  if (!count) return report(count.error());
  std::printf("%zu tensors of %s%s are in %s\n", *count, reader->path().c_str(), group.c_str(), arguments[1].c_str());
  return 0;
}

}  // namespace

int run_checkpoint_command(const std::string& action, const std::vector<std::string>& arguments,
                           const Environment& environment) {
  const struct {
    const char* action;
    std::size_t least, most;
  } actions[] = {{"ls", 1, 1000}, {"verify", 1, 1000}, {"diff", 2, 2}, {"export", 2, 3}};
  bool is_understood = false;
  for (const auto& row : actions)
    is_understood =
        is_understood || (action == row.action && arguments.size() >= row.least && arguments.size() <= row.most);
  if (!is_understood)
    return report("\"" + action + "\" with " + std::to_string(arguments.size()) +
                  " paths is not understood. Expected: ls PATH…, verify PATH…, diff ONE OTHER, or "
                  "export PATH FILE.safetensors [/group]; a PATH is a checkpoint or a folder of them");
  auto library = hdf5::library(environment);
  if (!library) return report(library.error());
  if (action == "ls") return list(**library, arguments);
  if (action == "verify") return verify(**library, arguments);
  if (action == "diff") return compare(**library, arguments[0], arguments[1]);
  return export_one(**library, arguments);
}

}  // namespace hvd::launcher
