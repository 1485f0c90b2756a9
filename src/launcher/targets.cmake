# The parts of horovodrun as a library, for its tests, and the program.
file(GLOB_RECURSE launcher_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
list(REMOVE_ITEM launcher_sources ${CMAKE_CURRENT_LIST_DIR}/horovodrun.cpp)
add_library(hvd_launcher STATIC ${launcher_sources})
# Each of these defines the same three functions for itself.
file(GLOB targets CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/targets/*.cpp)
set_source_files_properties(${targets} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
target_link_libraries(hvd_launcher PUBLIC hvd_base hvd_native hvd_topology hvd_bootstrap hvd_checkpoint hvd_schedulers
                      hvd_jobscripts)

add_executable(horovodrun ${CMAKE_CURRENT_LIST_DIR}/horovodrun.cpp)
target_link_libraries(horovodrun PRIVATE hvd_launcher)
install(TARGETS horovodrun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# Opened at run time, so the build does not see that they belong together.
foreach(plugin IN ITEMS horovod_pmix horovod_hwloc)
  if(TARGET ${plugin})
    add_dependencies(horovodrun ${plugin})
  endif()
endforeach()
