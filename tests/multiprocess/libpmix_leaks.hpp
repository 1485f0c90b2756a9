// For programs whose ranks meet over PMIx, in builds with the address sanitizer: libpmix never frees what its
// initialisation allocates, nor what libmunge does for it where munged runs. Include this once per program.
#pragma once

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming,misc-definitions-in-headers)
extern "C" {
__attribute__((visibility("default"))) const char* __lsan_default_suppressions();
__attribute__((visibility("default"))) const char* __lsan_default_options();
const char* __lsan_default_suppressions() {
  return "leak:libpmix\nleak:vasprintf\nleak:libmunge\n";
}
const char* __lsan_default_options() {
  return "print_suppressions=0";
}
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming,misc-definitions-in-headers)
