# The package `smelt`, laid out alike in the build tree and in the wheel:
#   smelt/*.py, _built_for.py, _native.<abi>.so, libsmelt.so, include/smelt/*.h, share/cmake/smelt/smeltConfig.cmake

# In the build tree the Python files and headers are links, so an edit needs no build.
file(GLOB_RECURSE modules RELATIVE ${PROJECT_SOURCE_DIR}/python/smelt CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/python/smelt/*.py ${PROJECT_SOURCE_DIR}/python/smelt/*.pyi ${PROJECT_SOURCE_DIR}/python/smelt/*.html
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
# Read before the library is loaded, so that an import beside another torch or Python says what is wrong.
configure_file(${CMAKE_CURRENT_LIST_DIR}/built_for.py.in ${package_dir}/_built_for.py @ONLY)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/include ${package_dir}/include SYMBOLIC)

configure_file(${CMAKE_CURRENT_LIST_DIR}/smeltConfig.cmake.in ${package_dir}/share/cmake/smelt/smeltConfig.cmake @ONLY)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${package_dir}/share/cmake/smelt/smeltConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)

# As an installed package has it: torch looks for its back ends among the entry points of what is on Python's path.
# pyproject.toml says the same for the wheel.
set(dist_info ${PROJECT_BINARY_DIR}/smelt-${PROJECT_VERSION}.dist-info)
configure_file(${CMAKE_CURRENT_LIST_DIR}/METADATA.in ${dist_info}/METADATA @ONLY)
file(READ ${PROJECT_SOURCE_DIR}/pyproject.toml pyproject)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/pyproject.toml)
if(NOT pyproject MATCHES "\\[project\\.entry-points\\.([a-z_]+)\\]\n([a-z]+) = \"([^\"]+)\"")
  message(FATAL_ERROR "pyproject.toml has no entry point")
endif()
file(CONFIGURE OUTPUT ${dist_info}/entry_points.txt
  CONTENT "[${CMAKE_MATCH_1}]\n${CMAKE_MATCH_2} = ${CMAKE_MATCH_3}\n" @ONLY)

# The wheel. scikit-build-core takes the Python files from python/smelt itself.
install(TARGETS smelt LIBRARY DESTINATION smelt)
if(TARGET smelt_native)
  install(TARGETS smelt_native LIBRARY DESTINATION smelt)
endif()
install(FILES ${package_dir}/_built_for.py DESTINATION smelt)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/smelt DESTINATION smelt/include)
install(DIRECTORY ${package_dir}/share/cmake/smelt DESTINATION smelt/share/cmake)
