# tests/fixtures/counted_allocations, for the programs whose tests count allocations.
foreach(test IN ITEMS collectives runtime)
  if(TARGET test_${test})
    target_sources(test_${test} PRIVATE fixtures/counted_allocations/counted_allocations.cpp)
    set_source_files_properties(fixtures/counted_allocations/counted_allocations.cpp
                                PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endforeach()
