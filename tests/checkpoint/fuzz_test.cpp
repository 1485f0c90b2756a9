// Files that were changed by accident or on purpose: the reader refuses them and never crashes.
#include <chrono>
#include <cstdlib>
#include <random>

#include "base/checksums/crc32c.hpp"
#include "checkpoint_files.hpp"

namespace hvd::checkpoint {
namespace {

class FuzzedReader : public WithCheckpoints {
 protected:
  void SetUp() override {
    WithCheckpoints::SetUp();
    if (library_ == nullptr) return;
    State state = everything();
    std::erase_if(state, [](const Entry& entry) { return entry.path == "/model/large"; });
    ASSERT_TRUE(write("whole.h5", state));
    whole_ = bytes_of_file("whole.h5");
  }
  std::size_t below(std::size_t limit) { return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random_); }

  // Computes the checksums again, so that the reader also meets the damage that is behind them.
  static void reseal(std::string& bytes, bool table) {
    if (bytes.size() < header_bytes) return;
    if (table) {
      auto header = decode_header(as_bytes(bytes), "");
      if (header && header->file_bytes <= bytes.size()) {
        std::string_view rows =
            std::string_view(bytes).substr(header->table_offset, header->table_rows * table_row_bytes);
        Header changed = *header;
        changed.table_checksum = crc32c(as_bytes(rows));
        bytes.replace(0, header_bytes, encode(changed));
        return;
      }
    }
    char text[17];
    std::snprintf(text, sizeof text, "crc32c %08x\n",
                  crc32c(as_bytes(std::string_view(bytes).substr(0, header_bytes - 16))));
    bytes.replace(header_bytes - 16, 16, text);
  }

  std::string changed() {
    std::string bytes = whole_;
    std::size_t table = bytes.size() - 2000;
    switch (below(6)) {
      case 0:
        for (std::size_t n = 1 + below(8); n > 0; --n) bytes[below(bytes.size())] = static_cast<char>(below(256));
        break;
      case 1: bytes.resize(below(bytes.size())); break;
      case 2: bytes.insert(below(bytes.size()), std::string(1 + below(600), static_cast<char>(below(256)))); break;
      case 3: bytes.erase(below(bytes.size()), 1 + below(600)); break;
      case 4:
        for (std::size_t n = 1 + below(4); n > 0; --n) bytes[below(250)] = "0123456789-\n x"[below(14)];
        reseal(bytes, false);
        break;
      default: bytes[table + below(2000)] = static_cast<char>(below(256)); reseal(bytes, true);
    }
    return bytes;
  }

  void fuzz(int files, std::chrono::seconds span) {
    auto end = std::chrono::steady_clock::now() + span;
    for (int i = 0; i < files || std::chrono::steady_clock::now() < end; ++i) {
      std::string bytes = changed();
      write_bytes("changed.h5", bytes);
      auto reader = open_whole("changed.h5");
      // A change may have no effect: a byte replaced by itself, or a header field that may have any value.
      EXPECT_TRUE(!reader || bytes.compare(header_bytes, 65536, whole_, header_bytes, 65536) == 0);
    }
  }

  std::mt19937 random_{77};
  std::string whole_;
};

TEST_F(FuzzedReader, refuses_what_was_changed) {
  fuzz(500, std::chrono::seconds(0));
}

// Runs for HVD_FUZZ_SECONDS seconds. The reader was developed with runs of an hour.
TEST_F(FuzzedReader, refuses_what_was_changed_for_long_soak) {
  const char* seconds = std::getenv("HVD_FUZZ_SECONDS");
  random_.seed(static_cast<unsigned>(std::chrono::system_clock::now().time_since_epoch().count()));
  fuzz(1, std::chrono::seconds(seconds == nullptr ? 120 : std::atoi(seconds)));
}

}  // namespace
}  // namespace hvd::checkpoint
