#pragma once
// Notices what becomes of the hosts while a job runs: that what leads to one has ended, that an agent was killed, that
// a host is silent.
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
    lost,        // the job is under way there, and nobody is heard any more
    taken_over,  // this machine's agent was killed: what it had started is ours now
  };
  Kind kind;
  HostLink* host;
  std::string text;  // the complaint, or why
};

class HostWatch {
 public:
  explicit HostWatch(HostLinks& hosts) : hosts_(hosts) {}  // which outlive this
  // For jobs on several machines; prepare_order() tells the agents of them.
  Status open_lifelines(const NetworkOptions& network);
  const Lifelines* lifelines() const { return lifelines_.get(); }  // null: all is on this machine
  int descriptor() const { return lifelines_ != nullptr ? lifelines_->descriptor() : -1; }

  // By what leads to the hosts: their processes and streams. `program` is what was to be started there.
  std::vector<HostNews> look_at_links(const std::string& program);
  // By the lifelines. Of a host that is silent the last words are heard first: perhaps it ended as it should.
  std::vector<HostNews> look_at_lifelines(const HostLinks::Hear& hear);

 private:
  HostLinks& hosts_;
  std::unique_ptr<Lifelines> lifelines_;
};

}  // namespace hvd::launcher
