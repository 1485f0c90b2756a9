#pragma once
// An epoll(7) instance with the meaning of its events. The watcher of the TCP connections waits on it.
#include <sys/epoll.h>

#include <cstdint>

namespace hvd::connections::tcp {

enum class Source : std::uint8_t {
  poke,      // another thread of this process needs the watcher
  listener,  // the listener's descriptor
  stranger,  // number of a connection that has not proved yet that it belongs to the job
  dial,      // number of an attempt to connect
  armed,     // descriptor of a connection that was given to a caller
};

struct EventQueue {
  static std::uint64_t tag(Source source, std::uint64_t number) {
    return static_cast<std::uint64_t>(source) << 56 | number;
  }
  static Source source_of(const epoll_event& event) { return static_cast<Source>(event.data.u64 >> 56); }
  static std::uint64_t number_of(const epoll_event& event) { return event.data.u64 & ((1ull << 56) - 1); }

  bool add(int descriptor, std::uint32_t events, Source source, std::uint64_t number) const {
    return control(EPOLL_CTL_ADD, descriptor, events, source, number);
  }
  bool change(int descriptor, std::uint32_t events, Source source, std::uint64_t number) const {
    return control(EPOLL_CTL_MOD, descriptor, events, source, number);
  }
  void remove(int descriptor) const { ::epoll_ctl(descriptor_of_epoll, EPOLL_CTL_DEL, descriptor, nullptr); }

  int descriptor_of_epoll = -1;

 private:
  bool control(int operation, int descriptor, std::uint32_t events, Source source, std::uint64_t number) const {
    epoll_event event{};
    event.events = events;
    event.data.u64 = tag(source, number);
    return ::epoll_ctl(descriptor_of_epoll, operation, descriptor, &event) == 0;
  }
};

}  // namespace hvd::connections::tcp
