// libpmix 4.2 forgets a few bytes in every PMIx_Init; the leak checker is to look at ours alone. (It loses the
// way behind vasprintf, which nothing of ours calls.)
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libpmix\nleak:vasprintf\n";
}
