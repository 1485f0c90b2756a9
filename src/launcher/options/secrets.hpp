#pragma once
// Takes secrets out of texts that a user hands to others: keys, tokens and passwords, by the names that they have.
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.hpp"

namespace hvd::launcher {

// Whether what has this name is nobody's business: HOROVOD_SECRET_KEY, AWS_SESSION_TOKEN, db-password.
bool names_a_secret(std::string_view name);

class Secrets {
 public:
  // The secrets of this environment are taken out wherever they appear.
  explicit Secrets(const Environment& environment);

  // Also "NAME=value", "name: value", "--name value" with such a name, and users and passwords in addresses.
  std::string taken_out_of(std::string_view text) const;

 private:
  std::vector<std::string> values_;
};

// A line NAME=value for each variable whose name begins with one of `prefixes` (all, if there are none).
std::string variables_without_secrets(const Environment& environment, const std::vector<std::string_view>& prefixes);

}  // namespace hvd::launcher
