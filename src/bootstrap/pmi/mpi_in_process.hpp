#pragma once
// Whether an MPI library that speaks PMI has been initialised in this process, however it came here.
namespace hvd::bootstrap::pmi {

enum class MpiState { none, initialised, finalised };
MpiState mpi_in_process();

}  // namespace hvd::bootstrap::pmi
