# An installed build can be used by other projects. A library with a sanitizer would need programs with that sanitizer.
if(TARGET horovod AND NOT HVD_SANITIZE)
  add_test(NAME package.can_be_moved_and_used_over_cmake_and_pkg_config
           COMMAND ${PROJECT_SOURCE_DIR}/tests/package/run ${PROJECT_BINARY_DIR})
  set_tests_properties(package.can_be_moved_and_used_over_cmake_and_pkg_config PROPERTIES LABELS ranks TIMEOUT 120)
endif()
