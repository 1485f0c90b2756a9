#pragma once
// A table of limited size that keeps the values used most recently. A value is found by its hash.
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

  // Returns null if the key is not there. The pointer is valid until the next put() or clear().
  Value* find(const Key& key) {
    auto found = places_.find(key);
    if (found == places_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return &found->second->second;
  }
  // The key must not be in the table yet. If the table is full, the value that was unused for the longest time is
  // removed.
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
  Entries entries_;  // most recently used first
  std::unordered_map<Key, typename Entries::iterator, Hash> places_;
};

// Combines the hashes of several values. The result depends on their order.
inline std::size_t mix_hash(std::size_t seed, std::size_t value) {
  return seed ^ (value + 0x9e3779b97f4a7c15ull + (seed << 6) + (seed >> 2));
}

}  // namespace hvd
