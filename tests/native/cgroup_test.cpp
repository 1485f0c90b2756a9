#include "native/posix/machine/cgroup.hpp"

#include "in_own_folder.hpp"

namespace hvd::posix {
namespace {

// Tests with a made-up /proc and /sys/fs/cgroup.
using MemoryGroupFiles = testing::InOwnFolder;

TEST_F(MemoryGroupFiles, of_version_1_are_read_with_the_smallest_limit_above) {
  write("/proc/self/cgroup", "5:cpu:/a\n4:memory:/slurm/job_7\n0::/\n");
  write("/proc/self/mountinfo", "30 25 0:26 / /sys/fs/cgroup/memory rw,relatime shared:11 - cgroup cgroup rw,memory\n");
  write("/sys/fs/cgroup/memory/slurm/job_7/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  write("/sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "9223372036854771712\n");
  write("/sys/fs/cgroup/memory/slurm/memory.limit_in_bytes", "4294967296\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "8589934592\n");
  auto group = read_memory_group(folder_);
  ASSERT_TRUE(group);
  EXPECT_EQ(group->path, "/slurm/job_7");
  EXPECT_EQ(group->oom_kills, 3u);
  EXPECT_EQ(group->limit_bytes, 4294967296u);
}

TEST_F(MemoryGroupFiles, of_version_2_are_read_below_what_a_container_sees) {
  write("/proc/self/cgroup", "0::/pods/p1/c1\n");
  write("/proc/self/mountinfo", "30 25 0:26 /pods/p1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write("/sys/fs/cgroup/c1/memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\n");
  write("/sys/fs/cgroup/c1/memory.max", "max\n");
  auto group = read_memory_group(folder_);
  ASSERT_TRUE(group);
  EXPECT_EQ(group->oom_kills, 1u);
  EXPECT_FALSE(group->limit_bytes);
}

TEST_F(MemoryGroupFiles, that_are_missing_or_do_not_count_are_no_group) {
  EXPECT_FALSE(read_memory_group(folder_));
  write("/proc/self/cgroup", "4:memory:/\n");
  write("/proc/self/mountinfo", "30 25 0:26 / /mem rw - cgroup cgroup rw,memory\n");
  write("/mem/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n");
  EXPECT_FALSE(read_memory_group(folder_));
}

}  // namespace
}  // namespace hvd::posix
