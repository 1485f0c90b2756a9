#pragma once
// A program of the system that reads its standard input from us: tar, gzip.
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "native/posix/file_descriptor.hpp"

namespace hvd::launcher::staging {

class FilterProcess {
 public:
  // Found along PATH; the error names the program if it is absent. With `has_output` its standard output comes back,
  // without blocking us; else it goes nowhere.
  static Result<FilterProcess> start(const std::vector<std::string>& command, bool has_output);
  FilterProcess(FilterProcess&& other) noexcept;
  FilterProcess& operator=(FilterProcess&&) = delete;
  ~FilterProcess();  // kills it if it has not ended

  int input() const { return input_.get(); }
  int output() const { return output_.get(); }
  void make_input_non_blocking() const;
  bool write(ConstBytes bytes) const;  // blocking, all of it; false if the program does not read any more
  void close_input() { input_.reset(); }
  // Waits for its end. Empty if it exited with 0; else the last line of what it complained of.
  std::string end();

 private:
  FilterProcess() = default;
  std::string complaint() const;
  std::string name_;
  pid_t process_ = 0;
  posix::FileDescriptor input_, output_, errors_;
};

}  // namespace hvd::launcher::staging
