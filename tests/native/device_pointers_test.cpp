#include "native/mpi/device_pointers.hpp"

#include <gtest/gtest.h>

#include <map>

namespace hvd::mpi {
namespace {

template <int Answer>
int says() {
  return Answer;
}
template <int Code, int Answer>
int finds(int kind, int* is_supported) {
  *is_supported = kind == 0 ? Answer : 0;
  return Code;
}

DevicePointers ask(std::map<std::string, void*> functions) {
  return device_pointers([&](const char* name) { return functions[name]; });
}

TEST(DevicePointers, are_what_the_mpi_says) {
  for (int answer : {0, 1}) {
    int (*one)() = answer == 1 ? &says<1> : &says<0>;
    const DevicePointers found = ask({{"MPIX_Query_cuda_support", reinterpret_cast<void*>(one)}});
    EXPECT_EQ(found.are_taken, answer == 1);
    EXPECT_EQ(found.why, std::string("MPIX_Query_cuda_support() says ") + (answer == 1 ? "yes" : "no"));
  }
  int (*yes)(int, int*) = &finds<0, 1>;
  int (*no)(int, int*) = &finds<0, 0>;
  int (*fails)(int, int*) = &finds<5, 1>;
  EXPECT_TRUE(ask({{"MPIX_GPU_query_support", reinterpret_cast<void*>(yes)}}).are_taken);
  EXPECT_FALSE(ask({{"MPIX_GPU_query_support", reinterpret_cast<void*>(no)}}).are_taken);
  EXPECT_FALSE(ask({{"MPIX_GPU_query_support", reinterpret_cast<void*>(fails)}}).are_taken);
}

TEST(DevicePointers, are_not_taken_by_an_mpi_without_such_a_function) {
  const DevicePointers found = ask({});
  EXPECT_FALSE(found.are_taken);
  EXPECT_EQ(found.why, "it has neither MPIX_Query_cuda_support() nor MPIX_GPU_query_support()");
}

TEST(DevicePointers, are_looked_up_in_the_library_of_the_function) {
  EXPECT_FALSE(device_pointers_of(reinterpret_cast<const void*>(&says<1>)).are_taken);
}

}  // namespace
}  // namespace hvd::mpi
