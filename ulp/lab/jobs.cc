#include "ulp/lab/jobs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <thread>

#include "ulp/base/error.h"
#include "ulp/base/file.h"
#include "ulp/base/parallel.h"
#include "ulp/run/checkpoint.h"
#include "ulp/run/run_folder.h"
#include "ulp/run/setup.h"
#include "ulp/run/trainer.h"

namespace ulp {
namespace {

namespace fs = std::filesystem;

constexpr auto kLookAgain = std::chrono::milliseconds(20);
constexpr int kCannotStart = 127;  // as a shell has it

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_text(const std::string& path, const std::string& text) { write_file_atomically(path, text); }

std::string error_file(const std::string& folder) { return folder + "/error.txt"; }

// The first option in which a run differs from another, as "epochs 4"; "" if none does.
std::string first_difference(const RunConfig& a, const RunConfig& b) {
  const std::string one = run_text(with_shortest_names(a)), other = run_text(with_shortest_names(b));
  for (std::string_view left = one, right = other; left != right;) {
    const std::string_view x = left.substr(0, left.find("; ")), y = right.substr(0, right.find("; "));
    if (x != y) return std::string(x);
    left.remove_prefix(std::min(left.size(), x.size() + 2));
    right.remove_prefix(std::min(right.size(), y.size() + 2));
  }
  return "";
}

void refuse_difference(const Job& job, const RunConfig& there) {
  if (const std::string other = first_difference(there, job.config); !other.empty()) {
    fail("jobs", "{} holds a run with {}, and now has {}: remove it, or name another folder with --out",
         job.config.out, other, first_difference(job.config, there));
  }
}

// The last line of a run's output, without the name of the program.
std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  const std::string line = text.substr(text.rfind('\n') + 1);
  return line.starts_with("ulp: ") ? line.substr(5) : line;
}

// The configuration with those names of formats that the folder's own has, as its checkpoint does.
RunConfig named_as_there(const RunConfig& config) {
  const std::string file = config.out + "/config.toml";
  try {
    return fs::exists(file) ? with_names_of(config, load_config(file)) : config;
  } catch (const Error&) {
    return config;  // the file is damaged and will be replaced
  }
}

// The configuration, unless it stands there already. It must not be replaced under a run that is
// still saving.
void write_config(const RunConfig& config) {
  const std::string file = config.out + "/config.toml";
  const FileLock lock(run_lock(config.out));
  if (!lock.held()) fail("jobs", "another process is training in {}: stop it first", config.out);
  const std::string text = config_text(named_as_there(config));
  if (fs::exists(file) && read_file(file) == text) return;
  write_text(file, text);
}

// A process that runs a job.
struct Child {
  size_t job = 0;
  double started = 0;
};

// Becomes the training program. Between fork and exec no function may be called that takes a lock.
[[noreturn]] void become_training(const char* folder, int null, int log, int error, pid_t parent,
                                  const sigset_t& mask) {
  // Our handlers would only count here, and a stop that was passed on would be lost.
  for (const int stop : {SIGINT, SIGTERM, SIGHUP}) std::signal(stop, SIG_DFL);
  // Out of the terminal's group: Ctrl-C comes from us alone, once. And should we be killed, it
  // saves and ends.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kCannotStart);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  dup2(null, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(error, STDERR_FILENO);
  // The very program that runs now, also where another has been built since.
  execl("/proc/self/exe", "ulp", "train", "--resume", folder, static_cast<char*>(nullptr));
  _exit(kCannotStart);
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags)
      : fd_(open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY, 0666)) {
    if (fd_ < 0) fail("jobs", "cannot open {}: {}", path, std::strerror(errno));
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(fd_); }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Keeps the signals that stop from this thread while it lives.
class StopsBlocked {
 public:
  StopsBlocked() {
    sigset_t stops;
    sigemptyset(&stops);
    for (const int stop : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&stops, stop);
    pthread_sigmask(SIG_BLOCK, &stops, &before_);
  }
  StopsBlocked(const StopsBlocked&) = delete;
  StopsBlocked& operator=(const StopsBlocked&) = delete;
  ~StopsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_ = {};
};

class JobRunner {
 public:
  JobRunner(std::span<const Job> jobs, size_t at_a_time, JobObserver& observer, const StopRequest& stop)
      : jobs_(jobs), at_a_time_(std::max<size_t>(at_a_time, 1)), observer_(observer), stop_(stop) {}
  JobRunner(const JobRunner&) = delete;
  JobRunner& operator=(const JobRunner&) = delete;
  // Only if something was thrown are there any left.
  ~JobRunner() {
    signal_all(SIGTERM);
    for (const auto& [pid, child] : children_) waitpid(pid, nullptr, 0);
  }

  void run() {
    size_t next = 0;
    while (true) {
      for (const int asked = stop_.count; passed_on_ < asked; ++passed_on_) {
        if (passed_on_ == 0) observer_.on_stop(children_.size());
        signal_all(stop_.signal);
      }
      if (stop_.count == 0) {
        while (children_.size() < at_a_time_ && next < jobs_.size()) begin(next++);
      }
      if (children_.empty() && (next == jobs_.size() || stop_.count > 0)) return;
      if (!reap()) std::this_thread::sleep_for(kLookAgain);
    }
  }

 private:
  void signal_all(int signal) {
    for (const auto& [pid, child] : children_) kill(pid, signal);
  }

