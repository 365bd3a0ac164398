# SPDX-License-Identifier: Apache-2.0
# Header, libraries, pkg-config file and CMake package.
include(CMakePackageConfigHelpers)
install(FILES include/tcq.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
