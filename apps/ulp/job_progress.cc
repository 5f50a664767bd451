#include "apps/ulp/job_progress.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <limits>
#include <string_view>

#include "apps/ulp/stop.h"
#include "ulp/base/error.h"
#include "ulp/lab/results.h"

namespace ulp {
namespace {

StopRequest stop_request;

void ask_to_stop(int signal) {
  stop_request.signal = signal;
  ++stop_request.count;
}

std::array<std::string, 3> kinds(const RunConfig& c) {
  const std::string length = c.steps > 0 ? fmt::format("{} steps", c.steps) : fmt::format("{}", c.epochs);
  const std::string work =
      fmt::format("{} {} {} {} {} {}", c.model, c.width, c.data, c.subset, c.batch, length);
  return {work + " " + c.policy + " " + c.accumulator, work, ""};
}

class JobProgress : public JobObserver {
 public:
  JobProgress(const JobList& list, size_t at_a_time)
      : list_(list), at_a_time_(at_a_time), output_(standard_output()) {
    size_t begun = 0, damaged = 0;
    for (const Job& job : list.jobs) {
      // One whose state cannot be told fails when it is to begin, and says why.
      JobState state = JobState::failed;
      try {
        state = job_state(job);
        if (state == JobState::finished) {
          // Unless it was stopped in between, that is what it took.
          times_.add(job.config, read_result(job.config.out).seconds);
          ++finished_;
        }
      } catch (const Error& error) {
        if (state == JobState::finished) {
          ++damaged;
          failures_[job.config.out] = error.what();
        }
      }
      begun += state == JobState::begun || state == JobState::failed ? 1 : 0;
      waiting_.push_back(state != JobState::finished);
    }
    print(fmt::format("{} runs: {} finished, {} to go on with, {} to begin{}; {} at a time", list.jobs.size(),
                      finished_, begun, list.jobs.size() - finished_ - begun - damaged,
                      damaged > 0 ? fmt::format(", {} damaged", damaged) : "", at_a_time));
    for (size_t i = 0; i < list.jobs.size(); ++i) {
      const auto failed = failures_.find(list.jobs[i].config.out);
      if (failed == failures_.end()) continue;
      print(fmt::format("{} failed   {}: {}", place(i), list.names[i], failed->second));
    }
  }

  void on_begin(size_t job, bool resumed) override {
    waiting_[job] = false;
    begun_[job] = {output_.seconds(), resumed};
    print(fmt::format("{} {} {}", place(job), resumed ? "goes on " : "begins  ", list_.names[job]));
  }

  void on_end(size_t job, JobEnd end, double seconds, const std::string& why) override {
    const std::string folder = list_.jobs[job].config.out;
    const auto begun = begun_.find(job);
    const bool whole = begun != begun_.end() && !begun->second.resumed;
    begun_.erase(job);
    waiting_[job] = false;
    std::string line = fmt::format("stopped  {}", list_.names[job]), reason = why;
    if (end == JobEnd::finished) {
      try {
        const RunResult result = read_result(folder);
        line = fmt::format("finished {}  best {}", list_.names[job],
                           metric_text({result.metric, result.best, result.share}));
        ++finished_;
        if (whole) times_.add(list_.jobs[job].config, seconds);
      } catch (const Error& error) {
        end = JobEnd::failed;
        reason = error.what();
      }
    }
    if (end == JobEnd::diverged) {
      constexpr std::string_view kWord = "diverged: ";
      const size_t word = why.find(kWord);
      line = fmt::format("diverged {}: {}", list_.names[job],
                         word == why.npos ? why : why.substr(word + kWord.size()));
      ++finished_;
    }
    if (end == JobEnd::failed) {
      failures_[folder] = reason;
      line = fmt::format("failed   {}: {}", list_.names[job], reason);
    }
    // After a stop nothing more begins: there is no time to tell.
    const std::string rest =
        stopping_ || end == JobEnd::interrupted ? "" : fmt::format(", left {}", duration_text(left()));
    print(fmt::format("{} {}  {}  {} done{}", place(job), line, duration_text(seconds),
                      finished_ + failures_.size(), rest));
  }

  void on_stop(size_t running) override {
    stopping_ = true;
    print(fmt::format("stopping: {} {} to save; Ctrl-C again kills", running,
                      running == 1 ? "run is" : "runs are"));
  }

  void print(const std::string& line) { output_.write(line + "\n"); }
  size_t finished() const { return finished_; }
  const JobFailures& failures() const { return failures_; }

 private:
  struct Begun {
    double at = 0;
    bool resumed = false;
  };

  std::string place(size_t job) const {
    const std::string all = std::to_string(list_.jobs.size());
    return fmt::format("[{:>{}}/{}]", job + 1, all.size(), all);
  }

  // As if the work could be divided evenly, but no less than what the longest takes that runs.
  double left() const {
    double sum = 0, longest = 0;
    for (size_t i = 0; i < waiting_.size(); ++i) {
      const auto begun = begun_.find(i);
      if (!waiting_[i] && begun == begun_.end()) continue;
      const double gone = waiting_[i] ? 0 : output_.seconds() - begun->second.at;
      const double rest = std::max(times_.expected(list_.jobs[i].config) - gone, 0.0);
      if (std::isnan(times_.expected(list_.jobs[i].config))) return rest;
      sum += rest;
      longest = std::max(longest, rest);
    }
    return std::max(sum / static_cast<double>(at_a_time_), longest);
  }

  const JobList& list_;
  const size_t at_a_time_;
  ProgressOutput output_;
  JobTimes times_;
  std::vector<bool> waiting_;
  std::map<size_t, Begun> begun_;  // those that run
  size_t finished_ = 0;
  JobFailures failures_;
  bool stopping_ = false;
};

}  // namespace

void JobTimes::add(const RunConfig& config, double seconds) {
  for (const std::string& kind : kinds(config)) {
    sums_[kind].seconds += seconds;
    ++sums_[kind].count;
  }
}

double JobTimes::expected(const RunConfig& config) const {
  for (const std::string& kind : kinds(config)) {
    const auto found = sums_.find(kind);
    if (found != sums_.end()) return found->second.seconds / static_cast<double>(found->second.count);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

JobFailures run_visibly(const JobList& list, size_t at_a_time, const std::string& go_on) {
  handle_stops(ask_to_stop);
  JobProgress progress(list, at_a_time);
  run_jobs(list.jobs, at_a_time, progress, stop_request);
  if (stop_request.count > 0) {
    progress.print(fmt::format("stopped with {} of {} runs finished; go on with: {}", progress.finished(),
                               list.jobs.size(), go_on));
    throw CLI::RuntimeError(128 + stop_request.signal);
  }
  return progress.failures();
}

}  // namespace ulp
