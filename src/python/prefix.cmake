# The package in an installed prefix. The extensions use the limited API, therefore one package serves every Python 3,
# and its folder has no version number. PYTHONPATH contains pythonpath/, which leads to the package but prefers a
# package of the user's environment.
set(own_folder ${CMAKE_INSTALL_LIBDIR}/horovod)
set(package ${own_folder}/python/horovod)
file(RELATIVE_PATH to_libraries /${package} /${CMAKE_INSTALL_LIBDIR})
string(REGEX REPLACE "/$" "" to_libraries "${to_libraries}")
set_target_properties(hvd_python_core PROPERTIES INSTALL_RPATH "$ORIGIN/${to_libraries}")
install(TARGETS hvd_python_core LIBRARY DESTINATION ${package})
install(TARGETS hvd_python_mpi_lib_of_torch LIBRARY DESTINATION ${package}/torch)
set_target_properties(hvd_python_tensorflow PROPERTIES INSTALL_RPATH "$ORIGIN/../${to_libraries}")
install(TARGETS hvd_python_mpi_lib_of_tensorflow hvd_python_tensorflow LIBRARY DESTINATION ${package}/tensorflow)
install(DIRECTORY horovod/ DESTINATION ${package}
        FILES_MATCHING PATTERN "*.py" PATTERN "*.cc" PATTERN "__pycache__" EXCLUDE)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/_version.py DESTINATION ${package})
install(DIRECTORY pythonpath DESTINATION ${own_folder} FILES_MATCHING PATTERN "*.py" PATTERN "__pycache__" EXCLUDE)

file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/METADATA CONTENT
"Metadata-Version: 2.1
Name: horovod
Version: ${HVD_RELEASE}
Summary: ${PROJECT_DESCRIPTION}
Requires-Python: >=3.9
Requires-Dist: cloudpickle
")
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/METADATA
        DESTINATION ${own_folder}/python/horovod-${HVD_RELEASE}.dist-info)

if(TARGET horovodrun)  # `python -m horovod.runner.launch` looks for the launcher in the package
  file(RELATIVE_PATH to_launcher /${package}/bin /${CMAKE_INSTALL_BINDIR}/horovodrun)
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/bin)
  file(CREATE_LINK ${to_launcher} ${CMAKE_CURRENT_BINARY_DIR}/bin/horovodrun SYMBOLIC)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/bin/horovodrun DESTINATION ${package}/bin)
endif()

# Users cannot write to this folder. Without this, every rank of every job would compile the package for itself. With a
# Python of another version every rank does; `python -m compileall` in the folder avoids that.
install(CODE "
  execute_process(COMMAND \"${Python_EXECUTABLE}\" -m compileall -q -s \"\$ENV{DESTDIR}\"
    \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${own_folder}\")")
