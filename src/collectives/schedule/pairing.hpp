#pragma once
// The fixed pairing of the seats of a team. It is the order of additions of tree and halving_doubling. Both therefore
// give the same bits, for every size of the batch and for every place of an element in it.
//
//  1. The core is the largest power of two up to n, the number of seats. The other n - core seats are folded: among the
//     first 2 (n - core) seats every odd seat gives its data to the even seat before it. Seat 2i then acts for place i
//     and holds x[2i] + x[2i+1]. A seat s from 2 (n - core) on is place s - (n - core).
//  2. For d = core/2, core/4 … 1: the partial sums of places p and p + d are added, for all p < d. That of place 0 is
//     the total.
// So 6 seats compute ((x0+x1) + x4) + ((x2+x3) + x5), always with the lower place on the left. A partial sum of a
// 16-bit type is rounded when it is made. The postscale is applied to the total before it is rounded.
#include <bit>

#include "base/ids.hpp"

namespace hvd::collectives {

struct Pairing {
  explicit Pairing(int size)
      : core(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))), folded(size - core) {}

  int core;
  int folded;

  bool acts(Seat seat) const { return seat.value >= 2 * folded || seat.value % 2 == 0; }
  // Returns the seat's place. For a folded seat this is the place of the seat that acts for it.
  int place_of(Seat seat) const { return seat.value < 2 * folded ? seat.value / 2 : seat.value - folded; }
  Seat actor(int place) const { return Seat{first_seat(place)}; }
  bool has_folded(int place) const { return place < folded; }
  // The seats of place p are [first_seat(p), first_seat(p + 1)).
  int first_seat(int place) const { return place < folded ? 2 * place : place + folded; }
};

}  // namespace hvd::collectives
