#include <algorithm>
#include <unordered_map>

#include "base/overloaded.hpp"
#include "base/text/number.hpp"
#include "checkpoint/hdf5_types.hpp"
#include "checkpoint/structure.hpp"

namespace hvd::checkpoint {
namespace {

using hdf5::Calls;
using hdf5::Handle;
using hdf5::Id;
using hdf5::Size;

constexpr std::int64_t most_compact_bytes = 1024;   // stored inside the object header, where HDF5 allows 64 KB
constexpr std::int64_t least_chunked_bytes = 4096;  // compressing smaller tensors gains nothing
constexpr Size chunk_bytes = 1 << 20;
constexpr std::size_t most_attributes = 256;  // a group has at most this many attributes, because HDF5 searches them
                                              // one by one
// HDF5 allocates space for the structure in steps of this size. So structure and data are separate, and tensors are
// next to each other.
constexpr Size structure_step = 256 << 10;

constexpr int filter_of(Compression::Method method) {
  switch (method) {  // the numbers of these filters, which the HDF Group has registered
    case Compression::Method::none: return 0;
    case Compression::Method::gzip: return hdf5::gzip_filter;
    case Compression::Method::lz4: return 32004;
    case Compression::Method::zstd: return 32015;
  }
  return 0;
}

const char* name_of(Compression::Method method) {
  switch (method) {
    case Compression::Method::none: return "none";
    case Compression::Method::gzip: return "gzip";
    case Compression::Method::lz4: return "lz4";
    case Compression::Method::zstd: return "zstd";
  }
  return "none";
}

class StructureWriter {
 public:
  StructureWriter(const hdf5::Library& library, Hdf5Types types, const Compression& compression)
      : library_(library), calls_(library.calls), types_(std::move(types)), compression_(compression) {}

