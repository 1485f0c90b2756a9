// Asked by the sanitizers, if there are any. libpmix 4.2 forgets some memory in every PMIx_Init (the leak checker loses
// the way behind vasprintf, which nothing of ours calls) and is not compiled for the race checker.
extern "C" {
__attribute__((visibility("default"))) const char* __lsan_default_suppressions();
__attribute__((visibility("default"))) const char* __tsan_default_suppressions();
const char* __lsan_default_suppressions() {
  return "leak:libpmix\nleak:vasprintf\n";
}
const char* __tsan_default_suppressions() {
  return "race:libpmix.so\ncalled_from_lib:libpmix.so\ncalled_from_lib:libevent_core\ncalled_from_lib:libevent_"
         "pthreads\n";
}
}
