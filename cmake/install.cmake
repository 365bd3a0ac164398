# SPDX-License-Identifier: Apache-2.0
# Header, libraries, command, pkg-config file and CMake package.
include(CMakePackageConfigHelpers)

file(GLOB TCQ_PUBLIC_HEADERS ${PROJECT_SOURCE_DIR}/include/*.h)
install(FILES ${TCQ_PUBLIC_HEADERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS tcq EXPORT tcqTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES $<TARGET_FILE:tcq_static> DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT tcqTargets NAMESPACE tcq:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tcq)
if(TARGET tcq_command)
  install(TARGETS tcq_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# The prefix relative to the folder of tcq.pc, so that `cmake --install --prefix`
# and moving the tree both keep it right.
file(RELATIVE_PATH TCQ_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/tcq.pc.in tcq.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tcq.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
configure_package_config_file(cmake/tcqConfig.cmake.in tcqConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tcq)
write_basic_package_version_file(tcqConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tcqConfig.cmake ${PROJECT_BINARY_DIR}/tcqConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tcq)
