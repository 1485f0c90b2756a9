// The checkpoint functions of horovod.h. They turn the caller's entries into a state of src/checkpoint, and a state
// into entries. Only rank 0 opens files.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>

#include "api/answer.hpp"
#include "api/callbacks.hpp"
#include "api/checkpoint_collective.hpp"
#include "api/checkpoint_entries.hpp"
#include "api/job_around.hpp"
#include "api/stops.hpp"
#include "base/checksums/crc32c.hpp"
#include "base/error_ids.hpp"
#include "base/log.hpp"
#include "base/overloaded.hpp"
#include "checkpoint/content_bytes.hpp"
#include "checkpoint/generations.hpp"
#include "checkpoint/lease.hpp"
#include "checkpoint/writer.hpp"
#include "native/posix/files/file_in_place.hpp"
#include "native/posix/files/folder.hpp"
#include "native/posix/files/settings_files.hpp"
#include "runtime/session.hpp"

using hvd::ErrorCode;
using hvd::api::copy_in;
using hvd::api::element;
using hvd::api::fail;
using hvd::api::first_entry_size;
using hvd::api::refuse_in_callback;
namespace checkpoint = hvd::checkpoint;

struct hvd_checkpoint {
  hvd_runtime* runtime = nullptr;
  std::unique_ptr<checkpoint::Reader> reader;  // null on all ranks but rank 0
  std::string path;
  checkpoint::Header header;
  checkpoint::State state;
};

