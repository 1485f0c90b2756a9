#pragma once
// A C program whose tensors are in the memory of a late device: what it does on one rank, through horovod.h alone.
#include <string>
#include <vector>

#include "api/horovod.h"
#include "fixtures/late_device/late_device.hpp"

namespace hvd::on_device {

// The rank and its device. A runtime of a process finds its devices in the registry; device_of_process() is the one
// that a process's runtimes share.
struct Place {
  hvd_runtime* runtime = nullptr;
  testing::LateDevice* device = nullptr;
  void* stream = nullptr;  // the program's own
  // The program's thread knows of the device only what it has seen, and what the runtime has told it. So a look of the
  // runtime's threads does not hide a wait that is missing.
  testing::Engine::Separate* program = nullptr;
  int rank = 0, size = 1;
};
testing::LateDevice& device_of_process();

// Each function returns the first thing that is wrong, "" if all is right. All ranks call the same functions in the
// same order.
std::string every_verb_gives_its_results(const Place& place);
std::string the_stream_keeps_the_order(const Place& place);
std::string callbacks_start_what_comes_next(const Place& place);
std::string a_set_of_ranks_has_lanes_of_its_own(const Place& place);
std::string wrong_uses_are_refused(const Place& place);
std::string results_are_known_by_kind_and_ordinal(const Place& place);
std::string disagreement_fails_everybody_and_harms_nothing(const Place& place);

// These two end the runtime's operations.
std::string a_failed_copy_fails_everybody(const Place& place);
// The caller then calls hvd_shutdown().
std::string a_stop_ends_what_waits_for_its_input(const Place& place);

}  // namespace hvd::on_device
