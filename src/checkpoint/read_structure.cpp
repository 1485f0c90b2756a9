#include <algorithm>
#include <array>
#include <limits>

#include "checkpoint/hdf5_types.hpp"
#include "checkpoint/structure.hpp"

namespace hvd::checkpoint {
namespace {

using hdf5::Calls;
using hdf5::Handle;
using hdf5::Id;
using hdf5::Outcome;
using hdf5::Size;

constexpr int deepest = 128;  // the deepest nesting, since a group may be linked into itself

Handle open_file(const hdf5::Library& library, const std::string& path) {
  const Calls& calls = library.calls;
  Handle access(calls.H5Pcreate(calls.file_access), calls.H5Pclose);
  calls.H5Pset_fclose_degree(access.get(), hdf5::strong_close);
  if (calls.H5Pset_file_locking != nullptr) calls.H5Pset_file_locking(access.get(), false, true);
  return {calls.H5Fopen(path.c_str(), hdf5::open_to_read, access.get()), calls.H5Fclose};
}

// HDF5 calls this function. Exceptions must not pass through a C library, so the names are only collected here.
Outcome keep_name(Id, const char* name, const void*, void* context) {
  static_cast<std::vector<std::string>*>(context)->emplace_back(name);
  return 0;
}

class StructureReader {
 public:
  StructureReader(const hdf5::Library& library, std::string name, Hdf5Types types)
      : library_(library), calls_(library.calls), name_(std::move(name)), types_(std::move(types)) {}

  Result<Structure> read(const std::string& path) {
    Handle file = open_file(library_, path);
    if (!file) return hdf5::failure_of(library_, name_ + " cannot be opened");
    Handle root(calls_.H5Oopen(file.get(), "/", hdf5::plain), calls_.H5Oclose);
    if (!root) return unreadable("/");
    HVD_RETURN_IF_ERROR(read_group(root.get(), "/", 0));
    order();
    return std::move(structure_);
  }

 private:
  Error unreadable(const std::string& path) { return hdf5::failure_of(library_, name_ + ": cannot read " + path); }
  Error foreign(const std::string& path, const std::string& what) {
    return {ErrorCode::unsupported, name_ + ": " + path + " is " + what +
                                        ", which Horovod does not write into checkpoints; read this file with h5py"};
  }

  Status read_group(Id group, const std::string& path, int depth) {
    if (depth > deepest) return foreign(path, "in more than " + std::to_string(deepest) + " groups");
    std::vector<std::string> attributes;
    std::vector<std::string> links;
    Size at = 0;
    if (calls_.H5Aiterate2(group, hdf5::by_name, hdf5::ascending, &at, keep_name, &attributes) < 0)
      return unreadable(path);
    at = 0;
    if (calls_.iterate_links(group, hdf5::by_name, hdf5::ascending, &at, keep_name, &links) < 0)
      return unreadable(path);
    Entry self{path, {}, Group{}};
    std::string inside = path == "/" ? path : path + "/";
    for (const std::string& name : attributes) {
      Entry value{inside + name, {}, None{}};
      Handle attribute(calls_.H5Aopen(group, name.c_str(), hdf5::plain), calls_.H5Aclose);
      if (!attribute) return unreadable(value.path);
      HVD_RETURN_IF_ERROR(read_value(attribute.get(), true, value));
      if (name != "kind") structure_.state.push_back(std::move(value));
      else self.kind = text_in(value);
    }
    structure_.state.push_back(std::move(self));
    for (const std::string& name : links) HVD_RETURN_IF_ERROR(read_link(group, name, inside + name, depth));
    return {};
  }

  Status read_link(Id group, const std::string& name, const std::string& path, int depth) {
    Handle object(calls_.H5Oopen(group, name.c_str(), hdf5::plain), calls_.H5Oclose);
    if (!object) return unreadable(path);
    int kind = calls_.H5Iget_type(object.get());
    if (kind == hdf5::group_kind) return read_group(object.get(), path, depth + 1);
    if (kind == hdf5::dataset_kind) return read_dataset(object.get(), path);
    return foreign(path, "neither a group nor a dataset");
  }

