# Tests that open a plugin depend on its target. They find the plugin in ../lib, as an installed program does.
foreach(pair topology=hwloc bootstrap=pmix)
  string(REGEX MATCH "^([a-z]+)=([a-z]+)$" pair ${pair})
  if(TARGET test_${CMAKE_MATCH_1} AND TARGET horovod_${CMAKE_MATCH_2})
    add_dependencies(test_${CMAKE_MATCH_1} horovod_${CMAKE_MATCH_2})
    string(TOUPPER ${CMAKE_MATCH_2} upper)
    target_compile_definitions(test_${CMAKE_MATCH_1} PRIVATE HVD_HAS_${upper})
  endif()
endforeach()
