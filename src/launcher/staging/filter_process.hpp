#pragma once
// A program of the system, such as tar or gzip, that reads its standard input from us.
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::launcher::staging {

class FilterProcess {
 public:
  // Starts the program, which is looked for along PATH. If it is missing, the error names it. With `has_output` its
  // standard output can be read from output(), without blocking; otherwise it is thrown away.
  static Result<FilterProcess> start(const std::vector<std::string>& command, bool has_output);
  FilterProcess(FilterProcess&& other) noexcept;
  FilterProcess& operator=(FilterProcess&&) = delete;
  ~FilterProcess();  // kills the program if it has not ended

  int input() const { return input_.get(); }
  int output() const { return output_.get(); }
  void make_input_non_blocking() const;
  bool write(ConstBytes bytes) const;  // blocks until all bytes are written; false if the program does not read any
                                       // more
  void close_input() { input_.reset(); }
  // Waits for the end of the program. Returns an empty text if it exited with 0, otherwise its error message.
  std::string end();

 private:
  FilterProcess() = default;
  std::string complaint() const;
  std::string name_;
  pid_t process_ = 0;
  posix::FileDescriptor input_, output_, errors_;
};

}  // namespace hvd::launcher::staging
