#pragma once
// Streams, and the tokens that stand for events on them.
//
// How the host knows that an event has come without asking the driver:
//  1. Each stream of ours has a word in page-locked memory. record() lets the stream write the next number to it, and
//     then records an event of the driver, for which other streams can wait.
//  2. An event has come when the word has reached its number. A look is a load.
//  3. Streams of the program have no word. The watcher's thread asks the driver for their events (watcher.hpp).
//
// A token is the number of a slot and how often the slot was used. A slot is used again when its event has come, so an
// older token of a slot stands for an event that has come.
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/tensor_view.hpp"
#include "devices/cuda/health.hpp"
#include "devices/cuda/kernel_table.hpp"
#include "native/cuda/owners.hpp"

namespace hvd::devices::cuda {

class Events {
 public:
  // Both outlive this object.
  Events(std::shared_ptr<const hvd::cuda::Context> context, const KernelTable& kernels, Health& health);
  ~Events();
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  // Makes what the streams need. Call it once, first.
  Status start();

  // A stream ends with its last owner, who must not outlive this object. The pointer is the driver's handle.
  Result<hvd::cuda::StreamHandle> make_stream();
  void end_stream(hvd::cuda::StreamHandle stream);

  Result<Event> record(Stream stream);
  // Spares the driver's event, so that no stream can wait for this one.
  Result<Event> record_for_host(Stream stream);

  // The user of memory, for whom an event can be recorded later. By then a stream of ours may have ended, and the
  // driver may have given its handle to another one.
  class User;
  std::shared_ptr<User> user_of(Stream stream);
  Result<Event> record(const User& user);
  // Whether both are one stream of ours. (Of streams of the program nobody knows.)
  bool are_same(const User& one, const User& other) const noexcept;

  // A stream of another GPU may wait, too: the driver keeps such an order.
  Status wait(Stream stream, Event event);
  // Without a call of the driver.
  bool has_come(Event event) const noexcept;

  // For the watcher: only it may find out that the event of a program's stream has come.
  bool is_of_program(Event event) const noexcept;
  hvd::cuda::Code ask_driver(Event event) const noexcept;
  void set_come(Event event) noexcept;

 private:
  struct Slot {
    std::atomic<std::uint64_t> token{0};
    std::atomic<const std::uint32_t*> word{nullptr};  // null: a stream of the program
    std::atomic<std::uint32_t> number{0};
    std::atomic<bool> is_known_to_have_come{false};
    std::atomic<bool> is_for_host{false};  // `event` does not stand for it
    hvd::cuda::OwnEvent event{};
  };
  struct Line {  // a stream of ours, or all streams of the program
    std::mutex mutex;
    hvd::cuda::OwnStream stream{};
    std::uint32_t* word = nullptr;
    std::uint32_t last = 0;     // the number that was queued last
    std::deque<Slot*> slots{};  // in the order in which their events were recorded
    bool has_ended = false;
    Event end{};  // then
  };
  // A stream of the program waits for an event.
  struct Wait {
    unsigned long long stream = 0;  // its number, which stands for no other stream later, as its handle may
    std::uint64_t token = 0;
    friend bool operator==(const Wait&, const Wait&) = default;
  };

  static constexpr unsigned index_bits = 20;
  static constexpr std::size_t chunk = 1024;
  static bool has_come(const Slot& slot) noexcept;
  enum class For : std::uint8_t { streams, host };
  Result<Event> record(Line& line, hvd::cuda::StreamHandle stream, For whom);
  Slot* slot_of(Event event) const noexcept;  // null: it has come long ago
  Result<Slot*> take_slot(Line& line);
  Result<Slot*> new_slot();
  std::shared_ptr<Line> line_of(Stream stream);
  Status refuse_capture(hvd::cuda::StreamHandle stream);
  // The error of a call that the driver has refused for a stream of the program.
  Error why_refused(hvd::cuda::Code code, hvd::cuda::StreamHandle stream, const char* what);
  std::optional<Wait> wait_of(hvd::cuda::StreamHandle stream, Event event);
  bool is_known(const std::optional<Wait>& wait);
  void remember(const Wait& wait);
  Status write_word(Line& line, hvd::cuda::StreamHandle stream);
  Result<std::uint32_t*> take_word();
  void find_free_words();

  const std::shared_ptr<const hvd::cuda::Context> context_;
  const KernelTable& kernels_;
  Health& health_;
  bool has_words_ = true;
  bool driver_writes_words_ = false;
  int priority_ = 0;

  std::mutex mutex_;  // of what follows
  std::map<void*, std::shared_ptr<Line>> lines_;
  std::vector<std::shared_ptr<Line>> ended_;  // whose words are still written
  std::vector<hvd::cuda::PageLocked> pages_;
  std::vector<std::uint32_t*> free_words_;
  std::vector<Slot*> free_slots_;
  std::size_t slot_count_ = 0;
  std::array<std::atomic<Slot*>, (std::size_t{1} << index_bits) / chunk> chunks_{};
  std::shared_ptr<Line> program_ = std::make_shared<Line>();

  // All operations of a batch end with one event. The program waits for each of them, its stream only once.
  std::mutex waits_mutex_;
  std::array<Wait, 4> last_waits_{};
  std::size_t next_wait_ = 0;
};

}  // namespace hvd::devices::cuda
