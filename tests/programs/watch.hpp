#pragma once
// Notes what every thread of every rank is doing, and the faults that were found. If nothing moves for too long, the
// watch prints all of this and ends the process, because nobody can wait for a rank that hangs.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace hvd::programs {

// The current activity of one thread of a rank. The thread writes it, the watch reads it.
class Place {
 public:
  Place(std::string who, std::atomic<std::uint64_t>& moves) : who_(std::move(who)), moves_(moves) {}
  void is_at(int phase, int step) {
    std::lock_guard lock(mutex_);
    phase_ = phase;
    step_ = step;
  }
  // `doing` must be a constant. `what` must live until the next call.
  void does(const char* doing, const std::string* what = nullptr) {
    moves_.fetch_add(1, std::memory_order_relaxed);
    std::lock_guard lock(mutex_);
    doing_ = doing;
    what_ = what;
  }
  std::string text() const {
    std::lock_guard lock(mutex_);
    std::string text = who_ + ": phase " + std::to_string(phase_) + ", step " + std::to_string(step_) + ": " + doing_;
    return what_ == nullptr ? text : text + " '" + what_->substr(0, 60) + "'";
  }

 private:
  std::string who_;
  std::atomic<std::uint64_t>& moves_;
  mutable std::mutex mutex_;
  int phase_ = -1, step_ = -1;
  const char* doing_ = "starts";
  const std::string* what_ = nullptr;
};

class Watch {
 public:
  // `about`: a text that is printed above the places.
  Watch(std::string about, std::chrono::seconds patience)
      : about_(std::move(about)), patience_(patience), thread_([this] { run(); }) {}
  ~Watch() {
    {
      std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_all();
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // The place stays when its thread has ended, because others may wait for what that thread did.
  Place& place(std::string who) {
    std::lock_guard lock(mutex_);
    return places_.emplace_back(std::move(who), moves_);
  }
  void found(const std::string& fault) {
    std::lock_guard lock(mutex_);
    if (++faults_ <= most_shown) text_ += fault + '\n';
  }
  // Returns all faults as text; empty if there are none.
  std::string faults() const {
    std::lock_guard lock(mutex_);
    return faults_ <= most_shown ? text_ : text_ + "… " + std::to_string(faults_) + " faults in all\n";
  }

 private:
  static constexpr int most_shown = 12;

  void run() {
    std::unique_lock lock(mutex_);
    std::uint64_t seen = moves_.load();
    auto since = std::chrono::steady_clock::now();
    while (!over_.wait_for(lock, std::chrono::milliseconds(200), [this] { return is_over_; })) {
      if (std::uint64_t now = moves_.load(); now != seen) {
        seen = now;
        since = std::chrono::steady_clock::now();
      } else if (std::chrono::steady_clock::now() - since > patience_) {
        give_up();
      }
    }
  }
  [[noreturn]] void give_up() {
    std::string text = about_ + "\nNOTHING HAS MOVED for " + std::to_string(patience_.count()) + " s:\n";
    for (const Place& place : places_) text += "  " + place.text() + '\n';
    std::fprintf(stderr, "%s%s", text.c_str(), text_.c_str());
    std::fflush(nullptr);
    std::this_thread::sleep_for(std::chrono::seconds(2));  // the other processes of the job print theirs, too
    std::_Exit(3);
  }

  const std::string about_;
  const std::chrono::seconds patience_;
  mutable std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::atomic<std::uint64_t> moves_{0};
  std::list<Place> places_;
  std::string text_;
  int faults_ = 0;
  std::thread thread_;
};

}  // namespace hvd::programs
