#include "ulp/report/live.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/report/page.h"

namespace ulp {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string file_stamp(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return "none";
  return fmt::format("{} {} {}.{}", file.st_ino, file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
}

// A power of two: a run more does not change how much is kept of all the others, which would mean to read
// them again.
size_t rounded_up(size_t count) {
  size_t power = 1;
  while (power < count) power *= 2;
  return power;
}

}  // namespace

std::string policy_of(std::string_view page) {
  constexpr std::string_view kName = "http-equiv=\"Content-Security-Policy\"", kContent = "content=\"";
  const size_t name = page.find(kName);
  if (name == page.npos) return {};
  const size_t end = page.find('>', name);
  const size_t content = page.find(kContent, name);
  if (content == page.npos || content > end) return {};
  const size_t begin = content + kContent.size();
  std::string policy(page.substr(begin, page.find('"', begin) - begin));
  // A field of one line.
  std::replace_if(
      policy.begin(), policy.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return policy;
}

LiveReport::LiveReport(std::vector<std::string> folders, std::string_view page)
    : folders_(std::move(folders)), page_template_(page) {
  report_.title = find_runs(folders_).title;
  report_.live = true;
  document_ = std::make_shared<const ServedDocument>(document_of(report_, book_));
}

bool LiveReport::read_runs(const FoundFiles& found, const HeldLocks& locks) {
  const size_t budget_runs = rounded_up(found.runs.size());
  bool changed = budget_runs != budget_runs_;
  if (changed) stamps_.clear();
  budget_runs_ = budget_runs;
  ReadBudget budget = budget_for(budget_runs);
  // Plans of remedies take longer than all else. `ulp doctor` and `ulp report` have them.
  budget.remedies = false;

  std::map<std::string, RunRecord> known;
  for (RunRecord& run : report_.runs) known.emplace(run.folder, std::move(run));
  report_.runs.clear();
  size_t kept = 0;
  for (const FoundRun& run : found.runs) {
    const auto old = known.find(run.folder);
    std::string stamp = run_stamp(run, locks);
    std::string& last = stamps_[run.folder];
    if (old != known.end() && last == stamp && old->second.id == run.id) {
      report_.runs.push_back(std::move(old->second));
      ++kept;
      continue;
    }
    // The stamp was taken before: what is written while the run is read shows the next time.
    report_.runs.push_back(read_run(run, budget, locks));
    last = std::move(stamp);
    ++reads_;
    changed = true;
  }
  return changed || kept != known.size();
}

bool LiveReport::read_others(const FoundFiles& found) {
  bool changed = report_.benches.empty() != found.benches.empty() ||
                 report_.least_squares.size() != found.least_squares.size();
  const auto look = [&](const std::vector<FoundFile>& files) {
    for (const FoundFile& file : files) {
      std::string stamp = file_stamp(file.path);
      std::string& last = stamps_[file.path];
      changed = changed || last != stamp;
      last = std::move(stamp);
    }
  };
  look(found.benches);
  look(found.least_squares);
  if (!changed) return false;
  report_.benches.clear();
  report_.least_squares.clear();
  report_.notes = found.notes;
  for (const FoundFile& file : found.benches) {
    std::vector<BenchRecord> lines = read_benches(file, report_.notes);
    std::move(lines.begin(), lines.end(), std::back_inserter(report_.benches));
  }
  for (const FoundFile& file : found.least_squares)
    report_.least_squares.push_back(read_least_squares(file, report_.notes));
  return true;
}

bool LiveReport::refresh() {
  FoundFiles found;
  try {
    found = find_runs(folders_);
  } catch (const Error&) {
    return false;
  }
  const HeldLocks locks;
  const bool runs = read_runs(found, locks), others = read_others(found);
  if (made_ && !runs && !others) return false;
  made_ = true;
  label_groups(report_.runs);
  auto document = std::make_shared<const ServedDocument>(document_of(report_, book_));
  const std::lock_guard lock(mutex_);
  if (document->tag == document_->tag) return false;
  document_ = std::move(document);
  page_ = nullptr;
  return true;
}

void LiveReport::follow(const std::atomic<bool>& stop) {
  while (!stop) {
    const double begin = now();
    refresh();
    const double next = std::max(begin + kPeriodSeconds, now() + kRestShare * (now() - begin));
    // Looks again now and then: who sets `stop` may be a signal handler, which cannot wake anybody.
    while (!stop && (now() < next || now() - asked_at_ > kAttentionSeconds))
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

std::shared_ptr<const ServedDocument> LiveReport::document() {
  asked_at_ = now();
  const std::lock_guard lock(mutex_);
  return document_;
}

std::shared_ptr<const ServedDocument> LiveReport::page() {
  asked_at_ = now();
  std::shared_ptr<const ServedDocument> document;
  {
    const std::lock_guard lock(mutex_);
    if (page_) return page_;
    document = document_;
  }
  auto page = std::make_shared<const ServedDocument>(make_page(page_template_, document->bytes));
  const std::lock_guard lock(mutex_);
  if (document == document_) page_ = page;
  return page;
}

}  // namespace ulp
