# The list of registration functions. A file that registers something (primitives, kernels)
# defines `void register_<family>()` in namespace shmap, at the start of a line; the generated
# shmap::detail::register_all() calls all of them, in sorted order.

set(SHMAP_GENERATED_DIR "${PROJECT_BINARY_DIR}/generated")
get_property(sources GLOBAL PROPERTY SHMAP_SOURCES)
add_custom_command(
  OUTPUT "${SHMAP_GENERATED_DIR}/register_all.stamp"
  BYPRODUCTS "${SHMAP_GENERATED_DIR}/register_all.cpp"
  COMMAND "${CMAKE_COMMAND}" "-DROOT=${PROJECT_SOURCE_DIR}"
          "-DOUTPUT=${SHMAP_GENERATED_DIR}/register_all.cpp" -P
          "${PROJECT_SOURCE_DIR}/cmake/generate_registration.cmake"
  COMMAND "${CMAKE_COMMAND}" -E touch "${SHMAP_GENERATED_DIR}/register_all.stamp"
  DEPENDS ${sources} "${PROJECT_SOURCE_DIR}/cmake/generate_registration.cmake"
  COMMENT "Listing the registration functions"
  VERBATIM)
add_custom_target(shmap_list_registrations DEPENDS "${SHMAP_GENERATED_DIR}/register_all.stamp")

add_library(shmap_registration OBJECT "${SHMAP_GENERATED_DIR}/register_all.cpp")
set_source_files_properties("${SHMAP_GENERATED_DIR}/register_all.cpp" PROPERTIES GENERATED TRUE)
add_dependencies(shmap_registration shmap_list_registrations)
shmap_internal(shmap_registration)
set_property(GLOBAL APPEND PROPERTY SHMAP_FLOORS shmap_registration)
