#pragma once
// The functions of libhorovod_nccl.so: posix::open_plugin<over_nccl::Plugin>("nccl", environment).
#include <memory>
#include <string>

#include "devices/device.hpp"
#include "native/posix/plugins/plugin.hpp"
#include "transport/nccl/card.hpp"
#include "transport/transport.hpp"

namespace hvd::transport::over_nccl {

// A rank's part in a link that may be made. It belongs to the engine's thread.
class Candidate {
 public:
  virtual ~Candidate() = default;
  // Null while this rank's card is being made. The wake word is posted when it is there.
  virtual const Card* card() = 0;
  // What the user should know once in a process: an information and, if it is not empty, a warning.
  struct News {
    std::string information, warning;
  };
  virtual News news() const = 0;
  // Call it once, with an agreement without a refusal. NCCL makes its communicator when the first task is planned.
  virtual std::unique_ptr<Link> make_link(const Agreement& agreement) = 0;
};

struct Plugin {
  posix::PluginStamp stamp;
  // The device is open and outlives the candidate and its link. `name` is that of the link.
  std::unique_ptr<Candidate> (*apply)(const Surroundings& surroundings, devices::Device& device, const Group& group,
                                      std::string_view name);
};

}  // namespace hvd::transport::over_nccl
