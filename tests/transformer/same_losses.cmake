# cmake -DPROGRAM=… -DMPIRUN=… -DFOLDER=… -DSPLIT=… -P same_losses.cmake: the transformer's losses, all of their
# bits, have to be the same alone with 8 devices and as 2 processes with 4; and where it was stopped half way
# and went on from its checkpoint, as those processes: the file of the second half has the first half's too, as
# the curve has.
file(REMOVE_RECURSE "${FOLDER}")
file(MAKE_DIRECTORY "${FOLDER}")
set(options --split ${SPLIT} --steps 6 --every 3 --embed 32 --qkv 4 --ff 8 --layers 2 --batch 8 --context 16
            --sample 0)
set(together "${MPIRUN}" --bind-to none --oversubscribe -n 2)

function(run devices)
  set(ENV{SHMAP_DEVICES} ${devices})
  execute_process(COMMAND ${ARGN} ${options} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}: ${status}\n${text}")
  endif()
  set(text "${text}" PARENT_SCOPE)
endfunction()
function(expect_text wanted)
  if(NOT text MATCHES "${wanted}")
    message(FATAL_ERROR "it printed\n${text}\nwithout\n${wanted}")
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
# No terminal is there: a line for each look at the held-out text, but of one process.
expect_text("devices\n[a-zA-Z0-9 ]+ step 3/6  loss [0-9.]+  held out [0-9.]+  [0-9.]+ [mu]?s left\n[a-zA-Z0-9 ]+ step 6 ")
set(two ${together} "${PROGRAM}" --losses "${FOLDER}/two" --curve "${FOLDER}/two.svg" --checkpoints
        "${FOLDER}/checkpoints")
run(cpu:4 ${two} --stop 3)
run(cpu:4 ${two} --resume)
expect_text("devices\ngoing on from step 3\n[a-zA-Z0-9 ]+ step 6 ")
expect_same(alone two)
# Both looks at the held-out text, of which the first run had one, and the batches' one mean.
file(READ "${FOLDER}/two.svg" curve)
string(REGEX MATCHALL "<circle" dots "${curve}")
list(LENGTH dots count)
if(NOT count EQUAL 5) # and one for each line's name
  message(FATAL_ERROR "${count} dots where 5 are wanted: ${curve}")
endif()

# A folder without the losses, as older versions left it: the run goes on, and says what is missing.
run(cpu:4 ${two} --stop 3)
file(REMOVE "${FOLDER}/checkpoints/losses.npz")
run(cpu:4 ${two} --resume)
expect_text("going on from step 3, without the losses before it")
file(STRINGS "${FOLDER}/alone" alone)
file(STRINGS "${FOLDER}/two" rest)
list(SUBLIST alone 3 3 last_half)
if(NOT rest STREQUAL last_half)
  message(FATAL_ERROR "losses of the second half:\n${rest}\nand alone:\n${last_half}")
endif()
