#pragma once
// The task of Adasum over messages (schedule/adasum_task.cpp).
#include <memory>

#include "collectives/algorithm.hpp"

namespace hvd::collectives {

// The number of seats is a power of two, also in the team beside. If there is one, its seats hold the shares of the
// vectors, each seat one of them: every seat runs a task over a team of its own, and the products of a tensor are those
// of all its shares. Both teams must outlive the task.
std::unique_ptr<Task> make_adasum_task(const Collective& collective, const Team& team, const Team* beside = nullptr);

}  // namespace hvd::collectives
