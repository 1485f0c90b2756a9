#pragma once
// Makes one visitor of a variant from several lambdas, one for each alternative. An alternative without a lambda of its
// own does not compile, also if another lambda's type could be made of it, as a double of a float.

namespace hvd {

template <class... Parts>
struct Overloaded : Parts... {
  using Parts::operator()...;
  template <class Other>
  void operator()(const Other&) const = delete;
};
template <class... Parts>
Overloaded(Parts...) -> Overloaded<Parts...>;

}  // namespace hvd
