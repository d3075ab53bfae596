# Builds and runs one consumer project.
#   cmake -DKIND=installed|subdirectory -DTALLY_SOURCE=.. -DTALLY_BUILD=.. -DWORK=.. -DCOMPILER=..
#         -DLAUNCHER=.. -P run.cmake
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "failed (${result}): ${command}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
if(KIND STREQUAL "installed")
  run(${CMAKE_COMMAND} --install ${TALLY_BUILD} --prefix ${WORK}/prefix)
  # Moved, so that nothing leans on the place it was installed to.
  file(RENAME ${WORK}/prefix ${WORK}/moved)
endif()
run(${CMAKE_COMMAND} -G Ninja -S ${CMAKE_CURRENT_LIST_DIR}/${KIND} -B ${WORK}/build
    -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER=${COMPILER}
    -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -DCMAKE_PREFIX_PATH=${WORK}/moved
    -DTALLY_SOURCE=${TALLY_SOURCE})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/consumer)
if(KIND STREQUAL "installed" AND EXISTS ${WORK}/moved/bin/graph-report)
  run(${WORK}/moved/bin/graph-report --help)
endif()
file(REMOVE_RECURSE ${WORK})
