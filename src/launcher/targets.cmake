# Builds a library of horovodrun's parts, which tests use, too, and the program horovodrun.
file(GLOB_RECURSE launcher_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
list(REMOVE_ITEM launcher_sources ${CMAKE_CURRENT_LIST_DIR}/horovodrun.cpp)
add_library(hvd_launcher STATIC ${launcher_sources})
# Each of these files defines its own version of the same three functions.
file(GLOB targets CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/targets/*.cpp)
set_source_files_properties(${targets} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
# The date on the manual page; SOURCE_DATE_EPOCH sets another date.
string(TIMESTAMP today "%Y-%m-%d" UTC)
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/options/manual.cpp PROPERTIES
                            COMPILE_DEFINITIONS "HVD_DATE=\"${today}\"" SKIP_UNITY_BUILD_INCLUSION ON)
# It waits most of the time, and -O3 takes the compiler two thirds longer.
target_compile_options(hvd_launcher PRIVATE $<$<CONFIG:Release>:-O1>)
target_link_libraries(hvd_launcher PUBLIC hvd_base hvd_native hvd_topology hvd_bootstrap hvd_checkpoint hvd_schedulers
                      hvd_jobscripts)

add_executable(horovodrun ${CMAKE_CURRENT_LIST_DIR}/horovodrun.cpp)
target_link_libraries(horovodrun PRIVATE hvd_launcher)
install(TARGETS horovodrun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# horovodrun writes these files itself, from its table of flags.
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
# The plugins are opened at run time, so the build does not know that horovodrun needs them.
foreach(plugin IN ITEMS horovod_pmix horovod_hwloc)
  if(TARGET ${plugin})
    add_dependencies(horovodrun ${plugin})
  endif()
endforeach()
