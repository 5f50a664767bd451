#include "apps/ulp/progress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace ulp {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A terminal or a file, and a clock that stands still until it is moved.
struct Screen {
  std::vector<std::string> writes;
  double now = 1000;
  size_t columns = 200;

  ProgressOutput output(bool live) {
    return {live, [this] { return columns; }, [this](std::string_view text) { writes.emplace_back(text); },
            [this] { return now; }};
  }
  std::string all() const {
    std::string text;
    for (const std::string& part : writes) text += part;
    return text;
  }
};

StartReport start() {
  StartReport r;
  r.model = "resnet20";
  r.data = "fashion-mnist";
  r.out = "runs/x";
  r.parameters = 269722;
  r.train_examples = 60000;
  r.test_examples = 10000;
  r.total_steps = 200;
  r.steps_per_epoch = 100;
  r.bytes = {1 << 20, 2 << 20, 30 << 20, 1536, 0};
  r.state_bytes_per_parameter = 8.03;
  r.threads = 2;
  return r;
}

StepReport step(uint64_t number) {
  StepReport r;
  r.step = number;
  r.total_steps = 200;
  r.steps_per_epoch = 100;
  r.epoch = (number - 1) / 100 + 1;
  r.step_in_epoch = (number - 1) % 100 + 1;
  r.epoch_loss = 0.5;
  r.epoch_metrics = {{"acc", 0.875, true}};
  r.examples_per_second = 1234.4;
  r.memory_bytes = 3 << 20;
  return r;
}

TEST(Progress, Durations) {
  EXPECT_EQ(duration_text(0), "0.0s");
  EXPECT_EQ(duration_text(9.94), "9.9s");
  EXPECT_EQ(duration_text(9.96), "10s");
  EXPECT_EQ(duration_text(59.4), "59s");
  EXPECT_EQ(duration_text(59.6), "1m00s");
  EXPECT_EQ(duration_text(245), "4m05s");
  EXPECT_EQ(duration_text(3599.7), "1h00m");
  EXPECT_EQ(duration_text(11220), "3h07m");
  EXPECT_EQ(duration_text(2 * 86400 + 4 * 3600), "2d04h");
  EXPECT_EQ(duration_text(-1), "?");
  EXPECT_EQ(duration_text(kNan), "?");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::infinity()), "?");
}

