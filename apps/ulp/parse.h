// The command line read by the parser, with errors that name what was meant and the help page.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

namespace ulp {

// How the program reads its options; set before they are added. Of an option that is given twice
// the last value holds, and the help shows one name of each.
void set_reading(CLI::App& program);

// Parses and runs the command. Throws an Error for what is not understood: it quotes the words in
// their order, and names the nearest option or command and the help page. CLI::Success (help was
// asked for) and CLI::RuntimeError (a command ended with a code) pass through.
void parse_program(CLI::App& program, int argc, const char* const* argv);

}  // namespace ulp
