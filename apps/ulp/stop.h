// Signals. Ctrl-C, SIGTERM and SIGHUP for commands that can stop with something kept: the first asks
// for an end after what is running, a second one, from someone who will not wait, kills.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>

namespace ulp {

// Listens from now on; what it returns becomes true at the first signal.
const std::atomic<bool>& listen_for_stop();
// The same, whether or not anything listens yet.
const std::atomic<bool>& stop_asked();

// Gives these signals to a handler. Under nohup a hang-up stays ignored.
void handle_stops(void (*handler)(int));

// Libraries write to address 0 where a limit on addresses (ulimit -v) has let an allocation of
// theirs fail. From now on a crash near such a limit is reported as out of memory, on one line, with
// exit code 1. Any other crash stays what it was.
void explain_memory_limit();

// To be thrown by a command that was stopped: the program ends as if the signal had killed it, for
// the shell that looks at the status.
struct Stopped : CLI::RuntimeError {
  Stopped();
};

}  // namespace ulp
