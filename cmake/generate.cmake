# What is made by the build: sources go to ${CMAKE_BINARY_DIR}/generated/<module>/ and are never checked in.
# Sets GENERATED_<module>_SOURCES.

# The wire codec: protocol/*.msg and errors.tsv -> "wire/gen/<message>.h" and the tables.
set(wire_gen_dir ${CMAKE_BINARY_DIR}/generated/wire/gen)
set(GENERATED_wire_SOURCES)
foreach(name IN ITEMS tables_api tables_record apis kerr_rows)
  list(APPEND GENERATED_wire_SOURCES ${wire_gen_dir}/${name}.c)
endforeach()
file(GLOB wire_schemas CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/protocol/*/*.msg)
add_custom_command(
  OUTPUT ${GENERATED_wire_SOURCES}
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/protocol/generate.py ${wire_gen_dir}
  DEPENDS ${CMAKE_SOURCE_DIR}/protocol/generate.py ${CMAKE_SOURCE_DIR}/protocol/errors.tsv ${wire_schemas}
  COMMENT "Making the wire codec's tables from protocol/"
  VERBATIM)
