// `ulp demo`: one tensor in many storages side by side, and a small network trained on real images.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "apps/ulp/commands.h"
#include "apps/ulp/progress.h"
#include "apps/ulp/text.h"
#include "ulp/base/error.h"
#include "ulp/base/file.h"
#include "ulp/numeric/quality.h"
#include "ulp/numeric/storage.h"
#include "ulp/report/document.h"
#include "ulp/report/page.h"
#include "ulp/run/trainer.h"

namespace ulp {
namespace {

constexpr size_t kElements = size_t{1} << 20;

// Numbers spread like a layer's gradients: signed, log-normal around 2^-12, a heavy tail on both sides.
std::vector<float> gradient_like(uint64_t seed) {
  std::vector<float> values(kElements);
  const RoundKey key{seed, 0, 0, 0};
  for (size_t i = 0; i < values.size(); ++i) {
    const double u = (random_word(key, 2 * i) + 0.5) * 0x1p-32,
                 v = (random_word(key, 2 * i + 1) + 0.5) * 0x1p-32;
    const double normal = std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
    values[i] =
        static_cast<float>(std::exp2(-12 + 4 * normal)) * (random_word(key, 2 * i) & 1 ? 1.0f : -1.0f);
  }
  return values;
}

struct Row {
  const char* storage;
  Round mode;
};

constexpr Row kRows[] = {
    {"fp32", Round::nearest_even},      {"bf16+8", Round::nearest_even},
    {"fp16+13sr", Round::nearest_even}, {"tf32", Round::nearest_even},
    {"fp16", Round::nearest_even},      {"bf16", Round::nearest_even},
    {"fp(6,9,0)", Round::nearest_even}, {"fp(6,9,0)", Round::stochastic},
    {"e8m3", Round::nearest_even},      {"e5m2", Round::nearest_even},
    {"e5m2", Round::stochastic},        {"e4m3", Round::nearest_even},
    {"fp(4,3,4)", Round::nearest_even}, {"scaled(e4m3)", Round::nearest_even},
    {"s2fp8", Round::nearest_even},     {"fp(2,1,0)", Round::nearest_even},
};

void show_formats() {
  const std::vector<float> values = gradient_like(1);
  std::vector<float> restored(values.size());
  ExponentHistogram histogram;
  fmt::print("{} numbers, spread like gradients, stored in many formats and read back:\n\n", values.size());
  fmt::print("{:<14}{:<12}{:>12}{:>8}{:>11}{:>11}{:>12}{:>10}{:>10}\n", "storage", "rounding", "bytes",
             "bits", "overflow", "to zero", "mse", "snr dB", "mean rel");
  for (const Row& row : kRows) {
    const Storage storage = parse_storage(row.storage);
    const StorageSize size = storage_size(storage, values.size());
    std::vector<uint8_t> codes(size.code_bytes);
    std::vector<uint32_t> side(size.side_words);
    const EncodeStats stats = encode(storage, {row.mode, Overflow::saturate, {}}, values, codes, side, 0,
                                     &row == kRows ? &histogram : nullptr);
    decode(storage, codes, side, restored);
    const Quality quality = compare(values, restored);
    const auto n = static_cast<double>(values.size());
    fmt::print("{:<14}{:<12}{:>12}{:>8.2f}{:>10.2f}%{:>10.2f}%{:>12.3g}{:>10.1f}{:>9.3f}%\n", row.storage,
               round_name(row.mode), bytes_text(static_cast<double>(size.bytes())),
               8 * static_cast<double>(size.bytes()) / n, 100 * static_cast<double>(stats.overflow) / n,
               100 * static_cast<double>(stats.underflow) / n, quality.mse, quality.snr_db,
               100 * quality.mean_relative);
  }

  // Where the numbers lie, and which part of that each format reaches.
  const char* shown[] = {"fp16", "fp(6,9,0)", "e5m2", "e4m3", "fp(4,3,4)"};
  fmt::print("\nelements by exponent, and what the formats reach (#: normal, +: subnormal)\n\n{:>8}  {:<42}",
             "", "");
  for (const char* name : shown) fmt::print("{:>10}", name);
  fmt::print("\n");
  uint64_t most = 1;
  for (uint64_t count : histogram.bin) most = std::max(most, count);
  for (size_t i = histogram.bin.size(); i-- > 0;) {
    if (histogram.bin[i] == 0) continue;
    const int exponent = static_cast<int>(i) + ExponentHistogram::kLowest;
    const auto width = static_cast<size_t>(
        std::ceil(40.0 * static_cast<double>(histogram.bin[i]) / static_cast<double>(most)));
    fmt::print("{:>8}  {:<42}", fmt::format("2^{}", exponent), std::string(width, '='));
    for (const char* name : shown) {
      const FloatFormat f = parse_format(name);
      const bool normal = exponent <= f.emax() && exponent >= f.emin();
      const bool subnormal = exponent < f.emin() && exponent >= f.emin() - f.man;
      fmt::print("{:>10}", normal ? "#" : subnormal ? "+" : "");
    }
    fmt::print("\n");
  }
}

// What is trained side by side; a row for each way of choosing formats.
struct DemoRun {
  const char *name, *policy;
};
constexpr DemoRun kRuns[] = {{"fp32", "fp32"}, {"half in 8 bits", "size:0.5"}, {"all in 8 bits", "size:1"}};

// A folder of its own, gone when the demo is over.
class DemoFolder {
 public:
  DemoFolder() : path_(std::filesystem::temp_directory_path() / fmt::format("ulp-demo-{}", getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~DemoFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  DemoFolder(const DemoFolder&) = delete;
  DemoFolder& operator=(const DemoFolder&) = delete;
  std::string path() const { return path_.string(); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// Progress on the screen, and the figures of the end.
class DemoProgress : public Progress {
 public:
  void on_done(const DoneReport& report) override {
    Progress::on_done(report);
    done = report;
  }
  DoneReport done;
};

// Before minutes are spent on what cannot be written.
void check_report_file(const std::string& path) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::absolute(path, error).parent_path();
  if (path.empty() || std::filesystem::is_directory(path, error) || ::access(parent.c_str(), W_OK) != 0)
    fail("demo", "cannot write the report to '{}': name a file with --report", path);
}

// The page of the runs in a folder, and where it is.
void write_report(const std::string& folder, const std::string& path) {
  if (page_template().empty()) {
    fmt::print("\nThere is no report, as this build has no page: {}.\n", why_no_page());
    return;
  }
  Report report = read_report(find_runs({&folder, 1}));
  report.title = "ulp demo";
  PlanBook book;
  write_file_atomically(path, make_page(page_template(), document_of(report, book)));
  fmt::print("\nPlots of these runs, for a browser: {}\n", std::filesystem::absolute(path).string());
}

void train_networks(const std::string& report_file) {
  const DemoFolder folder;
  std::vector<DoneReport> reports;
  for (const DemoRun& run : kRuns) {
    RunConfig config;
    config.model = "resnet8";
    config.epochs = 1;
    config.policy = run.policy;
    config.out = folder.file(run.name);
    DemoProgress progress;
    const std::atomic<bool> stop = false;
    fmt::print("\nTraining in {}:\n", run.name);
    std::fflush(stdout);
    train(config, false, progress, stop);
    reports.push_back(progress.done);
  }
  fmt::print("\n{:<16}{:>15}{:>12}{:>10}\n", "formats", "test accuracy", "peak", "time");
  for (size_t i = 0; i < reports.size(); ++i) {
    fmt::print("{:<16}{:>14.2f}%{:>12}{:>10}\n", kRuns[i].name, 100 * reports[i].best_test.value,
               bytes_text(static_cast<double>(reports[i].peak_bytes)), duration_text(reports[i].seconds));
  }
  write_report(folder.path(), report_file);
}

}  // namespace

void add_demo_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "demo", "One tensor in many formats: bytes, error, range; then a small network on Fashion-MNIST");
  struct Options {
    bool formats = false;
    std::string report = "ulp-demo.html";
  };
  auto options = std::make_shared<Options>();
  CLI::Option* formats =
      command->add_flag("--formats", options->formats, "The formats alone, without training");
  command->add_option("--report", options->report, "Where plots of the runs are written, for a browser")
      ->type_name("FILE")
      ->capture_default_str()
      ->excludes(formats);
  command->footer("Examples:\n  ulp demo\n  ulp demo --formats");
  command->callback([options] {
    if (!options->formats) check_report_file(options->report);
    show_formats();
    if (!options->formats) train_networks(options->report);
  });
}

}  // namespace ulp
