#pragma once
// Makes one visitor of a variant from several lambdas, one for each alternative.

namespace hvd {

template <class... Parts>
struct Overloaded : Parts... {
  using Parts::operator()...;
};
template <class... Parts>
Overloaded(Parts...) -> Overloaded<Parts...>;

}  // namespace hvd