namespace {

void warn(const std::string& text) {
  hvd::log::warning(text);
}

// The leases that this process holds until it ends.
struct Leases {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<checkpoint::Lease>> held;
  pid_t owner = 0;
};
Leases& leases() {
  static auto* all = new Leases;
  return *all;
}
void release_all() {
  Leases& all = leases();
  if (all.owner != ::getpid()) return;  // a forked child must not release the leases, because they belong to its parent
  std::lock_guard lock(all.mutex);
  all.held.clear();
}

hvd::Status hold_lease(const std::string& path) {
  Leases& all = leases();
  std::lock_guard lock(all.mutex);
  if (all.owner != 0 && all.owner != ::getpid())
    return hvd::Error(ErrorCode::invalid_argument,
                      "this process was forked from one that writes checkpoints; only that one may go on writing them");
  if (all.owner == 0) std::atexit(release_all);
  all.owner = ::getpid();
  std::error_code ignored;
  std::string key = std::filesystem::weakly_canonical(checkpoint::lease_file(path), ignored).string();
  if (auto found = all.held.find(key); found != all.held.end()) return found->second->check();
  auto lease = checkpoint::Lease::acquire(path, hvd::api::name_of_job(hvd::Environment::of_this_process()), {}, warn);
  if (!lease) return lease.error();
  all.held.emplace(std::move(key), std::move(*lease));
  return {};
}

hvd::Result<const hvd::hdf5::Library*> hdf5_library() {
  return hvd::hdf5::library(hvd::posix::environment_with_files());
}

hvd_status save_here(const std::string& given_path, const checkpoint::State& state,
                     const hvd_checkpoint_options& given) {
  const std::string path = hvd::posix::end_of_links(given_path);
  checkpoint::WriteOptions options;
  auto compression = checkpoint::compression_of(given.compression == nullptr ? "" : given.compression);
  if (!compression) return fail(compression.error());
  options.compression = *compression;
  options.keeps_previous = given.forgets_previous == 0;
  options.step = std::max<std::int64_t>(given.step, -1);
  auto library = hdf5_library();
  if (!library) return fail(library.error());
  // This process writes one file at a time: to a second writer, the unfinished file of the first one would look like
  // one that a killed process left.
  static auto* writing = new std::mutex;
  std::lock_guard lock(*writing);
  const std::string leased = given.lease == nullptr ? path : given.lease;
  auto has_lease = [&] { return hold_lease(leased); };
  // What is wrong with the path itself is a better error than what is wrong with a lease beside it.
  auto ready = hvd::posix::FileInPlace::check_place(path);
  if (ready) ready = has_lease();
  if (!ready) return fail(hvd::identified(ready.error(), "HVD3001"));
  options.may_replace = has_lease;
  options.sequence = checkpoint::next_sequence(path);
  auto written = checkpoint::write_file(**library, path, state, options);
  if (!written) return fail(hvd::identified(written.error(), "HVD3001"));
  if (given.keep == 0) return HVD_OK;
  // The new file is durable. If an old file cannot be removed, that is only a warning.
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (auto removed = checkpoint::remove_old(folder.empty() ? "." : folder, given.keep, has_lease); !removed)
    warn(removed.error().message);
  return HVD_OK;
}

hvd_status save_entries(const std::string& path, const hvd_checkpoint_entry* entries, std::size_t count,
                        const hvd_checkpoint_options* options) {
  hvd_checkpoint_options given{};
  given.step = -1;
  hvd_status status = HVD_OK;
  if (options != nullptr) status = copy_in("hvd_checkpoint_options", options, sizeof(hvd_checkpoint_options), given);
  checkpoint::State state;
  if (status == HVD_OK) status = hvd::api::read_entries(entries, count, state);
  const auto began = hvd::Clock::now();
  if (status == HVD_OK) status = save_here(path, state, given);
  if (status == HVD_OK) hvd::api::note_write(hvd::Clock::now() - began);
  return status;
}

hvd_status open_here(const char* path, const int64_t* before, hvd_checkpoint& opened) {
  auto library = hdf5_library();
  if (!library) return fail(library.error());
  auto reader = before == nullptr ? checkpoint::open_newest(**library, path, true, warn)
                                  : checkpoint::open_before(**library, path, *before, true, warn);
  if (!reader) return fail(hvd::identified(reader.error(), "HVD3002"));
  opened.reader = std::make_unique<checkpoint::Reader>(std::move(*reader));
  opened.path = opened.reader->path();
  opened.header = opened.reader->header();
  opened.state = opened.reader->state();
  return HVD_OK;
}

void describe(const hvd_checkpoint& opened, hvd::Buffer& bytes) {
  hvd::ByteWriter writer(bytes);
  writer.put_string(opened.path);
  writer.put_string(checkpoint::encode(opened.header));
  writer.put(static_cast<std::uint64_t>(opened.state.size()));
  for (const checkpoint::Entry& entry : opened.state) {
    writer.put_string(entry.path);
    writer.put_string(entry.kind);
    checkpoint::put_content(writer, entry.content);
  }
}

hvd_status adopt(const hvd::Buffer& bytes, hvd_checkpoint& opened) {
  hvd::ByteReader reader(bytes);
  opened.path = reader.get_string();
  auto header = checkpoint::decode_header(hvd::as_bytes(reader.get_string()), opened.path);
  if (!header) return fail(hvd::identified(header.error(), "HVD3002"));
  opened.header = *header;
  opened.state.resize(reader.get<std::uint64_t>());
  for (checkpoint::Entry& entry : opened.state) {
    entry.path = reader.get_string();
    entry.kind = reader.get_string();
    auto content = checkpoint::get_content<checkpoint::Content>(reader);
    if (!content)
      return fail(ErrorCode::system, opened.path + ": " + entry.path +
                                         " is of a type that this rank does not know; expected the same version of "
                                         "Horovod on all ranks");
    entry.content = std::move(*content);
  }
  return reader.ok() ? HVD_OK
                     : fail(ErrorCode::system,
                            opened.path + ": expected rank 0's list of its entries, received an incomplete one");
}

const checkpoint::Tensor* find_tensor(const hvd_checkpoint& opened, std::string_view path) {
  auto at =
      std::lower_bound(opened.state.begin(), opened.state.end(), path,
                       [](const checkpoint::Entry& entry, std::string_view wanted) { return entry.path < wanted; });
  return at == opened.state.end() || at->path != path ? nullptr : std::get_if<checkpoint::Tensor>(&at->content);
}

hvd_status check_target(const hvd_checkpoint& opened, const hvd_checkpoint_target& target) {
  if (target.path == nullptr || (target.data == nullptr && target.bytes > 0))
    return fail(ErrorCode::invalid_argument, "hvd_checkpoint_target has no path, or no memory");
  const checkpoint::Tensor* tensor = find_tensor(opened, target.path);
  if (tensor == nullptr)
    return fail(ErrorCode::invalid_argument, opened.path + " has no tensor " + std::string(target.path));
  auto bytes = static_cast<size_t>(*checkpoint::bytes_of(*tensor));
  if (bytes == target.bytes) return HVD_OK;
  return fail(ErrorCode::invalid_argument, opened.path + ": " + target.path + " has " + std::to_string(bytes) +
                                               " bytes, and the memory for it " + std::to_string(target.bytes));
}

hvd_status read_targets(const hvd_checkpoint& opened, const hvd_checkpoint_target* targets, size_t count,
                        std::vector<hvd_checkpoint_target>& all) {
  if (count > 0 && targets == nullptr)
    return fail(ErrorCode::invalid_argument, "hvd_checkpoint_read got no targets, but their number");
  all.resize(count);
  for (size_t i = 0; i < count; ++i) {
    hvd_status status = copy_in("hvd_checkpoint_target", element(targets, i), sizeof(hvd_checkpoint_target), all[i]);
    if (status == HVD_OK) status = check_target(opened, all[i]);
    if (status != HVD_OK) return status;
  }
  return HVD_OK;
}

// Checks that all ranks ask for the same tensors and that no rank's arguments were refused. Without this check such
// ranks would wait for each other forever.
hvd_status agree_on_targets(const hvd_checkpoint& opened, const std::vector<hvd_checkpoint_target>& targets,
                            hvd_status status) {
  if (opened.runtime == nullptr) return status;
  std::string all = status == HVD_OK ? "" : "refused";
  for (const hvd_checkpoint_target& target : targets)
    if (status == HVD_OK && target.path != nullptr) all += std::string(target.path) + "\n";
  hvd::api::LastError reason = hvd::api::last_error();
  hvd_status agreed = hvd::api::agree_on(opened.runtime, hvd::crc32c(hvd::as_bytes(all)),
                                         "hvd_checkpoint_read: the ranks do not ask for the same tensors of " +
                                             opened.path + ", or one of them was refused");
  if (status == HVD_OK) return agreed;
  hvd::api::last_error() = std::move(reason);
  return status;
}

hvd_status open_for_all(const std::string& function, hvd_runtime* runtime, const char* path, const int64_t* before,
                        hvd_checkpoint** result) {
  if (result == nullptr) return fail(ErrorCode::invalid_argument, function + " needs a place for its result");
  auto opened = std::make_unique<hvd_checkpoint>();
  opened->runtime = runtime;
  hvd_status status = HVD_OK;
  bool is_reader = hvd::api::is_rank_0(runtime);
  if (is_reader)
    status = path == nullptr ? fail(ErrorCode::invalid_argument, function + " needs a path; got null")
                             : open_here(path, before, *opened);
  status = hvd::api::share_outcome(runtime, status);
  if (status != HVD_OK) return status;
  hvd::Buffer description;
  if (is_reader && runtime != nullptr) describe(*opened, description);
  status = hvd::api::share_bytes(runtime, "description", description);
  if (status == HVD_OK && !is_reader) status = adopt(description, *opened);
  if (status == HVD_OK) *result = opened.release();
  return status;
}

}  // namespace

