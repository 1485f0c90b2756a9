# A library with the parts of horovodrun, which its tests use, too; and the program.
file(GLOB_RECURSE launcher_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
list(REMOVE_ITEM launcher_sources ${CMAKE_CURRENT_LIST_DIR}/horovodrun.cpp)
add_library(hvd_launcher STATIC ${launcher_sources})
# Each of these files defines its own version of the same three functions.
file(GLOB targets CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/targets/*.cpp)
set_source_files_properties(${targets} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
target_link_libraries(hvd_launcher PUBLIC hvd_base hvd_native hvd_topology hvd_bootstrap hvd_checkpoint hvd_schedulers
                      hvd_jobscripts)

add_executable(horovodrun ${CMAKE_CURRENT_LIST_DIR}/horovodrun.cpp)
target_link_libraries(horovodrun PRIVATE hvd_launcher)
install(TARGETS horovodrun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# The plugins are opened at run time, so the build does not know that horovodrun needs them.
foreach(plugin IN ITEMS horovod_pmix horovod_hwloc)
  if(TARGET ${plugin})
    add_dependencies(horovodrun ${plugin})
  endif()
endforeach()
