# The parts of horovodrun as a library, for its tests, and the program.
file(GLOB_RECURSE launcher_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
list(REMOVE_ITEM launcher_sources ${CMAKE_CURRENT_LIST_DIR}/horovodrun.cpp)
add_library(hvd_launcher STATIC ${launcher_sources})
# Each of these defines the same three functions for itself.
file(GLOB targets CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/targets/*.cpp)
set_source_files_properties(${targets} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
# On the manual page; SOURCE_DATE_EPOCH sets another.
string(TIMESTAMP today "%Y-%m-%d" UTC)
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/options/manual.cpp PROPERTIES
                            COMPILE_DEFINITIONS "HVD_DATE=\"${today}\"" SKIP_UNITY_BUILD_INCLUSION ON)
target_link_libraries(hvd_launcher PUBLIC hvd_base hvd_native hvd_topology hvd_bootstrap hvd_checkpoint hvd_schedulers
                      hvd_jobscripts)

add_executable(horovodrun ${CMAKE_CURRENT_LIST_DIR}/horovodrun.cpp)
target_link_libraries(horovodrun PRIVATE hvd_launcher)
install(TARGETS horovodrun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# What is written from the table of flags, by the program itself.
if(NOT CMAKE_CROSSCOMPILING)
  set(share ${PROJECT_BINARY_DIR}/share)
  file(MAKE_DIRECTORY ${share})
  add_custom_command(TARGET horovodrun POST_BUILD
                     COMMAND horovodrun --manual > ${share}/horovodrun.1
                     COMMAND horovodrun --completion bash > ${share}/horovodrun
                     COMMAND horovodrun --completion zsh > ${share}/_horovodrun)
  if(NOT SKBUILD)
    install(FILES ${share}/horovodrun.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES ${share}/horovodrun DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${share}/_horovodrun DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  endif()
endif()
# Opened at run time, so the build does not see that they belong together.
foreach(plugin IN ITEMS horovod_pmix horovod_hwloc)
  if(TARGET ${plugin})
    add_dependencies(horovodrun ${plugin})
  endif()
endforeach()
