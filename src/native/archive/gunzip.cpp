#include "native/archive/gunzip.hpp"

#include <string>

namespace hvd::archive {
namespace {

// Values of zlib's macros.
constexpr int no_flush = 0, fine_so_far = 0, end_of_stream = 1, needs_more = -5;
constexpr int of_gzip = 15 + 16;  // the largest window, in a frame of gzip

Error damaged(const std::string& how) {
  return Error(ErrorCode::invalid_argument, "it is damaged: gzip: " + how);
}

}  // namespace

void Gunzip::End::operator()(Inflation* stream) const {
  if (auto loaded = calls()) (*loaded)->inflateEnd(stream);
  delete stream;
}

Result<Gunzip> Gunzip::start() {
  auto loaded = calls();
  if (!loaded) return loaded.error();
  Gunzip gunzip(**loaded);
  if ((*loaded)->inflateInit2_(gunzip.stream_.get(), of_gzip, (*loaded)->zlibVersion(), sizeof(Inflation)) != 0)
    return Error(ErrorCode::unsupported, "zlib could not be started (inflateInit2 failed)");
  return gunzip;
}

Status Gunzip::add(ConstBytes bytes, const std::function<Status(ConstBytes)>& next) {
  stream_->next_in = reinterpret_cast<const unsigned char*>(bytes.data());
  stream_->bytes_in = static_cast<unsigned>(bytes.size());
  stream_->bytes_out = 0;
  while (stream_->bytes_in > 0 || stream_->bytes_out == 0) {
    if (has_ended_) {
      if (stream_->bytes_in == 0) return {};
      // Zeros may fill the file up.
      if (*stream_->next_in == 0) {
        ++stream_->next_in, --stream_->bytes_in;
        continue;
      }
      calls_->inflateReset(stream_.get());
      has_ended_ = false;
    }
    stream_->next_out = reinterpret_cast<unsigned char*>(chunk_.data());
    stream_->bytes_out = static_cast<unsigned>(chunk_.size());
    const int code = calls_->inflate(stream_.get(), no_flush);
    has_ended_ = code == end_of_stream;
    if (code != fine_so_far && code != end_of_stream && code != needs_more)
      return damaged(stream_->message != nullptr ? stream_->message : "zlib gave " + std::to_string(code));
    if (const std::size_t count = chunk_.size() - stream_->bytes_out; count > 0)
      HVD_RETURN_IF_ERROR(next(ConstBytes(chunk_).first(count)));
  }
  return {};
}

Status Gunzip::finish() const {
  return has_ended_ ? Status() : damaged("it ends too early: it is cut");
}

}  // namespace hvd::archive
