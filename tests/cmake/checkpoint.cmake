# Tests of checkpoints in jobs with several ranks, over the C interface.
if(NOT TARGET horovodrun OR NOT TARGET horovod)
  return()
endif()
add_executable(checkpoint_rank ${PROJECT_SOURCE_DIR}/tests/multiprocess/checkpoint_rank.cpp
                               ${PROJECT_SOURCE_DIR}/tests/bootstrap/sanitizers_and_libpmix.cpp)
target_link_libraries(checkpoint_rank PRIVATE horovod)
foreach(ranks 1 3)
  set(name checkpoint.is_saved_and_restored_by_${ranks}_ranks)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/checkpoints_of_${ranks}_ranks)
  file(MAKE_DIRECTORY ${folder})
  add_test(NAME ${name} COMMAND horovodrun -np ${ranks} $<TARGET_FILE:checkpoint_rank> ${folder})
  set_tests_properties(${name} PROPERTIES LABELS ranks TIMEOUT 180 SKIP_RETURN_CODE 77)
endforeach()

if(HVD_BUILD_EXAMPLES AND NOT HVD_SANITIZE)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME checkpoint.the_example_in_cpp_goes_on_where_it_was_interrupted
           COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tests/multiprocess/example_goes_on.py
                   $<TARGET_FILE:horovodrun> $<TARGET_FILE:hvd_example_pi>)
  set_tests_properties(checkpoint.the_example_in_cpp_goes_on_where_it_was_interrupted PROPERTIES
                       LABELS ranks TIMEOUT 180)
endif()
