# What tests count the work of: the rooms that an operation passes through on its way to the kernels, compiled
# once more, with a call before each basic block. Such a program consists of these objects and of the
# library's own of all other rooms; the library itself is compiled without them.
set(counted_rooms
    core/device core/ir core/array core/runtime collectives core/cpu/device core/cpu/executor
    core/compiler/lowering core/compiler/fusion core/transforms/jit shard_map)
list(JOIN counted_rooms "|" counted_pattern)

set(SHMAP_COUNTED_OBJECTS "")
foreach(floor IN LISTS floors)
  get_target_property(sources ${floor} SOURCES)
  get_target_property(folder ${floor} SOURCE_DIR)
  set(counted "")
  set(their_objects "")
  foreach(source IN LISTS sources)
    if(source MATCHES "/shmap_units/[^/]+$") # a unit is counted where one of its sources is
      set(object "${CMAKE_MATCH_0}")
      file(STRINGS "${source}" found REGEX "^#include \"(${counted_pattern})/" LIMIT_COUNT 1)
    else()
      file(RELATIVE_PATH object "${folder}" "${source}")
      string(PREPEND object "/")
      string(REGEX MATCH "^${PROJECT_SOURCE_DIR}/(${counted_pattern})/" found "${source}")
    endif()
    get_source_file_property(own_definitions "${source}" TARGET_DIRECTORY ${floor} COMPILE_DEFINITIONS)
    if(found AND NOT own_definitions)
      list(APPEND counted "${source}")
      list(APPEND their_objects "${object}")
    endif()
  endforeach()
  if(NOT counted)
    list(APPEND SHMAP_COUNTED_OBJECTS $<TARGET_OBJECTS:${floor}>)
    continue()
  endif()
  get_target_property(libraries ${floor} LINK_LIBRARIES)
  get_target_property(options ${floor} COMPILE_OPTIONS)
  add_library(${floor}_counted OBJECT EXCLUDE_FROM_ALL ${counted})
  shmap_internal(${floor}_counted)
  target_link_libraries(${floor}_counted PRIVATE ${libraries})
  target_compile_options(${floor}_counted PRIVATE ${options} -O1 -fsanitize-coverage=trace-pc)
  list(JOIN their_objects "|" theirs)
  list(APPEND SHMAP_COUNTED_OBJECTS $<TARGET_OBJECTS:${floor}_counted>
       "$<FILTER:$<TARGET_OBJECTS:${floor}>,EXCLUDE,(${theirs})\\.o$>")
endforeach()
get_target_property(SHMAP_COUNTED_LIBRARIES shmap LINK_LIBRARIES)
