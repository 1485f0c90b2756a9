#pragma once
// Checkpoints for tests: the HDF5 library, a state with values of every kind, and damaged copies of files.
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "checkpoint/reader.hpp"
#include "checkpoint/writer.hpp"
#include "in_own_folder.hpp"

namespace hvd::checkpoint {

class WithCheckpoints : public testing::InOwnFolder {
 protected:
  void SetUp() override {
    auto found = hdf5::library(Environment::of_this_process());
    if (!found) GTEST_SKIP() << found.error().message;
    library_ = *found;
  }

  // A state with a group, every kind of value, and tensors of every layout in the file: inside the object header, in
  // one piece, in several blocks, and without any bytes.
  State everything() {
    State state;
    state.push_back({"/", "dict", Group{}});
    state.push_back({"/model", "OrderedDict", Group{}});
    state.push_back({"/step", "", std::int64_t{1200}});
    state.push_back({"/loss", "", 0.1});
    state.push_back({"/is_done", "", true});
    state.push_back({"/nothing", "", None{}});
    state.push_back({"/text", "", std::string("größer than \"nothing\"\n")});
    state.push_back({"/empty_text", "", std::string()});
    state.push_back({"/big", "int", std::string("123456789012345678901234567890")});
    state.push_back({"/model/" + escape("a/b"), "", Tensor{"float32", {3, 5}, floats_.data(), "m/s"}});
    state.push_back({"/model/layer1.weight", "", Tensor{"float32", {300, 7}, floats_.data(), ""}});
    state.push_back({"/model/half", "", Tensor{"float16", {700}, floats_.data(), ""}});
    state.push_back({"/model/brain", "", Tensor{"bfloat16", {2, 700}, floats_.data(), ""}});
    state.push_back({"/model/complex", "", Tensor{"complex64", {500}, floats_.data(), ""}});
    state.push_back({"/model/scalar", "ndarray", Tensor{"int64", {}, floats_.data(), ""}});
    state.push_back({"/model/void", "", Tensor{"float64", {4, 0, 2}, nullptr, ""}});
    state.push_back({"/model/flags", "", Tensor{"bool", {3000}, flags_.data(), ""}});
    state.push_back({"/model/large", "", Tensor{"float32", {1100000}, floats_.data(), ""}});
    return state;
  }

  Status write(const std::string& name, const State& state, WriteOptions options = {}) {
    auto written = write_file(*library_, folder_ + "/" + name, state, options);
    if (!written) return written.error();
    return {};
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string bytes_of_file(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write_bytes(const std::string& name, std::string_view bytes) const {
    std::ofstream(path(name), std::ios::binary | std::ios::trunc) << bytes;
  }
  // Opens a checkpoint and verifies it completely.
  Result<Reader> open_whole(const std::string& name) const {
    auto reader = Reader::open(*library_, path(name));
    if (!reader) return reader;
    HVD_RETURN_IF_ERROR(reader->verify());
    return reader;
  }

  static std::vector<float> numbers(std::size_t count) {
    std::vector<float> all(count);
    for (std::size_t i = 0; i < count; ++i) all[i] = static_cast<float>(i % 4093) * 0.25f;
    return all;
  }

  const hdf5::Library* library_ = nullptr;
  std::vector<float> floats_ = numbers(1100000);
  std::vector<std::uint8_t> flags_ = std::vector<std::uint8_t>(3000, 1);
};

}  // namespace hvd::checkpoint
