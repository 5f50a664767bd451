#include "apps/ulp/stop.h"

#include <csignal>

namespace ulp {
namespace {

// Ctrl-C, a request to end, a terminal that is closed.
constexpr int kStops[] = {SIGINT, SIGTERM, SIGHUP};

std::atomic<bool> asked = false;
std::atomic<int> stop_signal = 0;

void ask_to_stop(int signal) {
  asked = true;
  stop_signal = signal;
  for (const int other : kStops) std::signal(other, SIG_DFL);
}

}  // namespace

void handle_stops(void (*handler)(int)) {
  for (const int signal : kStops) {
    if (std::signal(signal, handler) == SIG_IGN && signal == SIGHUP) std::signal(signal, SIG_IGN);
  }
}

const std::atomic<bool>& listen_for_stop() {
  handle_stops(ask_to_stop);
  return asked;
}

const std::atomic<bool>& stop_asked() { return asked; }

Stopped::Stopped() : CLI::RuntimeError(128 + stop_signal) {}

}  // namespace ulp
