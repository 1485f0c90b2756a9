#pragma once
// Asks a question on a thread of its own, because the program that answers it may take long or never end. A thread that
// has no answer yet is left behind at the end of the process.
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace hvd::launcher {

class Question {
 public:
  // False if a question is under way. Where no thread can be made, the answer is empty.
  bool begin(std::function<std::string()> ask);
  bool is_under_way() const { return answer_ != nullptr; }
  // Returns the answer once.
  std::optional<std::string> take();

 private:
  struct Answer;
  std::shared_ptr<Answer> answer_;
};

}  // namespace hvd::launcher
