# ulp_page(target): makes the page of reports from web/ and puts it into the target, which finds its
# file under ULP_REPORT_PAGE. npm works on a copy in the build tree. Without ULP_WEB and without npm
# the file is empty.
function(ulp_page target)
  set(page ${CMAKE_CURRENT_BINARY_DIR}/report.html)
  set(web ${PROJECT_SOURCE_DIR}/web)
  find_program(ULP_NPM npm)
  set(why "npm was not there or failed (Debian: apt install npm, then build again)")
  if(ULP_WEB AND ULP_NPM)
    file(GLOB_RECURSE inputs CONFIGURE_DEPENDS ${web}/src/*)
    list(APPEND inputs ${web}/build.mjs ${web}/package.json ${web}/package-lock.json ${web}/tsconfig.json)
    add_custom_command(OUTPUT ${page}
      COMMAND ${CMAKE_COMMAND} -DNPM=${ULP_NPM} -DWEB=${web} -DWORK=${CMAKE_CURRENT_BINARY_DIR}/web -DPAGE=${page}
        -P ${PROJECT_SOURCE_DIR}/cmake/BuildPage.cmake
      DEPENDS ${inputs} ${PROJECT_SOURCE_DIR}/cmake/BuildPage.cmake
      COMMENT "Making the page of reports" VERBATIM)
  else()
    if(ULP_WEB)
      message(STATUS "npm is not there: `ulp report` will have no page (install npm, then build again)")
    else()
      set(why "it was configured with ULP_WEB off (cmake -DULP_WEB=ON, then build again)")
    endif()
    file(CONFIGURE OUTPUT ${page} CONTENT "")
  endif()
  add_custom_target(${target}_page DEPENDS ${page})
  add_dependencies(${target} ${target}_page)
  set_source_files_properties(page.cc PROPERTIES
    COMPILE_DEFINITIONS "ULP_REPORT_PAGE=\"${page}\";ULP_REPORT_NO_PAGE=\"${why}\"" OBJECT_DEPENDS ${page})
endfunction()
