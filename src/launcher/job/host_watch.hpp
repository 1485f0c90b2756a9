#pragma once
// Notices what happens to hosts while a job runs: the command that leads to a host has ended, an agent was killed, a
// host is silent.
#include <memory>
#include <string>
#include <vector>

#include "launcher/job/host_links.hpp"
#include "launcher/wire/lifeline.hpp"

namespace hvd::launcher {

struct HostNews {
  enum class Kind {
    complaint,   // ssh, or the shell on the host, has printed a message
    unusable,    // the host will not get ready
    lost,        // the job runs on the host, but the host or its agent gives no sign of life any more
    taken_over,  // the agent of this machine was killed; horovodrun has adopted its children
  };
  Kind kind;
  HostLink* host;
  std::string text;  // the complaint, or the reason
};

class HostWatch {
 public:
  explicit HostWatch(HostLinks& hosts) : hosts_(hosts) {}  // the hosts must outlive this object
  // For jobs on several machines. prepare_order() tells the agents where the lifelines are.
  // `most` hosts if there are fewer, because others may come.
  Status open_lifelines(const NetworkOptions& network, std::size_t most = 0);
  const Lifelines* lifelines() const { return lifelines_.get(); }  // null if the whole job is on this machine
  int descriptor() const { return lifelines_ != nullptr ? lifelines_->descriptor() : -1; }

  // Checks the processes and streams that lead to the hosts. `program` is the program that was to be started there.
  std::vector<HostNews> look_at_links(const std::string& program);
  // Checks the lifelines. What a silent host has sent before is read first: perhaps its agent ended as it should.
  std::vector<HostNews> look_at_lifelines(const HostLinks::OnReport& on_report);

 private:
  HostLinks& hosts_;
  std::unique_ptr<Lifelines> lifelines_;
};

}  // namespace hvd::launcher