  // Returns the text of an attribute; empty if it has another value, also a large number, which we keep as text.
  static std::string text_in(const Entry& attribute) {
    const auto* text = std::get_if<std::string>(&attribute.content);
    return text == nullptr || !attribute.kind.empty() ? std::string() : *text;
  }

  Result<std::string> text_at(Id object, const char* name, const std::string& path) {
    Handle attribute(calls_.H5Aopen(object, name, hdf5::plain), calls_.H5Aclose);
    if (!attribute) {
      calls_.H5Eclear2(hdf5::plain);
      return std::string();
    }
    Entry value{path, {}, None{}};
    HVD_RETURN_IF_ERROR(read_value(attribute.get(), true, value));
    return text_in(value);
  }

  Status read_dataset(Id dataset, const std::string& path) {
    Entry entry{path, {}, None{}};
    auto kind = text_at(dataset, "kind", path);
    auto dtype = text_at(dataset, "dtype", path);
    auto unit = text_at(dataset, "unit", path);
    if (!kind) return kind.error();
    if (!dtype) return dtype.error();
    if (!unit) return unit.error();
    entry.kind = std::move(*kind);
    if (dtype->empty()) HVD_RETURN_IF_ERROR(read_value(dataset, false, entry));
    else HVD_RETURN_IF_ERROR(describe_tensor(dataset, {std::move(*dtype), {}, nullptr, std::move(*unit)}, entry));
    structure_.state.push_back(std::move(entry));
    return {};
  }

  Status describe_tensor(Id dataset, Tensor tensor, Entry& entry) {
    Handle space(calls_.H5Dget_space(dataset), calls_.H5Sclose);
    Handle type(calls_.H5Dget_type(dataset), calls_.H5Tclose);
    Handle creation(calls_.H5Dget_create_plist(dataset), calls_.H5Pclose);
    int dimensions = space ? calls_.H5Sget_simple_extent_ndims(space.get()) : -1;
    std::array<Size, 64> extents{};
    if (!type || !creation || dimensions < 0 || dimensions > 32 ||
        calls_.H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr) < 0)
      return unreadable(entry.path);
    tensor.shape.assign(extents.begin(), extents.begin() + dimensions);
    auto bytes = bytes_of(tensor);
    if (!bytes) return foreign(entry.path, "a tensor with " + bytes.error().message);
    if (calls_.H5Tget_size(type.get()) != element_type(tensor.dtype)->bytes)
      return foreign(entry.path, "of another type than its attribute dtype says");
    Place place;
    place.entry = structure_.state.size();
    place.bytes = static_cast<std::uint64_t>(*bytes);
    place.offset = calls_.H5Dget_offset(dataset);
    place.in_one_piece = calls_.H5Pget_layout(creation.get()) == hdf5::contiguous_layout && place.bytes > 0 &&
                         place.offset != hdf5::no_address;
    structure_.places.push_back(place);
    entry.content = std::move(tensor);
    return {};
  }

