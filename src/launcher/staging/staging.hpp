#pragma once
// `horovodrun --stage`: before the job, a run of stagers in the place of its ranks brings the environment to all nodes,
// by the same launcher to the same nodes. With --stage-remove another run removes it afterwards.
#include <span>
#include <string>

#include "base/environment.hpp"
#include "base/result.hpp"
#include "launcher/options/flags.hpp"

namespace hvd::launcher::staging {

// `arguments` are those of this horovodrun before the command. Lets flags.command run in the staged environment. The
// caller has a single thread. What stagers complain of is on standard error by then.
Status stage(Flags& flags, const Environment& environment, std::span<char* const> arguments);
// Fails if some node could not be asked; the job is over then anyway.
Status remove_staged(const Flags& flags, const Environment& environment, std::span<char* const> arguments);

}  // namespace hvd::launcher::staging
