// The options of a training run on the command line: a flag for each row of the table in ulp/train/config.h, and
// --config FILE.
#pragma once

#include <CLI/CLI.hpp>
#include <deque>
#include <string>

#include "ulp/train/config.h"

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
  const CLI::Option* file_option = nullptr;
  std::deque<Flag> flags = {};  // whose elements never move

  // The flags that were given over the file over the defaults, checked, and with the folder of the run filled in. Throws
  // an Error for what cannot be run.
  RunConfig config() const;
};

void add_run_options(CLI::App& command, RunOptions& options);

}  // namespace ulp
