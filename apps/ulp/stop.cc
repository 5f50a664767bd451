#include "apps/ulp/stop.h"

#include <csignal>

namespace ulp {
namespace {

std::atomic<bool> stop_asked = false;
std::atomic<int> stop_signal = 0;

void ask_to_stop(int signal) {
  stop_asked = true;
  stop_signal = signal;
  for (const int other : {SIGINT, SIGTERM}) std::signal(other, SIG_DFL);
}

}  // namespace

const std::atomic<bool>& listen_for_stop() {
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, ask_to_stop);
  return stop_asked;
}

Stopped::Stopped() : CLI::RuntimeError(128 + stop_signal) {}

}  // namespace ulp
