#pragma once
// The key-value store of a job that has only one rank.
#include <map>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"

namespace hvd::bootstrap {

class OwnValues {
 public:
  Status put(std::string_view key, ConstBytes value) {
    if (values_.try_emplace(std::string(key), value.begin(), value.end()).second) return {};
    return Error(ErrorCode::invalid_argument, "\"" + std::string(key) + "\" was put already; a key is used once");
  }
  Result<Buffer> get(Rank from, std::string_view key) const {
    auto found = values_.find(key);
    if (from == Rank{0} && found != values_.end()) return found->second;
    return Error(ErrorCode::invalid_argument, "rank " + std::to_string(from.value) + " has not put \"" +
                                                  std::string(key) + "\" (the job has 1 rank)");
  }

 private:
  std::map<std::string, Buffer, std::less<>> values_;
};

}  // namespace hvd::bootstrap
