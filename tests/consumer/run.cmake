# Builds and runs one consumer project.
#   cmake -DKIND=installed|subdirectory -DTALLY_SOURCE=.. -DTALLY_BUILD=.. -DWORK=.. -DCOMPILER=..
#         -DLAUNCHER=.. -P run.cmake
function(run output_variable)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE errors WORKING_DIRECTORY ${WORK})
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${result}): ${command}\n${output}\n${errors}")
  endif()
  set(${output_variable} "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
if(KIND STREQUAL "installed")
  run(ignored ${CMAKE_COMMAND} --install ${TALLY_BUILD} --prefix ${WORK}/prefix)
  # Moved, so that nothing leans on the place it was installed to.
  file(RENAME ${WORK}/prefix ${WORK}/moved)
endif()
run(ignored ${CMAKE_COMMAND} -G Ninja -S ${CMAKE_CURRENT_LIST_DIR}/${KIND} -B ${WORK}/build
    -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER=${COMPILER}
    -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -DCMAKE_PREFIX_PATH=${WORK}/moved
    -DTALLY_SOURCE=${TALLY_SOURCE})
run(ignored ${CMAKE_COMMAND} --build ${WORK}/build)
run(output ${WORK}/build/consumer)
if(KIND STREQUAL "installed")
  file(READ ${TALLY_SOURCE}/README.md readme)
  string(FIND "${readme}" "```text\n${output}```\n" at)
  if(at EQUAL -1)
    message(NOTICE "${output}")
    message(FATAL_ERROR "README.md shows another output of its program than the one above")
  endif()
  if(EXISTS ${WORK}/moved/bin/graph-report)
    run(ignored ${WORK}/moved/bin/graph-report --help)
  endif()
endif()
file(REMOVE_RECURSE ${WORK})
