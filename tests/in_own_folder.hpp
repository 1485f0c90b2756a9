#pragma once
// Tests that each have their own folder, which is removed at the end of the test.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace hvd::testing {

class InOwnFolder : public ::testing::Test {
 protected:
  InOwnFolder() {
    if (::mkdtemp(folder_.data()) == nullptr) throw std::system_error(errno, std::generic_category(), folder_);
  }
  ~InOwnFolder() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::path file = folder_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  std::string folder_ = ::testing::TempDir() + "horovod-test-XXXXXX";
};

}  // namespace hvd::testing
