#pragma once
// Removes secrets (keys, tokens and passwords) from texts that users give to others. A secret is recognised by its
// name, or by its own form (secret_forms.hpp).
#include <string>
#include <string_view>
#include <vector>

#include "base/settings/environment.hpp"

namespace hvd::launcher {

// True if a thing of this name is a secret: HOROVOD_SECRET_KEY, AWS_SESSION_TOKEN, db-password.
bool names_a_secret(std::string_view name);

class Secrets {
 public:
  // The values of secret variables in this environment are removed from texts wherever they appear.
  explicit Secrets(const Environment& environment);

  // Returns the text without secrets. It also removes the values in "NAME=value", "name: value" and "--name value" if
  // the name is that of a secret, users and passwords in addresses, and what has the form of a secret.
  std::string taken_out_of(std::string_view text) const;

 private:
  std::vector<std::string> values_;
};

// Returns a line NAME=value for each variable whose name begins with one of `prefixes`, without secrets. With no
// prefixes, returns all variables.
std::string variables_without_secrets(const Environment& environment, const std::vector<std::string_view>& prefixes);

}  // namespace hvd::launcher
