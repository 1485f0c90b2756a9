if(HVD_SANITIZE OR NOT TARGET horovodrun)
  return()  # these tests check files that are the same in every build
endif()
# Checks the pages for users: links, commands, variables. tests/python/jobs/test_docs.py runs blocks that need Python.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_executable(docs_tables ${PROJECT_SOURCE_DIR}/docs/tables.cpp)
target_link_libraries(docs_tables PRIVATE hvd_base)
add_test(NAME docs.what_users_read_is_so COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tests/docs/docs_test.py)
set(programs "HOROVODRUN=$<TARGET_FILE:horovodrun>;DOCS_TABLES=$<TARGET_FILE:docs_tables>")
set_tests_properties(docs.what_users_read_is_so PROPERTIES LABELS unit TIMEOUT 120
                     ENVIRONMENT "${programs};PYTHONDONTWRITEBYTECODE=1")
