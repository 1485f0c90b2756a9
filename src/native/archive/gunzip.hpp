#pragma once
// Decompresses gzip by zlib, which checks the checksum of what it gives. The filter of libarchive for gzip does not.
#include <functional>
#include <memory>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "native/archive/calls.hpp"

namespace hvd::archive {

class Gunzip {
 public:
  static Result<Gunzip> start();
  // Takes compressed bytes, and gives decompressed ones to `next` in pieces. Fails at the first fault of either.
  Status add(ConstBytes bytes, const std::function<Status(ConstBytes)>& next);
  // Call it when all bytes were added. Fails if the compressed stream has not come to its end.
  Status finish() const;

 private:
  struct End {
    void operator()(Inflation* stream) const;
  };
  explicit Gunzip(const Calls& calls) : calls_(&calls), stream_(new Inflation{}) {}
  const Calls* calls_;
  std::unique_ptr<Inflation, End> stream_;  // zlib remembers its address
  bool has_ended_ = false;                  // a stream has come to its end; another one may follow
  Buffer chunk_ = Buffer(256 << 10);
};

}  // namespace hvd::archive
