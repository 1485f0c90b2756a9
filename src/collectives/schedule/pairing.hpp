#pragma once
// The fixed pairing of the seats of a team: the addition tree that tree and halving_doubling share, so that both give
// the same bits, whatever the size of the batch and the place of an element in it.
//
//  1. Of n seats as many as the largest power of two up to n take part: the core. The rest, n - core of them, are
//     folded: of the first 2 (n - core) seats every odd one gives its data to the even one before it. Seat 2i acts for
//     place i then, and holds x[2i] + x[2i+1]; a seat s from 2 (n - core) on is place s - (n - core).
//  2. For d = core/2, core/4 … 1: the partials of places p and p + d are added, for all p < d. Place 0's is the total.
// So 6 seats add ((x0+x1) + x4) + ((x2+x3) + x5), always with the lower place on the left. A partial of a 16-bit type
// is rounded when it is made; the postscale is applied to the total before it is rounded.
#include <bit>

#include "base/ids.hpp"

namespace hvd::collectives {

struct Pairing {
  explicit Pairing(int size)
      : core(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))), folded(size - core) {}

  int core;
  int folded;

  bool acts(Seat seat) const { return seat.value >= 2 * folded || seat.value % 2 == 0; }
  // For a folded seat: the place of the seat that acts for it.
  int place_of(Seat seat) const { return seat.value < 2 * folded ? seat.value / 2 : seat.value - folded; }
  Seat actor(int place) const { return Seat{first_seat(place)}; }
  bool has_folded(int place) const { return place < folded; }
  // The seats of place p are [first_seat(p), first_seat(p + 1)).
  int first_seat(int place) const { return place < folded ? 2 * place : place + folded; }
};

}  // namespace hvd::collectives
