# The tests of the kit for kernels, with several ranks.
if(NOT TARGET horovodrun OR NOT TARGET test_kernels)
  return()
endif()
add_test(NAME kernels.of_two_ranks COMMAND horovodrun -np 2 $<TARGET_FILE:test_kernels> --gtest_brief=1)
set_tests_properties(kernels.of_two_ranks PROPERTIES LABELS ranks TIMEOUT 180)
