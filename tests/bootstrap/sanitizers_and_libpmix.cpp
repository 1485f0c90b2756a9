// A sanitizer that is built into the program calls these functions. Every PMIx_Init of libpmix 4.2 leaks some memory,
// and the leak checker sees only vasprintf of its calls, which our code never calls. Where munged runs, libpmix also
// opens libmunge, which leaks as well. libpmix is not compiled for the race checker.
extern "C" {
__attribute__((visibility("default"))) const char* __lsan_default_suppressions();
__attribute__((visibility("default"))) const char* __tsan_default_suppressions();
const char* __lsan_default_suppressions() {
  return "leak:libpmix\nleak:vasprintf\nleak:libmunge\n";
}
const char* __tsan_default_suppressions() {
  return "race:libpmix.so\ncalled_from_lib:libpmix.so\ncalled_from_lib:libevent_core\ncalled_from_lib:libevent_"
         "pthreads\n";
}
}
