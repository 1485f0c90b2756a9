#pragma once
// The words by which the members of a process set make their links. A word is sent to the coordinator and comes back in
// the log.
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/agreement/schedule.hpp"
#include "transport/transport.hpp"

namespace hvd::runtime {

class LogExchange final : public transport::Exchange {
 public:
  using Send = std::function<void(const Request&)>;
  LogExchange(ProcessSetId set, Send send) : set_(set), send_(std::move(send)) {}

  // Takes a word that was read in the log.
  void published(const PublishedRecord& record) {
    if (!is_over_) words_[{record.by, std::string(record.key)}] = Buffer(record.value.begin(), record.value.end());
  }
  // Call it when the links are made. Words that come later belong to other exchanges.
  void end() {
    is_over_ = true;
    words_.clear();
  }

  Status put(std::string_view key, ConstBytes value) override {
    send_(PublishRequest{set_, key, value});
    return {};
  }
  Result<bool> get(Rank from, std::string_view key, Buffer& value) override {
    auto found = words_.find({from, std::string(key)});
    if (found == words_.end()) return false;
    value = found->second;
    return true;
  }

 private:
  const ProcessSetId set_;
  const Send send_;
  std::map<std::pair<Rank, std::string>, Buffer> words_;
  bool is_over_ = false;
};

}  // namespace hvd::runtime
