// What happens when TensorFlow loads this library.
#include <cstdint>
#include <exception>
#include <string>

#include "python/tensorflow/c_interface.hpp"
#include "python/tensorflow/collectives.hpp"
#include "python/tensorflow/facts.hpp"

namespace hvd::tensorflow {

namespace {

std::string& problem() {
  static auto* text = new std::string;
  return *text;
}

// TensorFlow notes the operations that are defined while it loads a library, so they must be defined here.
[[gnu::constructor]] void load() {
  try {
    problem() = find_functions();
    if (!problem().empty()) return;
    register_collectives();
    register_facts();
  } catch (const std::exception& error) {
    problem() = error.what();
  }
}

}  // namespace

}  // namespace hvd::tensorflow

// Registers the kernels of the collectives for a device, as register_for_device() does. Returns what is wrong; empty if
// nothing is.
extern "C" __attribute__((visibility("default"))) const char* horovod_tensorflow_register(
    const char* device, int priority, int kind, hvd::tensorflow::StreamOf streams, const char* reason) {
  try {
    hvd::tensorflow::register_for_device(device, priority, static_cast<hvd_device>(kind), streams, reason);
    return "";
  } catch (const std::exception& error) {
    hvd::tensorflow::problem() = error.what();
    return hvd::tensorflow::problem().c_str();
  }
}

extern "C" __attribute__((visibility("default"))) std::uint64_t horovod_tensorflow_failures() {
  return hvd::tensorflow::failures();
}

// Says why the operations are not there; empty if they are.
extern "C" __attribute__((visibility("default"))) const char* horovod_tensorflow_problem() {
  return hvd::tensorflow::problem().c_str();
}
