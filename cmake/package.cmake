# The package `smelt`, laid out alike in the build tree and in the wheel:
#   smelt/*.py, _native.<abi>.so, libsmelt.so, include/smelt/*.h, share/cmake/smelt/smeltConfig.cmake

# In the build tree the Python files and headers are links, so an edit needs no build.
file(GLOB_RECURSE modules RELATIVE ${PROJECT_SOURCE_DIR}/python/smelt CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/python/smelt/*.py ${PROJECT_SOURCE_DIR}/python/smelt/*.pyi
  ${PROJECT_SOURCE_DIR}/python/smelt/py.typed)
file(GLOB_RECURSE stale ${package_dir}/*.py ${package_dir}/*.pyi)
if(stale)
  file(REMOVE ${stale})
endif()
foreach(module IN LISTS modules)
  get_filename_component(folder ${package_dir}/${module} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/python/smelt/${module} ${package_dir}/${module} SYMBOLIC)
endforeach()
file(MAKE_DIRECTORY ${package_dir})
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/include ${package_dir}/include SYMBOLIC)

configure_file(${CMAKE_CURRENT_LIST_DIR}/smeltConfig.cmake.in ${package_dir}/share/cmake/smelt/smeltConfig.cmake @ONLY)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${package_dir}/share/cmake/smelt/smeltConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)

# The wheel. scikit-build-core takes the Python files from python/smelt itself.
install(TARGETS smelt LIBRARY DESTINATION smelt)
if(TARGET smelt_native)
  install(TARGETS smelt_native LIBRARY DESTINATION smelt)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/smelt DESTINATION smelt/include)
install(DIRECTORY ${package_dir}/share/cmake/smelt DESTINATION smelt/share/cmake)
