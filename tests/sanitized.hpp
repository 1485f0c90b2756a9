#pragma once
// Tells whether a sanitizer is active. Then tests use smaller sizes, and tests that would take too long are left out.

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
