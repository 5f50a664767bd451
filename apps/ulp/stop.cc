#include "apps/ulp/stop.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <string_view>

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

// More than one allocation of a library that has not been asked for a tensor.
constexpr rlim_t kNear = rlim_t{64} << 20;

rlim_t limit = RLIM_INFINITY;
rlim_t page = 4096;

// The addresses in use, by calls that a signal handler may make. 0 where that is unknown.
rlim_t mapped() {
  std::array<char, 64> text{};
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  const ssize_t size = file < 0 ? 0 : ::read(file, text.data(), text.size());
  if (file >= 0) ::close(file);
  rlim_t pages = 0;
  for (ssize_t i = 0; i < size && text[static_cast<size_t>(i)] >= '0'; ++i)
    pages = pages * 10 + static_cast<rlim_t>(text[static_cast<size_t>(i)] - '0');
  return pages * page;
}

// The handler is gone by now: where it returns, the same thing happens again and ends the program.
void on_crash(int) {
  if (mapped() + kNear < limit) return;
  constexpr std::string_view kText = "ulp: out of memory: the limit on addresses (ulimit -v) is reached\n";
  static_cast<void>(!::write(STDERR_FILENO, kText.data(), kText.size()));
  ::_exit(1);
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

void explain_memory_limit() {
  rlimit set{};
  if (::getrlimit(RLIMIT_AS, &set) != 0 || set.rlim_cur == RLIM_INFINITY) return;
  limit = set.rlim_cur;
  page = static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
  // A stack that has overflowed is no place for a handler.
  static std::array<char, 16384> stack;
  stack_t other{};
  other.ss_sp = stack.data();
  other.ss_size = stack.size();
  ::sigaltstack(&other, nullptr);
  struct sigaction action {};
  action.sa_handler = on_crash;
  action.sa_flags = static_cast<int>(SA_ONSTACK | SA_RESETHAND);
  for (const int crash : {SIGSEGV, SIGBUS, SIGABRT}) ::sigaction(crash, &action, nullptr);
}

Stopped::Stopped() : CLI::RuntimeError(128 + stop_signal) {}

}  // namespace ulp
