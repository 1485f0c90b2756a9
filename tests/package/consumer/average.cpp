// The installed package asks the compiler for the C++ standard that horovod.hpp needs; this project does not.
#include <horovod.hpp>
#include <iostream>

int main() {
  horovod::Runtime job;
  float data[3] = {1, 2, 3};
  job.allreduce_op<float>("data", 3, HVD_AVERAGE).start({data, 3}).wait();
  bool is_right = data[0] == 1 && data[1] == 2 && data[2] == 3;
  if (is_right) std::cout << "in C++ it works, too\n";
  return is_right ? 0 : 1;
}
