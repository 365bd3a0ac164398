# SPDX-License-Identifier: Apache-2.0
# Libraries that the project builds on; docs in CONTRIBUTING.md say why each.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)

# Debian's pthreadpool ships neither a .pc file nor a CMake package.
find_path(PTHREADPOOL_INCLUDE_DIR pthreadpool.h REQUIRED)
find_library(PTHREADPOOL_LIBRARY pthreadpool REQUIRED)
add_library(pthreadpool INTERFACE)
target_include_directories(pthreadpool SYSTEM INTERFACE ${PTHREADPOOL_INCLUDE_DIR})
target_link_libraries(pthreadpool INTERFACE ${PTHREADPOOL_LIBRARY} Threads::Threads)

if(TCQ_BUILD_TOOLS)
  pkg_check_modules(PNG REQUIRED IMPORTED_TARGET libpng)
endif()
if(TCQ_BUILD_TESTS)
  pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
endif()
