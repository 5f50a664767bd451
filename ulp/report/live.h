// A report of folders in which runs go on: made anew when files have changed, and then only of what has.
// Runs whose files are as they were are not read again, and plans are made once.
//
// One thread looks (refresh, or follow over and over), any others take what there is (document, page).
// They never wait for one that is being made.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/report/document.h"
#include "ulp/report/found_run.h"
#include "ulp/report/run_plan.h"
#include "ulp/report/server.h"

namespace ulp {

class LiveReport {
 public:
  // Of these folders, below which there may be no run yet, shown by this page (ulp/report/page.h). Throws
  // an Error for what is no folder. Before the first refresh the report is empty.
  LiveReport(std::vector<std::string> folders, std::string_view page);

  // Whether the document is another one now. Never throws for what is in the folders. A folder that is
  // gone leaves the document as it was.
  bool refresh();

  // Refreshes until `stop`, while somebody asks: at most every second, and not at all once nobody has asked
  // for kAttentionSeconds. The pause is also kRestShare times what the last one took: however much there is
  // to read, training has nearly all of the machine.
  void follow(const std::atomic<bool>& stop);

  std::shared_ptr<const ServedDocument> document();
  std::shared_ptr<const ServedDocument> page();  // with the document in it

  // Runs that were read by all refreshes.
  size_t reads() const { return reads_; }

  static constexpr double kPeriodSeconds = 1, kAttentionSeconds = 10, kRestShare = 9;

 private:
  bool read_runs(const FoundFiles& found, const HeldLocks& locks);
  bool read_others(const FoundFiles& found);

  std::vector<std::string> folders_;
  std::string_view page_template_;

  // Of the thread that looks.
  Report report_;
  PlanBook book_;
  std::map<std::string, std::string> stamps_;  // by the run's folder or the file
  size_t budget_runs_ = 0;
  bool made_ = false;
  std::atomic<size_t> reads_ = 0;

  // Of all.
  std::atomic<double> asked_at_ = 0;
  std::mutex mutex_;
  std::shared_ptr<const ServedDocument> document_, page_;
};

// What a page says of its content in a meta element: its Content-Security-Policy, or "".
std::string policy_of(std::string_view page);

}  // namespace ulp
