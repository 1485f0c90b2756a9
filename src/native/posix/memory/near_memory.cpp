#include "native/posix/memory/near_memory.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstddef>

namespace hvd::posix {
namespace {

// The C library has no functions for these calls. Kernels have at most so many nodes.
constexpr std::size_t most_nodes = 1024;
constexpr std::size_t bits_of_word = sizeof(unsigned long) * CHAR_BIT;
using Nodes = std::array<unsigned long, most_nodes / bits_of_word>;

// Returns -1 if the kernel does not tell.
int policy_of_thread(Nodes* nodes) noexcept {
  int policy = -1;
  const bool is_told = ::syscall(SYS_get_mempolicy, &policy, nodes == nullptr ? nullptr : nodes->data(),
                                 nodes == nullptr ? 0 : most_nodes, nullptr, 0) == 0;
  return is_told ? policy : -1;
}

}  // namespace

NearMemory::NearMemory(int node) noexcept {
  if (node < 0 || static_cast<std::size_t>(node) >= most_nodes || policy_of_thread(nullptr) != MPOL_DEFAULT) return;
  Nodes nodes{};
  nodes[static_cast<std::size_t>(node) / bits_of_word] = 1UL << (static_cast<std::size_t>(node) % bits_of_word);
  is_set_ = ::syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes.data(), most_nodes) == 0;
}

NearMemory::~NearMemory() {
  if (is_set_) ::syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0);
}

int preferred_memory_node() noexcept {
  Nodes nodes{};
  if (policy_of_thread(&nodes) != MPOL_PREFERRED) return -1;
  for (std::size_t node = 0; node < most_nodes; ++node)
    if ((nodes[node / bits_of_word] >> (node % bits_of_word) & 1) != 0) return static_cast<int>(node);
  return -1;
}

}  // namespace hvd::posix
