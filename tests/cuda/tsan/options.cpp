// For programs on the double of the driver, under ThreadSanitizer. The double's handler allocates, and interrupts no
// call of the allocator, since it only runs where the program reads a page of the double.
#if defined(__SANITIZE_THREAD__)
extern "C" {
__attribute__((visibility("default"))) const char* __tsan_default_options();
const char* __tsan_default_options() {
  return "report_signal_unsafe=0";
}
}
#endif
