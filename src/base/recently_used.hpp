#pragma once
// A table that keeps the values that were used last and forgets the rest. Values are found by hash, without a walk.
#include <cstddef>
#include <functional>
#include <list>
#include <unordered_map>
#include <utility>

namespace hvd {

template <typename Key, typename Value, typename Hash = std::hash<Key>>
class RecentlyUsed {
 public:
  explicit RecentlyUsed(std::size_t most) : most_(most) {}

  // Null if it is not there. Valid until the next put() or clear().
  Value* find(const Key& key) {
    auto found = places_.find(key);
    if (found == places_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return &found->second->second;
  }
  // The key must not be there. If there is no room, the value that was not used for longest is removed.
  Value& put(Key key, Value value) {
    if (entries_.size() == most_) {
      places_.erase(entries_.back().first);
      entries_.pop_back();
    }
    entries_.emplace_front(std::move(key), std::move(value));
    places_.emplace(entries_.front().first, entries_.begin());
    return entries_.front().second;
  }
  std::size_t size() const { return entries_.size(); }
  void clear() {
    places_.clear();
    entries_.clear();
  }

 private:
  using Entries = std::list<std::pair<Key, Value>>;
  std::size_t most_;
  Entries entries_;  // latest first
  std::unordered_map<Key, typename Entries::iterator, Hash> places_;
};

// Combines the hashes of several values; the order matters.
inline std::size_t mix_hash(std::size_t seed, std::size_t value) {
  return seed ^ (value + 0x9e3779b97f4a7c15ull + (seed << 6) + (seed >> 2));
}

}  // namespace hvd
