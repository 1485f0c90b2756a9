#pragma once
// Secrets that are known by their own form, without a name before them: private keys, tokens with a known beginning,
// addresses of webhooks, what follows `curl -u`.
#include <string>

namespace hvd::launcher {

inline constexpr std::string_view hidden_secret = "(not shown)";

// Hides what is between BEGIN … PRIVATE KEY and its END. If one of the two is missing, the text is cut there.
void hide_private_keys(std::string& text);
void hide_known_forms(std::string& line);

}  // namespace hvd::launcher
