#include "launcher/job/question.hpp"

#include <atomic>
#include <utility>

#include "native/posix/processes/thread.hpp"

namespace hvd::launcher {

struct Question::Answer {
  std::string text;
  std::atomic<bool> is_there = false;
};

bool Question::begin(std::function<std::string()> ask) {
  if (answer_) return false;
  answer_ = std::make_shared<Answer>();
  auto thread = posix::start_thread("hvd-question", [answer = answer_, ask = std::move(ask)] {
    answer->text = ask();
    answer->is_there = true;
  });
  if (thread) thread->detach();
  else answer_->is_there = true;
  return true;
}

std::optional<std::string> Question::take() {
  if (!answer_ || !answer_->is_there) return std::nullopt;
  return std::move(std::exchange(answer_, nullptr)->text);
}

}  // namespace hvd::launcher
