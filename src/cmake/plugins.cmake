# Parts that need an optional library are shared objects beside the core, opened at run time (native/posix/plugin.hpp).

# hvd_plugin(pmix LIBRARY PMIx PKGCONFIG pmix USES base native): libhorovod_pmix.so of the files whose first line is
# "// plugin: pmix" (layers.cmake collects them), if pkg-config knows the library; else one notice and no such plugin.
function(hvd_plugin name)
  cmake_parse_arguments(plugin "" "LIBRARY;PKGCONFIG;LACKING" "USES" ${ARGN})
  get_property(sources GLOBAL PROPERTY hvd_plugin_${name})
  if(NOT sources)
    return()
  endif()
  pkg_check_modules(${name} IMPORTED_TARGET QUIET ${plugin_PKGCONFIG})
  if(NOT ${name}_FOUND)
    message(NOTICE "-- ${plugin_LIBRARY} was not found by pkg-config (${plugin_PKGCONFIG}): without it ${plugin_LACKING}")
    return()
  endif()
  add_library(horovod_${name} MODULE ${sources})
  list(TRANSFORM plugin_USES PREPEND hvd_)
  target_link_libraries(horovod_${name} PRIVATE ${plugin_USES} PkgConfig::${name})
  target_link_options(horovod_${name} PRIVATE -Wl,--exclude-libs,ALL)
  if(NOT HVD_SANITIZE)  # a sanitizer's runtime may be in the program alone
    target_link_options(horovod_${name} PRIVATE -Wl,--no-undefined)
  endif()
  set_target_properties(horovod_${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  set_property(GLOBAL APPEND PROPERTY hvd_plugins horovod_${name})
  install(TARGETS horovod_${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

find_package(PkgConfig QUIET)
if(NOT PkgConfig_FOUND)
  message(NOTICE "-- pkg-config was not found: no plugin is built (PMIx, hwloc)")
  return()
endif()
