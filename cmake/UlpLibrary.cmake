# The library that others link: ulp::ulp, by add_subdirectory or from an installed package. It is
# one shared object. What it is made of stays inside, so that users need none of it.
add_library(libulp SHARED ${PROJECT_SOURCE_DIR}/ulp/library/version.cc)
add_library(ulp::ulp ALIAS libulp)
target_link_libraries(libulp PRIVATE ulp_flags ulp_library)
# The rooms that define what the public headers declare: all of it, used inside or not.
set(ULP_PUBLIC_ROOMS ulp_library ulp_session ulp_graph ulp_tensor)
list(JOIN ULP_PUBLIC_ROOMS "," ULP_PUBLIC_ROOMS_LIST)
set_target_properties(libulp PROPERTIES OUTPUT_NAME ulp EXPORT_NAME ulp
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
  LINK_LIBRARY_OVERRIDE "WHOLE_ARCHIVE,${ULP_PUBLIC_ROOMS_LIST}")
target_compile_features(libulp INTERFACE cxx_std_20)
target_include_directories(libulp INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
if(ULP_CUDA)
  set_target_properties(libulp PROPERTIES BUILD_RPATH "$ORIGIN")
endif()

if(ULP_INSTALL)
  include(GNUInstallDirs)
  include(CMakePackageConfigHelpers)
  target_include_directories(libulp INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  install(TARGETS libulp EXPORT ulp-targets)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ulp TYPE INCLUDE)
  if(ULP_PROGRAM)
    install(TARGETS ulp)
  endif()
  set(ULP_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ulp)
  install(EXPORT ulp-targets FILE ulp-config.cmake NAMESPACE ulp:: DESTINATION ${ULP_PACKAGE_DIR})
  # Before 1.0 each minor version may change the interface.
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/ulp-config-version.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/ulp-config-version.cmake DESTINATION ${ULP_PACKAGE_DIR})
endif()