  Status write(const std::string& path, const State& state, std::uint64_t user_bytes) {
    HVD_RETURN_IF_ERROR(make_lists());
    HVD_RETURN_IF_ERROR(create_file(path, user_bytes));
    HVD_RETURN_IF_ERROR(write_groups(state));
    for (const Entry& entry : state) HVD_RETURN_IF_ERROR(write_entry(entry));
    // HDF5 writes most of its data when the file is closed.
    if (!file_.close()) return hdf5::failure_of(library_, "cannot write " + path);
    std::sort(extents_.begin(), extents_.end(), [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
    return {};
  }
  std::vector<Extent> take_extents() { return std::move(extents_); }

 private:
  Handle list(Id list_class) const { return {calls_.H5Pcreate(list_class), calls_.H5Pclose}; }

  Status make_lists() {
    links_ = list(calls_.link_create);
    groups_ = list(calls_.group_create);
    attributes_ = list(calls_.attribute_create);
    if (!links_ || !groups_ || !attributes_ || calls_.H5Pset_char_encoding(links_.get(), hdf5::utf8) < 0 ||
        calls_.H5Pset_char_encoding(attributes_.get(), hdf5::utf8) < 0 ||
        calls_.H5Pset_obj_track_times(groups_.get(), false) < 0)
      return hdf5::failure_of(library_, "HDF5 could not make property lists");
    return {};
  }

  Status create_file(const std::string& path, std::uint64_t user_bytes) {
    Handle creation = list(calls_.file_create);
    Handle access = list(calls_.file_access);
    if (!creation || !access || calls_.H5Pset_userblock(creation.get(), user_bytes) < 0 ||
        calls_.H5Pset_meta_block_size(access.get(), structure_step) < 0 ||
        calls_.H5Pset_fclose_degree(access.get(), hdf5::strong_close) < 0)
      return hdf5::failure_of(library_, "HDF5 could not make property lists");
    // No other process knows the file, so it is not locked. Many parallel file systems have no locks, or claim falsely
    // to have them.
    if (calls_.H5Pset_file_locking != nullptr) calls_.H5Pset_file_locking(access.get(), false, true);
    file_ =
        Handle(calls_.H5Fcreate(path.c_str(), hdf5::create_or_empty, creation.get(), access.get()), calls_.H5Fclose);
    if (!file_)
      return hdf5::failure_of(
          library_, "cannot write " + path + " (if it is about locks: HDF5_USE_FILE_LOCKING=FALSE in the environment)");
    return {};
  }

  // Groups are written first, because they contain the other entries. In the order of paths a group comes after the
  // group that contains it.
  Status write_groups(const State& state) {
    std::vector<const Entry*> groups;
    for (const Entry& entry : state) {
      if (std::holds_alternative<Group>(entry.content)) groups.push_back(&entry);
      else if (!std::holds_alternative<Tensor>(entry.content)) ++values_in_[std::string(parent_of(entry.path))];
    }
    std::sort(groups.begin(), groups.end(), [](const Entry* a, const Entry* b) { return a->path < b->path; });
    for (const Entry* entry : groups) {
      Handle group(entry->path == "/"
                       ? calls_.H5Gopen2(file_.get(), "/", hdf5::plain)
                       : calls_.H5Gcreate2(file_.get(), entry->path.c_str(), links_.get(), groups_.get(), hdf5::plain),
                   calls_.H5Gclose);
      if (!group) return cannot_write(*entry);
      HVD_RETURN_IF_ERROR(write_text(group.get(), "kind", entry->kind, *entry));
    }
    return {};
  }

  Status write_entry(const Entry& entry) {
    if (std::holds_alternative<Group>(entry.content)) return {};
    if (const auto* tensor = std::get_if<Tensor>(&entry.content)) return write_tensor(entry, *tensor);
    return write_value(entry);
  }

  Status cannot_write(const Entry& entry) { return hdf5::failure_of(library_, "cannot write " + entry.path); }

  Status write_text(Id object, const char* name, const std::string& text, const Entry& entry) {
    if (text.empty()) return {};
    Handle space(calls_.H5Screate(hdf5::scalar_space), calls_.H5Sclose);
    Handle attribute(calls_.H5Acreate2(object, name, types_.text(), space.get(), attributes_.get(), hdf5::plain),
                     calls_.H5Aclose);
    const char* start = text.c_str();
    if (!space || !attribute || calls_.H5Awrite(attribute.get(), types_.text(), &start) < 0) return cannot_write(entry);
    return {};
  }

  // Writes a value. It becomes an attribute of the group that contains it. It becomes a dataset if it has a kind of its
  // own, or if the group has very many values.
  Status write_value(const Entry& entry) {
    std::string around(parent_of(entry.path));
    std::string name(last_part_of(entry.path));
    bool is_attribute = entry.kind.empty() && values_in_[around] <= most_attributes;
    bool is_none = std::holds_alternative<None>(entry.content);
    auto with = [&](Id type, const void* data) -> Status {
      Handle space(calls_.H5Screate(is_none ? hdf5::null_space : hdf5::scalar_space), calls_.H5Sclose);
      if (!is_attribute) {
        Handle dataset(calls_.H5Dcreate2(file_.get(), entry.path.c_str(), type, space.get(), links_.get(), hdf5::plain,
                                         hdf5::plain),
                       calls_.H5Dclose);
        if (!dataset ||
            (!is_none && calls_.H5Dwrite(dataset.get(), type, hdf5::whole, hdf5::whole, hdf5::plain, data) < 0))
          return cannot_write(entry);
        return write_text(dataset.get(), "kind", entry.kind, entry);
      }
      Handle group(calls_.H5Gopen2(file_.get(), around.c_str(), hdf5::plain), calls_.H5Gclose);
      Handle attribute(calls_.H5Acreate2(group.get(), name.c_str(), type, space.get(), attributes_.get(), hdf5::plain),
                       calls_.H5Aclose);
      if (!attribute || (!is_none && calls_.H5Awrite(attribute.get(), type, data) < 0)) return cannot_write(entry);
      return {};
    };
    return std::visit(Overloaded{[&](bool value) {
                                   auto byte = static_cast<std::int8_t>(value);
                                   return with(types_.of(Storage::boolean), &byte);
                                 },
                                 [&](std::int64_t value) { return with(calls_.i64, &value); },
                                 [&](double value) { return with(calls_.f64, &value); },
                                 [&](const std::string& value) {
                                   const char* start = value.c_str();
                                   return with(types_.text(), &start);
                                 },
                                 [&](const None&) { return with(calls_.f64, nullptr); },
                                 // write_groups() and write_tensor() write these
                                 [](const Group&) { return Status(); }, [](const Tensor&) { return Status(); }},
                      entry.content);
  }

  Status write_tensor(const Entry& entry, const Tensor& tensor) {
    const ElementType* element = element_type(tensor.dtype);
    const auto bytes = static_cast<std::uint64_t>(*bytes_of(tensor));
    std::vector<Size> shape(tensor.shape.begin(), tensor.shape.end());
    Handle space(shape.empty() ? calls_.H5Screate(hdf5::scalar_space)
                               : calls_.H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr),
                 calls_.H5Sclose);
    Handle creation = list(calls_.dataset_create);
    bool in_one_piece = false;
    HVD_RETURN_IF_ERROR(choose_layout(creation.get(), shape, *element, bytes, in_one_piece));
    Id type = types_.of(element->storage);
    Handle dataset(calls_.H5Dcreate2(file_.get(), entry.path.c_str(), type, space.get(), links_.get(), creation.get(),
                                     hdf5::plain),
                   calls_.H5Dclose);
    if (!dataset) return cannot_write(entry);
    HVD_RETURN_IF_ERROR(write_text(dataset.get(), "dtype", tensor.dtype, entry));
    HVD_RETURN_IF_ERROR(write_text(dataset.get(), "kind", entry.kind, entry));
    HVD_RETURN_IF_ERROR(write_text(dataset.get(), "unit", tensor.unit, entry));
    if (bytes == 0) return {};
    if (in_one_piece) {
      std::uint64_t offset = calls_.H5Dget_offset(dataset.get());
      if (offset == hdf5::no_address) return cannot_write(entry);
      extents_.push_back({offset, bytes, tensor.data});
      return {};
    }
    if (calls_.H5Dwrite(dataset.get(), type, hdf5::whole, hdf5::whole, hdf5::plain, tensor.data) < 0)
      return cannot_write(entry);
    return {};
  }

  Status choose_layout(Id creation, std::vector<Size> shape, const ElementType& element, std::uint64_t bytes,
                       bool& in_one_piece) {
    bool is_chosen = calls_.H5Pset_obj_track_times(creation, false) >= 0;
    if (bytes == 0) {
      // An empty tensor needs no space in the file.
    } else if (bytes <= most_compact_bytes) {
      is_chosen = is_chosen && calls_.H5Pset_layout(creation, hdf5::compact_layout) >= 0;
    } else if (compression_.method != Compression::Method::none && !shape.empty() && bytes >= least_chunked_bytes) {
      is_chosen = is_chosen && compress(creation, std::move(shape), element.bytes);
    } else {
      in_one_piece = true;
      is_chosen = is_chosen && calls_.H5Pset_layout(creation, hdf5::contiguous_layout) >= 0 &&
                  calls_.H5Pset_alloc_time(creation, hdf5::allocate_at_once) >= 0 &&
                  calls_.H5Pset_fill_time(creation, hdf5::fill_never) >= 0;
    }
    if (!is_chosen) return hdf5::failure_of(library_, "HDF5 could not make a property list");
    return {};
  }

  bool compress(Id creation, std::vector<Size> chunk, std::size_t element_bytes) const {
    auto bytes = [&] {
      Size product = element_bytes;
      for (Size extent : chunk) product *= extent;
      return product;
    };
    // The first dimensions are cut first, so that a chunk is one piece of memory.
    for (Size& extent : chunk)
      while (extent > 1 && bytes() > chunk_bytes) extent = (extent + 1) / 2;
    if (calls_.H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data()) < 0) return false;
    if (element_bytes > 1 && calls_.H5Pset_shuffle(creation) < 0) return false;
    if (compression_.method == Compression::Method::gzip)
      return calls_.H5Pset_deflate(creation, compression_.level < 0 ? 1u : static_cast<unsigned>(compression_.level)) >=
             0;
    auto level = static_cast<unsigned>(compression_.level < 0 ? 3 : compression_.level);
    bool has_level = compression_.method == Compression::Method::zstd;
    return calls_.H5Pset_filter(creation, filter_of(compression_.method), 0, has_level ? 1 : 0, &level) >= 0;
  }

