// The options of a training run on the command line: a flag for each row of the table in
// ulp/run/config.h, and --config FILE.
#pragma once

#include <CLI/CLI.hpp>
#include <deque>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/run/config.h"

namespace ulp {

// What the parser fills. Must stay where it is until the command has run.
struct RunOptions {
  struct Flag {
    const ConfigField* field = nullptr;
    const CLI::Option* option = nullptr;
    std::string text = {};  // of a field with a value
    bool is_set = false;    // of a switch
  };

  std::string file = {};
  const CLI::Option* file_option = nullptr;  // none where there is no --config
  std::deque<Flag> flags = {};               // whose elements never move

  // The names of the options that were given as flags, for refuse_idle_options. Not among them are
  // flags that take back what the file says.
  std::vector<std::string_view> given() const;
  // The flags that were given over the file over the defaults, checked. Throws an Error for what
  // cannot be run.
  RunConfig config() const;
  // The same, unchecked as a whole: for commands that do not train.
  RunConfig settings() const;

 private:
  // The defaults where there is no file.
  RunConfig of_file() const;
};

void add_config_file(CLI::App& command, RunOptions& options);
// --config and a flag for each row of the table.
void add_run_options(CLI::App& command, RunOptions& options);
// A flag for each row of some groups of the table, and no file.
void add_run_options(CLI::App& command, RunOptions& options, std::initializer_list<std::string_view> groups);
// A flag for each row of these names, in the table's order, and no file.
void add_named_options(CLI::App& command, RunOptions& options, std::initializer_list<std::string_view> names);

}  // namespace ulp
