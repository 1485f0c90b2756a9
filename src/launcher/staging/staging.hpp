#pragma once
// `horovodrun --stage`: brings a Python environment to all nodes before the job. For this it runs stagers instead of
// the ranks, by the same launcher and on the same nodes. With --stage-remove a second run removes the environment after
// the job.
#include <span>
#include <string>

#include "base/result.hpp"
#include "base/settings/environment.hpp"
#include "launcher/options/flags.hpp"

namespace hvd::launcher::staging {

// `arguments` are those of this horovodrun, without the user's command. Changes flags.command so that it runs in the
// staged environment. The caller has a single thread. When this function fails, the stagers' error messages are on
// standard error already.
Status stage(Flags& flags, const Environment& environment, std::span<char* const> arguments);
// Fails if the environment could not be removed from some node. The job has ended by then, so this does not change its
// result.
Status remove_staged(const Flags& flags, const Environment& environment, std::span<char* const> arguments);

}  // namespace hvd::launcher::staging