  const hdf5::Library& library_;
  const Calls& calls_;
  Hdf5Types types_;
  Compression compression_;
  Handle file_, links_, groups_, attributes_;
  std::unordered_map<std::string, std::size_t> values_in_;
  std::vector<Extent> extents_;
};

Status check_filter(const hdf5::Library& library, const Compression& compression) {
  if (compression.method == Compression::Method::none) return {};
  if (library.calls.H5Zfilter_avail(filter_of(compression.method)) > 0) return {};
  return Error(ErrorCode::unsupported, std::string("the HDF5 library ") + library.path + " (" + library.version +
                                           ") has no filter " + name_of(compression.method) +
                                           "; put its plugin into a folder of HDF5_PLUGIN_PATH, or compress by gzip");
}

}  // namespace

Result<Compression> compression_of(const std::string& text) {
  std::size_t colon = text.find(':');
  std::string name = text.substr(0, colon);
  Compression compression;
  int most = 0;
  if (name.empty() || name == "none") compression.method = Compression::Method::none;
  else if (name == "gzip") compression.method = Compression::Method::gzip, most = 9;
  else if (name == "zstd") compression.method = Compression::Method::zstd, most = 22;
  else if (name == "lz4") compression.method = Compression::Method::lz4;
  else
    return Error(
        ErrorCode::invalid_argument,
        "compression \"" + text + "\" is not known; expected none, gzip, gzip:0 to 9, lz4, zstd or zstd:1 to 22");
  if (colon == std::string::npos) return compression;
  auto level = number_in<int>(text.substr(colon + 1));
  if (!level || *level < 0 || *level > most)
    return Error(ErrorCode::invalid_argument,
                 "compression \"" + text + "\": the level of " + name +
                     (most == 0 ? " cannot be chosen" : " is a number from 0 to " + std::to_string(most)));
  compression.level = *level;
  return compression;
}

Result<std::vector<Extent>> write_structure(const hdf5::Library& library, const std::string& path, const State& state,
                                            const Compression& compression, std::uint64_t user_bytes) {
  hdf5::Section section(library);
  HVD_RETURN_IF_ERROR(check_filter(library, compression));
  auto types = Hdf5Types::make(library);
  if (!types) return types.error();
  StructureWriter writer(library, std::move(*types), compression);
  HVD_RETURN_IF_ERROR(writer.write(path, state, user_bytes));
  return writer.take_extents();
}

}  // namespace hvd::checkpoint
