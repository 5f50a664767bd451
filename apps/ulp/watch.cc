// `ulp watch`: the page of `ulp report` while runs go on, for a browser.
#include <fmt/format.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "apps/ulp/commands.h"
#include "apps/ulp/stop.h"
#include "ulp/base/error.h"
#include "ulp/report/live.h"
#include "ulp/report/page.h"
#include "ulp/report/server.h"

namespace ulp {
namespace {

struct WatchOptions {
  std::vector<std::string> folders;
  std::string address = "127.0.0.1";
  int64_t port = 0;
};

constexpr int kLowestPriority = 19;

// A thread that makes the document for as long as this lives.
class Follower {
 public:
  explicit Follower(LiveReport& report) : thread_([this, &report] { report.follow(over_); }) {}
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;
  ~Follower() {
    over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

void watch_command(const WatchOptions& options) {
  const std::string_view page = page_template();
  if (page.empty()) fail("watch", "this build has no page: {}", why_no_page());
  // Training comes first. Threads that begin later have the same priority.
  ::setpriority(PRIO_PROCESS, 0, kLowestPriority);
  LiveReport report(options.folders, page);
  ServerOptions how;
  how.address = options.address;
  how.port = static_cast<uint16_t>(options.port);
  how.policy = policy_of(page);
  ReportServer server(
      how, [&report] { return report.page(); }, [&report] { return report.document(); });
  report.refresh();
  const std::atomic<bool>& stop = listen_for_stop();
  fmt::print("{}\n", server.url());
  // Who started it with a pipe waits for this line.
  if (std::fflush(stdout) != 0) fail("output", "cannot write to standard output");
  const Follower follower(report);
  server.serve(stop);
}

}  // namespace

void add_watch_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("watch", "Show runs in a browser while they go on");
  auto options = std::make_shared<WatchOptions>();
  command->add_option("DIR", options->folders, "Runs, or folders above runs; there may be none yet")
      ->required();
  command->add_option("--port", options->port, "Port to listen on; 0: any that is free")
      ->check(CLI::Range(int64_t{0}, int64_t{65535}).description(""))
      ->capture_default_str();
  command
      ->add_option("--bind", options->address,
                   "Address to listen on. Others than this machine then reach it, with the URL alone")
      ->type_name("ADDRESS")
      ->capture_default_str();
  command->footer(
      "Prints the page's URL and serves it until Ctrl-C. Only this report can be read there, and nothing be\n"
      "changed. With --bind the URL holds a random word, without which nothing is shown.\n"
      "Examples:\n"
      "  ulp watch runs\n"
      "  ulp watch runs/assignments --port 8080\n"
      "  ulp watch runs --bind 0.0.0.0");
  command->callback([options] { watch_command(*options); });
}

}  // namespace ulp
