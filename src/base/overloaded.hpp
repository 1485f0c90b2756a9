#pragma once
// A visitor of a variant from one lambda per alternative.

namespace hvd {

template <class... Parts>
struct Overloaded : Parts... {
  using Parts::operator()...;
};
template <class... Parts>
Overloaded(Parts...) -> Overloaded<Parts...>;

}  // namespace hvd
