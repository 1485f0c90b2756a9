# Tests of what a site offers its users: modulefiles of an installed prefix, recipes and containers. The modulefiles are
# tried with real Lmod and Environment Modules. tests/run unpacks these tools; without them the tests are skipped.
if(HVD_SANITIZE OR NOT TARGET horovodrun OR NOT TARGET horovod OR NOT TARGET hvd_python_core)
  return()
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(site ${PROJECT_SOURCE_DIR}/tests/site)

# hvd_site_test(NAME sentence LABEL label [TIMEOUT seconds] COMMAND file [words]…)
function(hvd_site_test)
  cmake_parse_arguments(site "" "NAME;LABEL;TIMEOUT" "COMMAND" ${ARGN})
  add_test(NAME ${site_NAME} COMMAND Python3::Interpreter ${site_COMMAND})
  if(NOT site_TIMEOUT)
    set(site_TIMEOUT 300)
  endif()
  set_tests_properties(${site_NAME} PROPERTIES LABELS ${site_LABEL} TIMEOUT ${site_TIMEOUT} SKIP_RETURN_CODE 77
                       ENVIRONMENT "HVD_BUILD=${PROJECT_BINARY_DIR};PYTHONDONTWRITEBYTECODE=1")
endfunction()

hvd_site_test(NAME modules.serve_in_lmod LABEL ranks COMMAND ${site}/modules_test.py Lmod)
hvd_site_test(NAME modules.serve_in_environment_modules LABEL ranks
              COMMAND ${site}/modules_test.py EnvironmentModules)
hvd_site_test(NAME modules.are_written_where_the_site_wants_them LABEL ranks
              COMMAND ${site}/modules_test.py Installation)
hvd_site_test(NAME site.pytorch_trains_with_the_module LABEL site TIMEOUT 600
              COMMAND ${site}/modules_test.py Training)

hvd_site_test(NAME site.a_job_trains_after_the_steps_of_its_page LABEL site TIMEOUT 900
              COMMAND ${site}/first_job_test.py)

hvd_site_test(NAME recipes.for_spack_and_easybuild_fit_this_tree LABEL unit COMMAND ${site}/recipes_test.py Tree)
hvd_site_test(NAME site.easybuild_accepts_its_recipe LABEL site TIMEOUT 600
              COMMAND ${site}/recipes_test.py EasyBuild)

hvd_site_test(NAME packaging.answers_each_variable_of_horovods_build LABEL unit
              COMMAND ${site}/build_variables_test.py)
hvd_site_test(NAME wheels.need_only_what_every_release_of_pmix_has LABEL unit COMMAND ${site}/wheels_test.py Tree)
hvd_site_test(NAME site.wheel_serves_every_system_from_glibc_2_28 LABEL site TIMEOUT 1500
              COMMAND ${site}/wheels_test.py Native)
hvd_site_test(NAME site.wheel_for_aarch64_runs_over_an_emulator LABEL site TIMEOUT 1500
              COMMAND ${site}/wheels_test.py Aarch64)
hvd_site_test(NAME site.conda_builds_its_recipe LABEL site TIMEOUT 1800 COMMAND ${site}/conda_test.py)
hvd_site_test(NAME site.bundle_installs_without_a_network LABEL site TIMEOUT 1500 COMMAND ${site}/bundle_test.py)
set_tests_properties(site.wheel_serves_every_system_from_glibc_2_28 site.wheel_for_aarch64_runs_over_an_emulator
                     site.bundle_installs_without_a_network PROPERTIES RESOURCE_LOCK wheels)

hvd_site_test(NAME containers.are_what_the_generator_writes_and_follow_the_grammar LABEL unit
              COMMAND ${site}/containers_test.py)
hvd_site_test(NAME site.manifests_fit_the_schemas_of_kubernetes LABEL site COMMAND ${site}/kubernetes_test.py)
hvd_site_test(NAME site.smoke_test_for_reframe LABEL site COMMAND ${site}/reframe_test.py)
foreach(kind ByItself UnderSlurm ByHorovodrun Docs AsPods)
  hvd_site_test(NAME site.image_for_processors.${kind} LABEL site TIMEOUT 2400
                COMMAND ${site}/image_test.py ${kind})
  # One at a time, because the first of these tests builds the image for all of them.
  set_tests_properties(site.image_for_processors.${kind} PROPERTIES RESOURCE_LOCK site_image)
endforeach()