  // Reads the value of an attribute or of a dataset.
  Status read_value(Id from, bool is_attribute, Entry& entry) {
    Handle space(is_attribute ? calls_.H5Aget_space(from) : calls_.H5Dget_space(from), calls_.H5Sclose);
    Handle type(is_attribute ? calls_.H5Aget_type(from) : calls_.H5Dget_type(from), calls_.H5Tclose);
    if (!space || !type) return unreadable(entry.path);
    int form = calls_.H5Sget_simple_extent_type(space.get());
    if (form == hdf5::null_space) return {};
    if (form != hdf5::scalar_space) return foreign(entry.path, "an array of values");
    auto get = [&](Id as, void* into) {
      return (is_attribute ? calls_.H5Aread(from, as, into)
                           : calls_.H5Dread(from, as, hdf5::whole, hdf5::whole, hdf5::plain, into)) >= 0;
    };
    std::int64_t integer = 0;
    std::uint64_t large = 0;
    double number = 0;
    std::int8_t truth = 0;
    char* text = nullptr;
    switch (calls_.H5Tget_class(type.get())) {
      case hdf5::integer_class:
        // HDF5 puts the nearest value in the place of one that does not fit.
        if (!get(calls_.i64, &integer) || !get(calls_.u64, &large)) return unreadable(entry.path);
        entry.content = integer;
        if (large > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
          entry.content = std::to_string(large);  // as we write larger numbers
          entry.kind = "int";
        }
        return {};
      case hdf5::float_class:
        if (!get(calls_.f64, &number)) return unreadable(entry.path);
        entry.content = number;
        return {};
      case hdf5::enum_class:
        if (!get(types_.of(Storage::boolean), &truth)) return unreadable(entry.path);
        entry.content = truth != 0;
        return {};
      case hdf5::string_class:
        if (calls_.H5Tis_variable_str(type.get()) <= 0) return foreign(entry.path, "a text of fixed length");
        if (!get(types_.text(), static_cast<void*>(&text))) return unreadable(entry.path);
        entry.content = std::string(text == nullptr ? "" : text);
        calls_.H5free_memory(text);
        return {};
      default: return foreign(entry.path, "a value of no type of ours");
    }
  }

  // Orders the entries by path, so that their order does not depend on how the file was written.
  void order() {
    std::vector<std::size_t> ranks(structure_.state.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = i;
    std::sort(ranks.begin(), ranks.end(),
              [&](std::size_t a, std::size_t b) { return structure_.state[a].path < structure_.state[b].path; });
    State sorted(ranks.size());
    std::vector<std::size_t> now_at(ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      sorted[i] = std::move(structure_.state[ranks[i]]);
      now_at[ranks[i]] = i;
    }
    structure_.state = std::move(sorted);
    for (Place& place : structure_.places) place.entry = now_at[place.entry];
    std::sort(structure_.places.begin(), structure_.places.end(),
              [](const Place& a, const Place& b) { return a.entry < b.entry; });
  }

  const hdf5::Library& library_;
  const Calls& calls_;
  std::string name_;  // name of the file for messages
  Hdf5Types types_;
  Structure structure_;
};

}  // namespace

Result<Structure> read_structure(const hdf5::Library& library, const std::string& path, const std::string& name) {
  hdf5::Section section(library);
  auto types = Hdf5Types::make(library);
  if (!types) return types.error();
  return StructureReader(library, name, std::move(*types)).read(path);
}

Status read_through_hdf5(const hdf5::Library& library, const std::string& path, const std::string& name,
                         const Entry& entry, void* data, std::uint64_t bytes) {
  hdf5::Section section(library);
  const Calls& calls = library.calls;
  auto types = Hdf5Types::make(library);
  if (!types) return types.error();
  const auto& tensor = std::get<Tensor>(entry.content);
  if (static_cast<std::uint64_t>(*bytes_of(tensor)) != bytes)
    return Error(ErrorCode::invalid_argument, entry.path + " has another size than the memory for it");
  Handle file = open_file(library, path);
  Handle dataset(file ? calls.H5Oopen(file.get(), entry.path.c_str(), hdf5::plain) : -1, calls.H5Oclose);
  if (!dataset || calls.H5Dread(dataset.get(), types->of(element_type(tensor.dtype)->storage), hdf5::whole, hdf5::whole,
                                hdf5::plain, data) < 0)
    return hdf5::failure_of(library,
                            name + ": cannot read " + entry.path +
                                " (if it is compressed by lz4 or zstd, HDF5_PLUGIN_PATH must lead to the filter)");
  return {};
}

}  // namespace hvd::checkpoint
