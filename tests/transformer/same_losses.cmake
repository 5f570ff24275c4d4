# cmake -DPROGRAM=… -DMPIRUN=… -DFOLDER=… -DSPLIT=… -P same_losses.cmake: the transformer's losses, all of their
# bits, have to be the same alone with 8 devices and as 2 processes with 4; and where it was stopped half way
# and went on from its checkpoint, as those processes.
file(REMOVE_RECURSE "${FOLDER}")
file(MAKE_DIRECTORY "${FOLDER}")
set(options --split ${SPLIT} --steps 6 --every 3 --embed 32 --qkv 4 --ff 8 --layers 2 --batch 8 --context 16
            --sample 0 --quiet)
set(together "${MPIRUN}" --bind-to none --oversubscribe -n 2)

function(run devices)
  set(ENV{SHMAP_DEVICES} ${devices})
  execute_process(COMMAND ${ARGN} ${options} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}: ${status}\n${text}")
  endif()
endfunction()
function(expect_same a b)
  file(READ "${FOLDER}/${a}" left)
  file(READ "${FOLDER}/${b}" right)
  string(LENGTH "${left}" length)
  if(NOT left STREQUAL right OR length LESS 40)
    message(FATAL_ERROR "losses of ${a}:\n${left}and of ${b}:\n${right}")
  endif()
endfunction()

run(cpu:8 "${PROGRAM}" --losses "${FOLDER}/alone")
run(cpu:4 ${together} "${PROGRAM}" --losses "${FOLDER}/two" --checkpoints "${FOLDER}/checkpoints" --stop 3)
file(READ "${FOLDER}/two" first_half)
run(cpu:4 ${together} "${PROGRAM}" --losses "${FOLDER}/two" --checkpoints "${FOLDER}/checkpoints" --resume)
file(READ "${FOLDER}/two" second_half)
file(WRITE "${FOLDER}/both" "${first_half}${second_half}")
expect_same(alone both)
