#include <cstring>
#include <map>
#include <set>
#include <variant>

#include "checkpoint/element_type.hpp"
#include "checkpoint/hdf5_types.hpp"
#include "checkpoint/structure.hpp"
#include "checkpoint_files.hpp"
#include "native/hdf5/handle.hpp"

namespace hvd::checkpoint {
namespace {

class RoundTrip : public WithCheckpoints {
 protected:
  void expect_equal(const Reader& reader, const State& state) {
    EXPECT_EQ(reader.state().size(), state.size());
    for (const Entry& wanted : state) {
      const Entry* found = reader.find(wanted.path);
      ASSERT_NE(found, nullptr) << wanted.path;
      EXPECT_EQ(found->kind, wanted.kind) << wanted.path;
      const auto* tensor = std::get_if<Tensor>(&wanted.content);
      if (tensor == nullptr) {
        EXPECT_TRUE(found->content == wanted.content) << wanted.path;
        continue;
      }
      Tensor described = *tensor;
      described.data = nullptr;
      EXPECT_TRUE(found->content == Content(described)) << wanted.path;
      auto bytes = static_cast<std::size_t>(*checkpoint::bytes_of(*tensor));
      std::vector<std::byte> read(bytes);
      auto outcome = reader.read(wanted.path, read.data(), bytes);
      ASSERT_TRUE(outcome) << outcome.error().message;
      EXPECT_TRUE(bytes == 0 || std::memcmp(read.data(), tensor->data, bytes) == 0) << wanted.path;
    }
  }
};

TEST_F(RoundTrip, gives_back_every_kind_of_entry) {
  State state = everything();
  std::set<std::size_t> kinds;
  for (const Entry& entry : state) kinds.insert(entry.content.index());
  ASSERT_EQ(kinds.size(), std::variant_size_v<Content>);
  WriteOptions options;
  options.step = 1200;
  options.sequence = 7;
  auto outcome = write("all.h5", state, options);
  ASSERT_TRUE(outcome) << outcome.error().message;
  auto reader = open_whole("all.h5");
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(reader->header().step, 1200);
  EXPECT_EQ(reader->header().sequence, 7);
  expect_equal(*reader, state);
}

// Other programs write unsigned integers, also with an attribute `kind`. We write those above 2^63 - 1 as text of the
// kind "int".
TEST_F(RoundTrip, reads_unsigned_integers_that_do_not_fit_as_large_ones) {
  using hdf5::Handle;
  const hdf5::Calls& calls = library_->calls;
  const std::map<std::string, std::uint64_t> values = {
      {"small", 7}, {"most", ~std::uint64_t{0} >> 1}, {"large", ~std::uint64_t{0}}, {"kind", ~std::uint64_t{0}}};
  {
    hdf5::Section section(*library_);
    Handle file(calls.H5Fcreate(path("foreign.h5").c_str(), hdf5::create_or_empty, hdf5::plain, hdf5::plain),
                calls.H5Fclose);
    Handle space(calls.H5Screate(hdf5::scalar_space), calls.H5Sclose);
    for (const auto& [name, value] : values) {
      Handle attribute(calls.H5Acreate2(file.get(), name.c_str(), calls.u64, space.get(), hdf5::plain, hdf5::plain),
                       calls.H5Aclose);
      ASSERT_GE(calls.H5Awrite(attribute.get(), calls.u64, &value), 0);
    }
    std::int64_t negative = -7;
    Handle attribute(calls.H5Acreate2(file.get(), "negative", calls.i64, space.get(), hdf5::plain, hdf5::plain),
                     calls.H5Aclose);
    ASSERT_GE(calls.H5Awrite(attribute.get(), calls.i64, &negative), 0);
    Handle dataset(
        calls.H5Dcreate2(file.get(), "counter", calls.u64, space.get(), hdf5::plain, hdf5::plain, hdf5::plain),
        calls.H5Dclose);
    ASSERT_GE(calls.H5Dwrite(dataset.get(), calls.u64, hdf5::whole, hdf5::whole, hdf5::plain, &values.at("large")), 0);
    auto types = Hdf5Types::make(*library_);
    ASSERT_TRUE(types) << types.error().message;
    Handle kind(calls.H5Acreate2(dataset.get(), "kind", types->text(), space.get(), hdf5::plain, hdf5::plain),
                calls.H5Aclose);
    const char* text = "counter";
    ASSERT_GE(calls.H5Awrite(kind.get(), types->text(), &text), 0);
  }
  auto read = read_structure(*library_, path("foreign.h5"), "foreign.h5");
  ASSERT_TRUE(read) << read.error().message;
  State wanted = {{"/", "", Group{}},
                  {"/counter", "int", std::string("18446744073709551615")},
                  {"/large", "int", std::string("18446744073709551615")},
                  {"/most", "", std::int64_t{9223372036854775807}},
                  {"/negative", "", std::int64_t{-7}},
                  {"/small", "", std::int64_t{7}}};
  EXPECT_EQ(read->state, wanted);
}

TEST_F(RoundTrip, gives_back_what_was_compressed) {
  State state = everything();
  ASSERT_TRUE(write("plain.h5", state));
  WriteOptions options;
  options.compression = *compression_of("gzip:1");
  auto outcome = write("small.h5", state, options);
  ASSERT_TRUE(outcome) << outcome.error().message;
  auto reader = open_whole("small.h5");
  ASSERT_TRUE(reader) << reader.error().message;
  expect_equal(*reader, state);
  EXPECT_LT(bytes_of_file("small.h5").size() * 3, bytes_of_file("plain.h5").size());
}

TEST_F(RoundTrip, gives_back_every_type_of_element) {
  State state = {{"/", "", Group{}}};
  std::string names = element_type_names();
  for (std::size_t at = 0; at < names.size();) {
    std::string name = names.substr(at, names.find(", ", at) - at);
    for (std::int64_t extent : {1, 5, 1500})
      state.push_back(
          {"/" + name + "." + std::to_string(extent), "",
           Tensor{name, {extent}, name == "bool" ? static_cast<const void*>(flags_.data()) : floats_.data(), ""}});
    at += name.size() + 2;
  }
  for (const char* compression : {"none", "gzip"}) {
    WriteOptions options;
    options.compression = *compression_of(compression);
    auto outcome = write("types.h5", state, options);
    ASSERT_TRUE(outcome) << outcome.error().message;
    auto reader = open_whole("types.h5");
    ASSERT_TRUE(reader) << reader.error().message;
    expect_equal(*reader, state);
  }
}

TEST_F(RoundTrip, gives_back_very_many_entries) {
  State state = {{"/", "", Group{}}, {"/list", "list", Group{}}};
  for (int i = 0; i < 1000; ++i) {
    state.push_back({"/list/" + std::to_string(i), "", std::int64_t{i} * i});
    state.push_back({"/tensor." + std::to_string(i), "", Tensor{"float32", {i % 500}, floats_.data(), ""}});
  }
  auto outcome = write("many.h5", state);
  ASSERT_TRUE(outcome) << outcome.error().message;
  auto reader = open_whole("many.h5");
  ASSERT_TRUE(reader) << reader.error().message;
  expect_equal(*reader, state);
}

TEST(Escape, is_undone_by_unescape_and_leaves_no_slash) {
  for (std::string name : {"layer1.weight", "a/b", "/", "//", "", ".", "..", "%2F", "100%", "kind", "dtype", "unit",
                           "größe", "with blank", "%", "a%", "a.b/c.d"}) {
    EXPECT_EQ(unescape(escape(name)), name);
    EXPECT_EQ(escape(name).find('/'), std::string::npos) << name;
    EXPECT_FALSE(escape(name).empty());
  }
  EXPECT_EQ(escape("layer1.weight"), "layer1.weight");
  EXPECT_EQ(unescape(escape(std::string("a\0b", 3))), std::string("a\0b", 3));
}

TEST_F(RoundTrip, refuses_a_state_that_cannot_be_written) {
  const struct {
    State state;
    const char* word;
  } cases[] = {
      {{{"model", "", Group{}}}, "no path"},
      {{{"/a//b", "", Group{}}}, "no path"},
      {{{"/a", "", Group{}}, {"/a", "", true}}, "twice"},
      {{{"/a/b", "", true}}, "missing"},
      {{{"/a", "", true}, {"/a/b", "", true}}, "no group"},
      {{{"/kind", "", true}}, "reserved"},
      {{{"/t", "", Tensor{"float33", {1}, floats_.data(), ""}}}, "float33"},
      {{{"/t", "", Tensor{"float32", {-1}, floats_.data(), ""}}}, "-1"},
      {{{"/t", "", Tensor{"float32", {1ll << 40, 1ll << 40}, floats_.data(), ""}}}, "2^63"},
      {{{"/t", "", Tensor{"float32", std::vector<std::int64_t>(33, 1), floats_.data(), ""}}}, "33 dimensions"},
      {{{"/t", "", Tensor{"float32", {1}, nullptr, ""}}}, "no memory"},
      {{{"/t", "", std::string("a\0b", 3)}}, "zero byte"},
  };
  for (const auto& row : cases) {
    auto outcome = write("never.h5", row.state);
    ASSERT_FALSE(outcome) << row.word;
    EXPECT_NE(outcome.error().message.find(row.word), std::string::npos) << outcome.error().message;
  }
  EXPECT_TRUE(bytes_of_file("never.h5").empty());
}

TEST(Compression, is_read_from_text_and_refused_by_name) {
  EXPECT_EQ(compression_of("gzip:6")->level, 6);
  EXPECT_EQ(compression_of("zstd")->method, Compression::Method::zstd);
  for (const char* text : {"zip", "gzip:10", "gzip:", "lz4:1", "zstd:x"}) {
    auto refused = compression_of(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_NE(refused.error().message.find(text), std::string::npos) << refused.error().message;
  }
}

TEST_F(RoundTrip, names_a_filter_that_is_not_there) {
  WriteOptions options;
  options.compression = *compression_of("zstd");
  auto outcome = write("zstd.h5", everything(), options);
  if (outcome) GTEST_SKIP() << "this HDF5 has the filter";
  EXPECT_NE(outcome.error().message.find("no filter zstd"), std::string::npos) << outcome.error().message;
}

}  // namespace
}  // namespace hvd::checkpoint
