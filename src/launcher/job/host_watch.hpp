#pragma once
// Notices what happens to hosts while a job runs: the command that leads to one has ended, an agent was killed, a
// host is silent.
#include <memory>
#include <string>
#include <vector>

#include "launcher/job/host_links.hpp"
#include "launcher/wire/lifeline.hpp"

namespace hvd::launcher {

struct HostNews {
  enum class Kind {
    complaint,   // of ssh or the shell there
    unusable,    // it will not be ready
    lost,        // the job runs there, and its agent or host is not heard any more
    taken_over,  // this machine's agent was killed: horovodrun has adopted what it had started
  };
  Kind kind;
  HostLink* host;
  std::string text;  // the complaint, or why
};

class HostWatch {
 public:
  explicit HostWatch(HostLinks& hosts) : hosts_(hosts) {}  // they outlive this
  // For jobs on several machines; prepare_order() tells the agents of them.
  Status open_lifelines(const NetworkOptions& network);
  const Lifelines* lifelines() const { return lifelines_.get(); }  // null: all is on this machine
  int descriptor() const { return lifelines_ != nullptr ? lifelines_->descriptor() : -1; }

  // Looks at the processes and streams that lead to the hosts. `program` is what was to be started there.
  std::vector<HostNews> look_at_links(const std::string& program);
  // Looks at the lifelines. What a silent host said last is heard first: perhaps its agent ended as it should.
  std::vector<HostNews> look_at_lifelines(const HostLinks::Hear& hear);

 private:
  HostLinks& hosts_;
  std::unique_ptr<Lifelines> lifelines_;
};

}  // namespace hvd::launcher