  void begin(size_t job) {
    try {
      const JobState state = job_state(jobs_[job]);
      if (state == JobState::finished) return;
      observer_.on_begin(job, state != JobState::fresh);
      children_[start(jobs_[job])] = {job, now()};
    } catch (const Error& error) {
      cannot_begin(job, error.what());
    } catch (const fs::filesystem_error& error) {
      cannot_begin(job, error.what());
    }
  }

  void cannot_begin(size_t job, const std::string& why) {
    std::ofstream(error_file(jobs_[job].config.out)) << why << '\n';
    observer_.on_end(job, JobEnd::failed, 0, last_line(why));
  }

  pid_t start(const Job& job) {
    RunConfig config = job.config;
    if (config.threads == 0) {
      config.threads = std::max<int64_t>(1, thread_count() / static_cast<int64_t>(at_a_time_));
    }
    std::error_code error;
    fs::create_directories(config.out, error);
    if (error) fail("jobs", "cannot make the folder {}: {}", config.out, error.message());
    write_config(config);
    const Descriptor null("/dev/null", O_RDONLY), log(config.out + "/log.txt", O_WRONLY | O_CREAT | O_APPEND),
        errors(error_file(config.out), O_WRONLY | O_CREAT | O_TRUNC);
    const StopsBlocked blocked;
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
      become_training(config.out.c_str(), null.get(), log.get(), errors.get(), parent, blocked.before());
    }
    if (pid < 0) fail("jobs", "cannot start a process: {}", std::strerror(errno));
    return pid;
  }

  // Whether one has ended.
  bool reap() {
    bool any = false;
    for (auto at = children_.begin(); at != children_.end();) {
      int status = 0;
      const pid_t ended = waitpid(at->first, &status, WNOHANG);
      const int error = errno;
      if (ended == 0 || (ended < 0 && error == EINTR)) {
        ++at;
        continue;
      }
      const Child child = at->second;
      at = children_.erase(at);
      any = true;
      std::string why;
      JobEnd end = JobEnd::failed;
      if (ended < 0) {
        why = fmt::format("how it ended is not known: {}", std::strerror(error));
      } else {
        end = end_of(jobs_[child.job].config.out, status, why);
      }
      observer_.on_end(child.job, end, now() - child.started, why);
    }
    return any;
  }

  JobEnd end_of(const std::string& folder, int status, std::string& why) const {
    const bool finished = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    const bool diverged = WIFEXITED(status) && WEXITSTATUS(status) == kDivergedCode;
    // A signal ended the process, or the handler that the process had for it.
    const bool by_signal = WIFSIGNALED(status) || WEXITSTATUS(status) == 128 + stop_.signal;
    if (diverged) why = job_error(folder);
    if (finished || diverged || (stop_.count > 0 && by_signal)) {
      std::error_code ignored;
      fs::remove(error_file(folder), ignored);
      return finished ? JobEnd::finished : diverged ? JobEnd::diverged : JobEnd::interrupted;
    }
    why = job_error(folder);
    if (!WIFSIGNALED(status) && !why.empty()) return JobEnd::failed;
    why = WIFSIGNALED(status)
              ? fmt::format("killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)))
              : fmt::format("ended with code {}", WEXITSTATUS(status));
    std::ofstream(error_file(folder), std::ios::app) << why << '\n';
    return JobEnd::failed;
  }

  const std::span<const Job> jobs_;
  const size_t at_a_time_;
  JobObserver& observer_;
  const StopRequest& stop_;
  std::map<pid_t, Child> children_;
  int passed_on_ = 0;
};

}  // namespace

JobState job_state(const Job& job) {
  const std::string& folder = job.config.out;
  std::error_code error;
  const bool saved = fs::exists(folder + "/last.safetensors", error);
  const bool begun = saved || fs::exists(folder + "/metrics.jsonl", error);
  if (begun) {
    const std::string file = folder + "/config.toml";
    if (!fs::exists(file, error)) fail("jobs", "{} holds a run without {}: remove the folder", folder, file);
    refuse_difference(job, load_config(file));
  }
  try {
    if (saved && checkpoint_finished(folder + "/last.safetensors", run_text(named_as_there(job.config)))) {
      return JobState::finished;
    }
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch)
    // The file is damaged. Training says so when it is to go on with it.
  }
  if (!job_error(folder).empty()) return JobState::failed;
  return begun ? JobState::begun : JobState::fresh;
}

void refuse_other_run(const Job& job) {
  const std::string& folder = job.config.out;
  std::error_code error;
  if (!fs::exists(folder + "/last.safetensors", error) && !fs::exists(folder + "/metrics.jsonl", error))
    return;
  std::optional<RunConfig> there;
  try {
    there = load_config(folder + "/config.toml");
  } catch (const Error&) {
    return;
  }
  refuse_difference(job, *there);
}

std::string job_error(const std::string& folder) { return last_line(read_file(error_file(folder))); }

std::unique_ptr<FileLock> lock_job_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail("jobs", "cannot make the folder {}: {}", folder, error.message());
  auto lock = std::make_unique<FileLock>(run_lock(folder));
  if (!lock->held()) fail("jobs", "another process is running what belongs in {}: stop it first", folder);
  return lock;
}

void run_jobs(std::span<const Job> jobs, size_t at_a_time, JobObserver& observer, const StopRequest& stop) {
  // Where we were started with it ignored, nobody could learn how a child ended.
  std::signal(SIGCHLD, SIG_DFL);
  JobRunner(jobs, at_a_time, observer, stop).run();
}

}  // namespace ulp
