#include "native/hdf5/handle.hpp"

namespace hvd::hdf5 {

Error failure_of(const Library& library, std::string what) {
  std::string cause;
  auto keep_first = [](unsigned depth, const Failure* failure, void* context) -> Outcome {
    if (depth == 0 && failure->text != nullptr) *static_cast<std::string*>(context) = failure->text;
    return 0;
  };
  library.calls.H5Ewalk2(plain, from_outside, keep_first, &cause);
  library.calls.H5Eclear2(plain);
  what += " (HDF5 " + library.version + (cause.empty() ? ")" : ": " + cause + ")");
  return {ErrorCode::system, std::move(what)};
}

}  // namespace hvd::hdf5
