#include "native/posix/memory/shared_memory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <string>

#include "native/posix/memory/available_memory.hpp"

namespace hvd::posix {
namespace {

TEST(SharedMemory, is_zeroed_and_the_same_for_all_who_map_it) {
  auto made = SharedMemory::create("mine", 100'000);
  ASSERT_TRUE(made) << made.error().message;
  auto* bytes = static_cast<char*>(made->data());
  EXPECT_TRUE(std::all_of(bytes, bytes + 100'000, [](char byte) { return byte == 0; }));
  auto mapped = SharedMemory::map(FileDescriptor(::fcntl(made->descriptor(), F_DUPFD_CLOEXEC, 0)), 100'000);
  ASSERT_TRUE(mapped) << mapped.error().message;
  made->give_up_descriptor();
  EXPECT_EQ(made->descriptor(), -1);
  bytes[99'999] = 7;
  EXPECT_EQ(static_cast<char*>(mapped->data())[99'999], 7);
  EXPECT_EQ(mapped->descriptor(), -1);
}

TEST(SharedMemory, shows_its_label_in_proc) {
  auto made = SharedMemory::create("gradients of rank 3", 4096);
  ASSERT_TRUE(made);
  std::ifstream maps("/proc/self/maps");
  std::string all((std::istreambuf_iterator<char>(maps)), std::istreambuf_iterator<char>());
  EXPECT_NE(all.find("memfd:gradients of rank 3"), std::string::npos);
}

TEST(SharedMemory, says_how_much_it_needed_when_there_is_too_little) {
  auto made = SharedMemory::create("huge", std::size_t{1} << 50);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(made.error().message.find("1125899906842624 bytes"), std::string::npos) << made.error().message;
  EXPECT_NE(made.error().message.find("huge"), std::string::npos);
}

TEST(SharedMemory, names_the_limit_of_files_that_it_meets) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit tight{4096, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  auto made = SharedMemory::create("slab", 8192);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(made.error().message.find("\"slab\" needs 8192 bytes"), std::string::npos) << made.error().message;
  EXPECT_NE(made.error().message.find("ulimit -f"), std::string::npos) << made.error().message;
}

TEST(SharedMemory, refuses_to_map_another_size_than_was_made) {
  auto made = SharedMemory::create("mine", 8192);
  ASSERT_TRUE(made);
  auto mapped = SharedMemory::map(FileDescriptor(::fcntl(made->descriptor(), F_DUPFD_CLOEXEC, 0)), 4096);
  ASSERT_FALSE(mapped);
  EXPECT_EQ(mapped.error().code, ErrorCode::mismatch);
}

TEST(SharedMemory, cannot_be_made_smaller_by_those_who_got_it) {
  auto made = SharedMemory::create("mine", 8192);
  ASSERT_TRUE(made);
  EXPECT_NE(::ftruncate(made->descriptor(), 0), 0);
  EXPECT_EQ(errno, EPERM);
}

TEST(SharedMemory, unmaps_and_closes_once_when_it_is_moved) {
  auto made = SharedMemory::create("mine", 4096);
  ASSERT_TRUE(made);
  int descriptor = made->descriptor();
  {
    SharedMemory other = std::move(*made);
    EXPECT_EQ(made->data(), nullptr);  // NOLINT(bugprone-use-after-move): this is tested
    SharedMemory third;
    third = std::move(other);
    EXPECT_NE(third.data(), nullptr);
    EXPECT_NE(::fcntl(descriptor, F_GETFD), -1);
  }
  EXPECT_EQ(::fcntl(descriptor, F_GETFD), -1);
}

TEST(SharedMemory, becomes_private_page_by_page_with_what_is_in_it) {
  auto made = SharedMemory::create("mine", 3 * 4096);
  ASSERT_TRUE(made);
  auto other = SharedMemory::map(FileDescriptor(::dup(made->descriptor())), 3 * 4096);
  ASSERT_TRUE(other);
  auto* mine = static_cast<char*>(made->data());
  auto* theirs = static_cast<char*>(other->data());
  mine[4096] = 'm';
  ASSERT_TRUE(make_private(mine + 4096, 4096));
  EXPECT_EQ(mine[4096], 'm');
  theirs[4095] = theirs[4096] = theirs[8192] = 't';
  EXPECT_EQ(mine[4095], 't');
  EXPECT_EQ(mine[4096], 'm') << "others write to it no longer";
  EXPECT_EQ(mine[8192], 't');
  mine[4096] = 'n';
  EXPECT_EQ(theirs[4096], 't');
}

TEST(AvailableMemory, is_less_than_the_machine_has) {
  AvailableMemory available = available_memory();
  auto pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  EXPECT_GT(available.bytes, 0);
  EXPECT_LE(available.bytes, static_cast<std::int64_t>(pages) * page);
}

}  // namespace
}  // namespace hvd::posix