extern "C" {

hvd_status hvd_checkpoint_library(const char* otherwise) {
  auto library = hvd::hdf5::library(hvd::posix::environment_with_files(), otherwise == nullptr ? "" : otherwise);
  return library ? HVD_OK : fail(library.error());
}

hvd_status hvd_checkpoint_claim(const char* path) {
  if (refuse_in_callback("hvd_checkpoint_claim")) return HVD_INVALID_ARGUMENT;
  if (path == nullptr) return fail(ErrorCode::invalid_argument, "hvd_checkpoint_claim needs a path; got null");
  auto held = hold_lease(path);
  return held ? HVD_OK : fail(hvd::identified(held.error(), "HVD3001"));
}

void hvd_checkpoint_release(const char* path) {
  if (path == nullptr) return;
  Leases& all = leases();
  if (all.owner != ::getpid()) return;
  std::lock_guard lock(all.mutex);
  std::error_code ignored;
  all.held.erase(std::filesystem::weakly_canonical(checkpoint::lease_file(path), ignored).string());
}

hvd_status hvd_checkpoint_save(hvd_runtime* runtime, const char* path, const hvd_checkpoint_entry* entries,
                               size_t count, const hvd_checkpoint_options* options) {
  if (refuse_in_callback("hvd_checkpoint_save")) return HVD_INVALID_ARGUMENT;
  hvd_status status = HVD_OK;
  if (hvd::api::is_rank_0(runtime)) {
    if (path == nullptr) status = fail(ErrorCode::invalid_argument, "hvd_checkpoint_save needs a path; got null");
    else status = save_entries(path, entries, count, options);
  }
  return hvd::api::share_outcome(runtime, status);
}

hvd_status hvd_checkpoint_open(hvd_runtime* runtime, const char* path, hvd_checkpoint** result) {
  if (refuse_in_callback("hvd_checkpoint_open")) return HVD_INVALID_ARGUMENT;
  return open_for_all("hvd_checkpoint_open", runtime, path, nullptr, result);
}

hvd_status hvd_checkpoint_open_before(hvd_runtime* runtime, const char* folder, int64_t sequence,
                                      hvd_checkpoint** result) {
  if (refuse_in_callback("hvd_checkpoint_open_before")) return HVD_INVALID_ARGUMENT;
  return open_for_all("hvd_checkpoint_open_before", runtime, folder, &sequence, result);
}

void hvd_checkpoint_close(hvd_checkpoint* opened) {
  delete opened;
}

hvd_status hvd_checkpoint_get_info(hvd_checkpoint* opened, hvd_checkpoint_info* info) {
  if (opened == nullptr)
    return fail(ErrorCode::invalid_argument, "hvd_checkpoint_get_info needs a checkpoint; got null");
  if (info == nullptr) return hvd::api::missing_struct("hvd_checkpoint_info");
  if (info->struct_size < sizeof(hvd_checkpoint_info))
    return hvd::api::wrong_struct("hvd_checkpoint_info", sizeof(hvd_checkpoint_info), info->struct_size);
  *info = {info->struct_size,   opened->path.c_str(),    opened->state.size(),     opened->header.file_bytes,
           opened->header.step, opened->header.sequence, opened->header.saved_at_s};
  return HVD_OK;
}

hvd_status hvd_checkpoint_get_entry(hvd_checkpoint* opened, size_t index, hvd_checkpoint_entry* entry) {
  if (opened == nullptr || index >= opened->state.size())
    return fail(ErrorCode::invalid_argument, "there is no entry " + std::to_string(index) + " of the checkpoint");
  if (entry == nullptr) return hvd::api::missing_struct("hvd_checkpoint_entry");
  if (entry->struct_size < first_entry_size)
    return hvd::api::wrong_struct("hvd_checkpoint_entry", sizeof *entry, entry->struct_size);
  const checkpoint::Entry& found = opened->state[index];
  hvd_checkpoint_entry shown{};
  shown.struct_size = entry->struct_size;
  shown.path = found.path.c_str();
  if (!found.kind.empty()) shown.kind = found.kind.c_str();
  shown.type = static_cast<hvd_entry_type>(found.content.index());
  std::visit(hvd::Overloaded{[](const checkpoint::Group&) {}, [](const checkpoint::None&) {},
                             [&](const bool& truth) { shown.integer = truth ? 1 : 0; },
                             [&](const std::int64_t& integer) { shown.integer = integer; },
                             [&](const double& number) { shown.number = number; },
                             [&](const std::string& text) { shown.text = text.c_str(); },
                             [&](const checkpoint::Tensor& tensor) {
                               shown.dtype = tensor.dtype.c_str();
                               shown.dimensions = static_cast<int>(tensor.shape.size());
                               shown.shape = tensor.shape.data();
                               shown.bytes = static_cast<size_t>(*checkpoint::bytes_of(tensor));
                               if (!tensor.unit.empty()) shown.unit = tensor.unit.c_str();
                             }},
             found.content);
  std::memcpy(entry, &shown, std::min(sizeof shown, entry->struct_size));  // an older caller's struct is smaller
  return HVD_OK;
}

hvd_status hvd_checkpoint_read(hvd_checkpoint* opened, const hvd_checkpoint_target* targets, size_t count) {
  if (refuse_in_callback("hvd_checkpoint_read")) return HVD_INVALID_ARGUMENT;
  if (opened == nullptr) return fail(ErrorCode::invalid_argument, "hvd_checkpoint_read needs a checkpoint; got null");
  std::vector<hvd_checkpoint_target> all;
  hvd_status status = agree_on_targets(*opened, all, read_targets(*opened, targets, count, all));
  if (status != HVD_OK) return status;
  hvd::api::Broadcasts broadcasts(opened->runtime);
  hvd_status outcome = HVD_OK;
  for (const hvd_checkpoint_target& target : all) {
    // After a failed read the broadcasts still go on, with the bytes that are there, because the other ranks have
    // started theirs.
    if (opened->reader != nullptr && outcome == HVD_OK)
      if (auto read = opened->reader->read(target.path, target.data, target.bytes); !read)
        outcome = fail(hvd::identified(read.error(), "HVD3002"));
    if (status == HVD_OK) status = broadcasts.start(target.path, target.data, target.bytes);
  }
  if (hvd_status sent = broadcasts.wait(); status == HVD_OK) status = sent;
  if (status != HVD_OK) return status;
  return hvd::api::share_outcome(opened->runtime, outcome);
}

}  // extern "C"
