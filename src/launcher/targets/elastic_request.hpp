#pragma once
// What the user asks for by the flags of elastic jobs.
#include <functional>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "launcher/job/job_options.hpp"
#include "launcher/targets/target.hpp"

namespace hvd::launcher {

// True if the ranks are to come and go.
bool is_elastic(const Flags& flags);
// The numbers of ranks and the limits. Fails if they contradict each other, or if a setting is in the way.
Result<Membership::Settings> elastic_settings(const JobRequest& request);
// For ElasticOptions::ask_for_end_of_job_around; empty where nobody can be asked.
std::function<std::string()> question_about_job_around(const JobRequest& request);
// Why a target that leaves the start of ranks to a site's launcher cannot be used.
Error not_elastic(const Target& target, const std::string& why);

}  // namespace hvd::launcher
