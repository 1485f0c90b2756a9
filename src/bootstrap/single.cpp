// The bootstrap of a job of one rank that no launcher started. It is always detected, and therefore asked last. The
// guard decides whether the process can really be alone (launch/guard.hpp).
#include <unistd.h>

#include <memory>
#include <string>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/own_values.hpp"

namespace hvd::bootstrap {
namespace {

class Single final : public Bootstrap {
 public:
  const char* name() const override { return "single"; }
  bool detected(const Environment&) const override { return true; }
  Result<Identity> join(const Environment&, const Config&) override {
    return Identity{Rank{0}, 1, "single-" + std::to_string(::getpid())};
  }
  Status put(std::string_view key, ConstBytes value) override { return values_.put(key, value); }
  Result<Buffer> get(Rank from, std::string_view key, Deadline) override { return values_.get(from, key); }
  Status fence(Deadline) override { return {}; }
  void abort(std::string_view) noexcept override {}  // no launcher has to end other ranks

 private:
  OwnValues values_;
};

}  // namespace

std::unique_ptr<Bootstrap> make_single() {
  return std::make_unique<Single>();
}

}  // namespace hvd::bootstrap
