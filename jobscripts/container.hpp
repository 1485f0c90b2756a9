#pragma once
// The words that a job script puts before the command of a rank, so that it runs in an image.
#include <string>
#include <vector>

#include "base/result.hpp"
#include "jobscripts/script.hpp"
#include "jobscripts/site.hpp"

namespace hvd::jobscripts {

// Returns nothing if the job has no image. `exports` are the lines NAME=value of the script.
Result<std::string> container_words(const Site& site, const ScriptRequest& request, bool has_gpus,
                                    const std::vector<std::string>& exports);

}  // namespace hvd::jobscripts
