# cmake -DNPM= -DWEB= -DWORK= -DPAGE= -P BuildPage.cmake: copies WEB to WORK, installs its packages
# there and makes PAGE. Where that fails, as without a network, it says so on one line and leaves an
# empty page: the program works without one. That page is older than any source, so the next build
# tries again.
macro(no_page why)
  execute_process(COMMAND ${CMAKE_COMMAND} -E echo
    "the page of reports could not be made (${why}): ulp report will have none; see ${WORK}/npm.log")
  file(WRITE ${PAGE} "")
  execute_process(COMMAND touch -d 1980-01-01 ${PAGE})
  return()
endmacro()

# Only what the build reads, so that packages of the source tree stay out.
file(MAKE_DIRECTORY ${WORK})
file(REMOVE_RECURSE ${WORK}/src ${WORK}/dist)
file(GLOB files LIST_DIRECTORIES false ${WEB}/*.json ${WEB}/*.mjs ${WEB}/.npmrc)
file(COPY ${files} ${WEB}/src DESTINATION ${WORK})

file(SHA256 ${WORK}/package-lock.json packages)
set(installed "")
if(EXISTS ${WORK}/installed.txt)
  file(READ ${WORK}/installed.txt installed)
endif()
if(NOT installed STREQUAL packages)
  file(REMOVE ${WORK}/installed.txt)
  execute_process(COMMAND ${NPM} ci --prefer-offline --no-audit --no-fund --fetch-retries 1 --fetch-timeout 30000
    WORKING_DIRECTORY ${WORK} RESULT_VARIABLE code OUTPUT_FILE ${WORK}/npm.log ERROR_FILE ${WORK}/npm.log)
  if(NOT code EQUAL 0)
    no_page("npm ci failed")
  endif()
  file(WRITE ${WORK}/installed.txt ${packages})
endif()
execute_process(COMMAND ${NPM} run build
  WORKING_DIRECTORY ${WORK} RESULT_VARIABLE code OUTPUT_FILE ${WORK}/npm.log ERROR_FILE ${WORK}/npm.log)
if(NOT code EQUAL 0 OR NOT EXISTS ${WORK}/dist/report.html)
  no_page("npm run build failed")
endif()
file(RENAME ${WORK}/dist/report.html ${PAGE})
