#include "checkpoint_files.hpp"

namespace hvd::checkpoint {
namespace {

class Damage : public WithCheckpoints {
 protected:
  void SetUp() override {
    WithCheckpoints::SetUp();
    if (library_ == nullptr) return;
    ASSERT_TRUE(write("whole.h5", everything()));
    whole_ = bytes_of_file("whole.h5");
  }
  // Opens the changed file. The error message must name the damage in words of our own.
  void expect_refused(std::size_t at) {
    auto reader = open_whole("changed.h5");
    ASSERT_FALSE(reader) << "with a change at byte " << at;
    const std::string& text = reader.error().message;
    EXPECT_TRUE(text.find("is damaged") != text.npos || text.find("no checkpoint of Horovod") != text.npos) << text;
  }
  std::string whole_;
};

TEST_F(Damage, of_any_byte_of_the_header_is_noticed) {
  std::string small = whole_.substr(0, header_bytes);
  for (std::size_t at = 0; at < header_bytes; ++at) {
    std::string changed = small;
    changed[at] = static_cast<char>(changed[at] ^ (1 << at % 8));
    EXPECT_FALSE(decode_header(as_bytes(changed), "changed.h5")) << "byte " << at;
  }
}

TEST_F(Damage, of_any_part_is_noticed_the_structure_before_hdf5_reads_it) {
  State state = everything();
  std::erase_if(state, [](const Entry& entry) { return entry.path == "/model/large"; });
  ASSERT_TRUE(write("changed.h5", state));
  std::string whole = bytes_of_file("changed.h5");
  std::fstream file(path("changed.h5"), std::ios::binary | std::ios::in | std::ios::out);
  auto put = [&](std::size_t at, char byte) {
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte).flush();
  };
  for (std::size_t at = 0; at < whole.size(); at += at < 8192 ? 1 + at % 13 : 397) {
    put(at, static_cast<char>(whole[at] ^ 0x10));
    expect_refused(at);
    put(at, whole[at]);
    if (HasFatalFailure()) return;
  }
  EXPECT_TRUE(open_whole("changed.h5"));
}

TEST_F(Damage, by_an_end_at_any_4_kib_is_noticed) {
  write_bytes("changed.h5", whole_);
  std::filesystem::resize_file(path("changed.h5"), whole_.size() - 1);
  expect_refused(whole_.size() - 1);
  for (std::size_t pages = (whole_.size() - 2) / 4096 + 1; pages-- > 0;) {
    std::filesystem::resize_file(path("changed.h5"), pages * 4096);
    expect_refused(pages * 4096);
    if (HasFatalFailure()) return;
  }
}

TEST_F(Damage, of_a_tensor_is_noticed_when_it_is_read_and_names_it) {
  auto reader = Reader::open(*library_, path("whole.h5"));
  ASSERT_TRUE(reader);
  std::string floats(reinterpret_cast<const char*>(floats_.data()), 8400);
  std::size_t at = whole_.find(floats);
  ASSERT_NE(at, std::string::npos);
  std::vector<std::byte> memory(300 * 7 * 4);
  std::string changed = whole_;
  for (; at != std::string::npos; at = changed.find(floats, at + 1)) changed[at + 4200] ^= 1;
  write_bytes("changed.h5", changed);
  auto opened = Reader::open(*library_, path("changed.h5"));
  ASSERT_TRUE(opened) << opened.error().message;
  auto outcome = opened->read("/model/layer1.weight", memory.data(), memory.size());
  ASSERT_FALSE(outcome);
  EXPECT_NE(outcome.error().message.find("/model/layer1.weight is not what was written"), std::string::npos)
      << outcome.error().message;
}

TEST_F(Damage, of_a_compressed_tensor_after_the_opening_is_no_missing_filter) {
  WriteOptions options;
  options.compression = *compression_of("gzip:1");
  ASSERT_TRUE(write("small.h5", everything(), options));
  auto reader = Reader::open(*library_, path("small.h5"));
  ASSERT_TRUE(reader) << reader.error().message;
  std::vector<std::byte> memory(1100000 * 4);
  ASSERT_TRUE(reader->read("/model/large", memory.data(), memory.size()));
  const std::string whole = bytes_of_file("small.h5");
  {
    std::fstream file(path("small.h5"), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(header_bytes);
    file << std::string(whole.size() - header_bytes, '\xff');
  }
  auto outcome = reader->read("/model/large", memory.data(), memory.size());
  ASSERT_FALSE(outcome);
  EXPECT_NE(outcome.error().message.find("small.h5 is damaged: bytes "), std::string::npos) << outcome.error().message;
}

TEST_F(Damage, is_what_another_kind_of_file_is_not) {
  const struct {
    std::string bytes;
    const char* word;
  } cases[] = {{"", "less than a header"},
               {std::string(4096, 'x'), "no checkpoint of Horovod"},
               {"\x89HDF\r\n\x1a\n" + std::string(4096, '\0'), "an HDF5 file, but"}};
  for (const auto& row : cases) {
    write_bytes("other.h5", row.bytes);
    auto reader = Reader::open(*library_, path("other.h5"));
    ASSERT_FALSE(reader);
    EXPECT_NE(reader.error().message.find(row.word), std::string::npos) << reader.error().message;
  }
  for (const char* where : {"/dev/null", "/dev/zero", "."}) {
    auto reader = Reader::open(*library_, where);
    ASSERT_FALSE(reader);
    EXPECT_EQ(reader.error().code, ErrorCode::invalid_argument) << reader.error().message;
  }
}

TEST_F(Damage, is_not_what_a_newer_layout_is) {
  Header header;
  header.layout = newest_layout + 1;
  header.table_offset = header.file_bytes = header_bytes;
  auto decoded = decode_header(as_bytes(encode(header)), "new.h5");
  ASSERT_FALSE(decoded);
  EXPECT_NE(decoded.error().message.find("a newer Horovod"), std::string::npos) << decoded.error().message;
}

}  // namespace
}  // namespace hvd::checkpoint