TEST(Progress, Numbers) {
  EXPECT_EQ(loss_text(2.30258), "2.3026");
  EXPECT_EQ(loss_text(123456), "1.23e+05");
  EXPECT_EQ(loss_text(kNan), "nan");
  EXPECT_EQ(loss_text(-kNan), "nan");
  EXPECT_EQ(loss_text(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(share_text(0.91234), "91.23%");
  EXPECT_EQ(share_text(1), "100.00%");
  EXPECT_EQ(share_text(-kNan), "nan");
}

TEST(Progress, Bars) {
  EXPECT_EQ(bar_text(0, 4, 8), "[........]");
  EXPECT_EQ(bar_text(1, 4, 8), "[##......]");
  EXPECT_EQ(bar_text(4, 4, 8), "[########]");
  EXPECT_EQ(bar_text(9, 4, 8), "[########]");
  EXPECT_EQ(bar_text(1, 0, 8), "[........]");
}

TEST(Progress, ClippingKeepsWholeParts) {
  EXPECT_EQ(clip_text("loss 1  left 25", 15), "loss 1  left 25");
  EXPECT_EQ(clip_text("loss 1  left 25", 14), "loss 1");
  EXPECT_EQ(clip_text("loss 1  left 25", 6), "loss 1");
  EXPECT_EQ(clip_text("loss 1  left 25", 5), "loss ");
  EXPECT_EQ(clip_text("abc", 0), "");
}

TEST(Progress, Epochs) {
  EXPECT_EQ(epoch_count(200, 100), 2u);
  EXPECT_EQ(epoch_count(201, 100), 3u);
  EXPECT_EQ(epoch_count(0, 100), 0u);
  EXPECT_EQ(epoch_count(5, 0), 0u);
}

TEST(Progress, AnEpochThatIsCutShortHasFewerSteps) {
  EXPECT_EQ(epoch_steps(1, 8, 469), 8u);
  EXPECT_EQ(epoch_steps(1, 250, 100), 100u);
  EXPECT_EQ(epoch_steps(3, 250, 100), 50u);
  EXPECT_EQ(epoch_steps(4, 250, 100), 0u);
}

TEST(Progress, TimeLeftFollowsTheRate) {
  TimeLeft time(100);
  EXPECT_TRUE(std::isnan(time.left(10, 0)));
  time.step(50, 1);
  EXPECT_TRUE(std::isnan(time.left(10, 1)));
  time.step(50.5, 2);
  EXPECT_NEAR(time.left(10, 0), 5, 1e-9);
  double now = 50.5;
  for (uint64_t i = 3; i < 1000; ++i) time.step(now += 0.25, i);
  EXPECT_NEAR(time.left(100, 0), 25, 0.1);
  time.step(now, 999);  // again: nothing new
  EXPECT_NEAR(time.left(100, 0), 25, 0.1);
}

TEST(Progress, TimeLeftHasTheEvaluationsFromTheFirstEpochOn) {
  TimeLeft time(100, 30);
  double now = 0;
  for (uint64_t i = 1; i <= 50; ++i) time.step(now += 1, i);
  // None has been seen: one is as long as 30 steps.
  EXPECT_NEAR(time.left(150, 2), 150 + 2 * 30, 1e-6);
  for (uint64_t i = 51; i <= 100; ++i) time.step(now += 1, i);
  // A quarter of the first takes 5 seconds.
  time.evaluation(now += 5, 0.25);
  EXPECT_NEAR(time.left(100, 2), 100 + 15 + 20, 1e-6);
  time.evaluation(now += 15, 1);
  EXPECT_TRUE(time.evaluated());
  time.evaluation(now += 2, 1);  // what is saved after it
  EXPECT_NEAR(time.left(100, 2), 100 + 22, 1e-6);
  // The pause is no part of the step after it.
  time.step(now += 1, 101);
  EXPECT_FALSE(time.evaluated());
  EXPECT_NEAR(time.left(99, 1), 99 + 22, 1e-6);
  EXPECT_NEAR(time.left(0, 1), 22, 1e-6);
}

TEST(Progress, StartSaysWhatIsPlanned) {
  const std::string text = start_text(start());
  EXPECT_EQ(text,
            "resnet20 on fashion-mnist: 269722 parameters, 60000 training and 10000 test examples\n"
            "200 steps, 100 an epoch, on 2 threads; written to runs/x\n"
            "planned memory, with 8.03 bytes of weight and state a parameter\n"
            "  weights            1.0 MiB\n"
            "  optimizer state    2.0 MiB\n"
            "  activations       30.0 MiB\n"
            "  gradients          1.5 KiB\n"
            "  workspace              0 B\n"
            "  total             33.0 MiB");
  StartReport resumed = start();
  resumed.first_step = 120;
  EXPECT_NE(start_text(resumed).find("\nresumed after step 120\n"), std::string::npos);
}

TEST(Progress, Lines) {
  EXPECT_EQ(step_text(step(107), 65, false),
            "epoch 2/2  step   7/100  1234 ex/s  loss 0.5000  acc 87.50%  left 1m05s  mem 3.0 MiB");
  EXPECT_TRUE(step_text(step(150), 65, true).starts_with("epoch 2/2  [#####.....]  50/100  1234 ex/s  "));
  // Of 8 steps no more than those that were asked for are counted.
  StepReport few = step(3);
  few.total_steps = 8;
  EXPECT_TRUE(step_text(few, 1, false).starts_with("epoch 1/1  step 3/8  "));
}

TEST(Progress, EpochsHaveHeadings) {
  EpochReport epoch;
  epoch.epoch = 3;
  epoch.train_loss = 0.5;
  epoch.train = {{"acc", 0.8, true}};
  epoch.test_loss = kNan;
  epoch.test = {{"acc", 0.1, true}};
  epoch.seconds = 75;
  epoch.examples_per_second = 12.34;
  EXPECT_EQ(epoch_heading(epoch),
            "after each epoch last.safetensors is saved; * is the best test accuracy so far, saved as "
            "best.safetensors\n"
            "    epoch  train loss  train acc  test loss  test acc     time       speed");
  EXPECT_TRUE(epoch_heading(epoch, 5).starts_with(
      "after each epoch and every 5 steps last.safetensors is saved; * is the best"));
  EXPECT_TRUE(epoch_heading(epoch, 1).starts_with("after each epoch and every step last.safetensors"));
  EXPECT_EQ(epoch_text(epoch, 10),
            "     3/10      0.5000     80.00%        nan    10.00%    1m15s   12.3 ex/s");
  epoch.narrow = true;
  epoch.test_fp32 = {{"acc", 0.125, true}};
  const std::string heading = epoch_heading(epoch), line = epoch_text(epoch, 10);
  EXPECT_TRUE(heading.ends_with("  test acc  fp32 acc     time       speed"));
  EXPECT_TRUE(line.ends_with("    10.00%    12.50%    1m15s   12.3 ex/s"));
  EXPECT_EQ(heading.size() - heading.find('\n') - 1, line.size());
  epoch.best = true;
  EXPECT_EQ(epoch_text(epoch, 10), line + " *");
}

TEST(Progress, Summary) {
  DoneReport done;
  done.best_test = {"acc", 0.9, true};
  done.final_test = {"acc", 0.89, true};
  done.peak_bytes = done.planned_peak_bytes = 1 << 20;
  done.seconds = 100;
  EXPECT_EQ(
      done_text(done),
      "done in 1m40s: test accuracy 89.00%, 90.00% at best\nmemory: 1.0 MiB at the peak, 1.0 MiB planned");
  done.rss_start_bytes = 1 << 20;
  done.rss_peak_bytes = 2 << 20;
  EXPECT_TRUE(done_text(done).ends_with("; the process had 1.0 MiB before and 2.0 MiB at its peak"));
}

TEST(Progress, ATerminalIsRedrawnTenTimesASecond) {
  Screen screen;
  Progress progress(screen.output(true));
  progress.on_start(start());
  screen.writes.clear();
  for (uint64_t i = 1; i <= 100; ++i) {
    screen.now += 0.01;
    progress.on_step(step(i));
  }
  EXPECT_GE(screen.writes.size(), 9u);
  EXPECT_LE(screen.writes.size(), 11u);
  for (const std::string& text : screen.writes) {
    EXPECT_EQ(text[0], '\r');
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
  // An epoch's line takes the place of the live one.
  const size_t drawn = screen.writes.back().size() - 1;
  screen.writes.clear();
  progress.on_epoch({});
  EXPECT_EQ(screen.all().substr(0, drawn + 2), "\r" + std::string(drawn, ' ') + "\r");
  EXPECT_EQ(screen.all().substr(drawn + 2), epoch_heading({}) + "\n" + epoch_text({}, 2) + "\n");
  // The heading stands there once.
  screen.writes.clear();
  progress.on_epoch({});
  EXPECT_EQ(screen.all(), epoch_text({}, 2) + "\n");
}

TEST(Progress, TheHeadingSaysHowOftenTheRunIsSaved) {
  Screen screen;
  Progress progress(screen.output(false), 7);
  progress.on_start(start());
  progress.on_epoch({});
  EXPECT_NE(screen.all().find("after each epoch and every 7 steps last.safetensors"), std::string::npos);
}

TEST(Progress, TheLiveLineIsClippedAndLeavesNothingOfALongerOne) {
  Screen screen;
  screen.columns = 40;
  Progress progress(screen.output(true));
  progress.on_start(start());
  progress.on_step(step(1));
  EXPECT_EQ(screen.writes.back(), "\repoch 1/2  [..........]   1/100");
  screen.now += 1;
  screen.columns = 200;
  progress.on_step(step(2));
  const size_t longer = screen.writes.back().size();
  EXPECT_GT(longer, 80u);
  screen.now += 1;
  progress.on_evaluate(5, 10);
  EXPECT_EQ(screen.writes.back().size(), longer);
  EXPECT_TRUE(screen.writes.back().starts_with("\repoch 1/2  [#####.....] test 5/10  left "));
  screen.now += 1;
  screen.columns = 0;
  progress.on_evaluate(6, 10);
  EXPECT_EQ(screen.writes.back(), "\re");
}

TEST(Progress, ALiveLineIsEndedWhenTheRunEndsWithoutAWord) {
  Screen screen;
  {
    Progress progress(screen.output(true));
    progress.on_start(start());
    progress.on_step(step(1));
  }
  EXPECT_EQ(screen.writes.back(), "\n");
  screen.writes.clear();
  {
    Progress progress(screen.output(true));
    progress.on_start(start());
    progress.on_step(step(1));
    progress.on_done({});
  }
  EXPECT_NE(screen.writes.back(), "\n");
}

// How many lines the steps of an epoch make that each take so long.
size_t plain_lines(double seconds_a_step) {
  Screen screen;
  Progress progress(screen.output(false));
  progress.on_start(start());
  screen.writes.clear();
  for (uint64_t i = 1; i <= 100; ++i) {
    screen.now += seconds_a_step;
    progress.on_step(step(i));
    progress.on_evaluate(i, 100);
  }
  for (const std::string& text : screen.writes) {
    EXPECT_EQ(text.find('\r'), std::string::npos);
    EXPECT_EQ(text.find('['), std::string::npos);
    EXPECT_EQ(text.back(), '\n');
  }
  return screen.writes.size();
}

TEST(Progress, PlainLinesAreATenthOfAnEpochAndTenSecondsApart) {
  EXPECT_EQ(plain_lines(0.01), 0u);
  EXPECT_EQ(plain_lines(0.25), 2u);
  EXPECT_EQ(plain_lines(60), 9u);  // the tenth would be just before the epoch's own
}

TEST(Progress, NotesAndWhatWasSaved) {
  Screen screen;
  Progress progress(screen.output(false));
  progress.on_note("something");
  EXPECT_EQ(screen.all(), "something\n");
  progress.on_checkpoint("x/best", 1);
  progress.on_checkpoint("x/last", 1);
  progress.on_checkpoint("x/last", 2);
  EXPECT_EQ(screen.all(), "something\n");
  progress.on_done({});
  EXPECT_TRUE(screen.all().ends_with("\nsaved: x/best, after step 1\nsaved: x/last, after step 2\n"));
}

}  // namespace
}  // namespace ulp
