#include "native/posix/memory/near_memory.hpp"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "in_own_folder.hpp"
#include "native/cuda/memory_node.hpp"

namespace hvd {
namespace {

class MemoryNextToAGpu : public testing::InOwnFolder {
 protected:
  void add_gpu(const std::string& bus_id, const std::string& node) const {
    write("sys/bus/pci/devices/" + bus_id + "/numa_node", node + "\n");
  }
  int node_of(const std::string& bus_id) const { return cuda::memory_node_of(bus_id, folder_); }
};

// Two sockets with two GPUs each; POWER counts the nodes of its second socket from 8 on.
TEST_F(MemoryNextToAGpu, is_that_of_its_socket) {
  for (const char* one : {"0004:04:00.0", "0004:05:00.0"}) add_gpu(one, "0");
  for (const char* one : {"0035:03:00.0", "0035:04:00.0"}) add_gpu(one, "8");
  EXPECT_EQ(node_of("0004:04:00.0"), 0);
  EXPECT_EQ(node_of("0004:05:00.0"), 0);
  EXPECT_EQ(node_of("0035:03:00.0"), 8);
  EXPECT_EQ(node_of("0035:04:00.0"), 8);
}

TEST_F(MemoryNextToAGpu, is_not_known_where_the_kernel_does_not_tell) {
  add_gpu("0000:07:00.0", "-1");
  add_gpu("0000:08:00.0", "no number");
  for (const char* one : {"0000:07:00.0", "0000:08:00.0", "0000:09:00.0", ""}) EXPECT_EQ(node_of(one), -1) << one;
}

// Node 0 is on every machine. The policy of the test's own thread stays as it is; a new thread inherits it.
TEST(NearMemory, is_asked_for_while_it_lives_and_not_where_there_is_no_such_node) {
  std::thread([] {
    if (posix::preferred_memory_node() != -1) GTEST_SKIP() << "the tests run with a policy of memory";
    {
      const posix::NearMemory near(0);
      if (posix::preferred_memory_node() == -1)
        GTEST_SKIP() << "the kernel, or a container, refuses policies of memory";
      EXPECT_EQ(posix::preferred_memory_node(), 0);
      const posix::NearMemory other(-1);
      EXPECT_EQ(posix::preferred_memory_node(), 0);
      const posix::NearMemory inner(0);  // there is a policy, which stays
    }
    EXPECT_EQ(posix::preferred_memory_node(), -1);
    for (int node : {-1, 1000, 5000}) {
      const posix::NearMemory none(node);
      EXPECT_EQ(posix::preferred_memory_node(), -1) << node;
    }
  }).join();
}

}  // namespace
}  // namespace hvd
