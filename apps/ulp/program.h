// The command line as a function, so that a program with other backends can have it too.
#pragma once

namespace ulp {

// Runs one command. Prints an error as one line to standard error. Returns the exit code: 0, 2 for
// bad input, 1 for anything else that went wrong.
int run_program(int argc, char** argv);

}  // namespace ulp
