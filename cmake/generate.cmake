# What is made by the build: sources go to ${CMAKE_BINARY_DIR}/generated/<module>/ and are never checked in.
# Sets GENERATED_<module>_SOURCES.
