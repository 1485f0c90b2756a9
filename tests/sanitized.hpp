#pragma once
// Whether a sanitizer watches: tests then run a smaller product, and what would be too long is not there.

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HVD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HVD_SANITIZED 1
#endif
#endif
#ifndef HVD_SANITIZED
#define HVD_SANITIZED 0
#endif

namespace hvd::testing {

inline constexpr bool is_sanitized = HVD_SANITIZED != 0;

}  // namespace hvd::testing
