// The document as web/src/data.ts has it, member by member in its order.
#include <fmt/chrono.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <map>
#include <optional>
#include <set>

#include "ulp/base/error.h"
#include "ulp/doctor/doctor.h"
#include "ulp/report/document.h"
#include "ulp/report/json_writer.h"
#include "ulp/version.h"

namespace ulp {
namespace {

// Plans that are shown step by step; of the others there are summaries. Cells of all heat maps.
constexpr size_t kMostDetails = 24, kMostCells = 1'000'000;

std::string utc(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  if (::gmtime_r(&time, &parts) == nullptr) return "";
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", parts);
}

std::string_view kind_text(Kind kind) {
  return kind == Kind::activation_grad ? "activation gradient"
         : kind == Kind::weight_grad   ? "weight gradient"
                                       : kind_name(kind);
}

Number mean(const std::vector<Number>& all) {
  double sum = 0;
  size_t count = 0;
  for (const Number& one : all) {
    if (!one) continue;
    sum += *one;
    ++count;
  }
  return count == 0 ? Number() : Number(sum / static_cast<double>(count));
}

Number last(const std::vector<Number>& all) { return all.empty() ? Number() : all.back(); }

Number log2_of(std::optional<float> value) {
  return value ? Number(std::log2(static_cast<double>(*value))) : Number();
}

class DocumentMaker {
 public:
  DocumentMaker(const Report& report, PlanBook& book) : report_(report), book_(book) {}

  std::string make(const ReportProgress& progress) {
    plan_all(progress);
    w_.object([&] {
      w_.field("version", 1);
      w_.field("title", report_.title);
      w_.field("made", utc(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
      w_.field("ulp", fmt::format("{}.{}.{}", ULP_VERSION_MAJOR, ULP_VERSION_MINOR, ULP_VERSION_PATCH));
      w_.field("live", report_.live);
      w_.key("runs").array([&] {
        for (size_t i = 0; i < report_.runs.size(); ++i) write_run(report_.runs[i], planned_[i]);
      });
      w_.key("plans").each(plans_, [&](const RunPlan* plan) { write_plan(*plan); });
      w_.key("benches").each(report_.benches, [&](const BenchRecord& bench) { write_bench(bench); });
      w_.key("leastSquares").each(report_.least_squares, [&](const LeastSquaresRecord& one) {
        write_least_squares(one);
      });
      w_.column("notes", report_.notes);
    });
    return w_.take();
  }

 private:
  // Of a run: its plan's place, or why it has none.
  struct Planned {
    int plan = -1;
    std::string problem;
  };

  void plan_all(const ReportProgress& progress) {
    std::map<const RunPlan*, int> places;
    std::map<std::string, size_t> details;
    for (const RunRecord& run : report_.runs) {
      if (progress) progress(planned_.size(), report_.runs.size());
      const RunPlan& plan = book_.plan_of(run, places.size() < kMostDetails);
      if (!plan.problem.empty()) {
        planned_.push_back({-1, plan.problem});
        continue;
      }
      const auto [place, fresh] = places.emplace(&plan, static_cast<int>(plans_.size()));
      if (fresh) plans_.push_back(&plan);
      planned_.push_back({place->second, ""});
    }
  }

  void write_run(const RunRecord& run, const Planned& planned) {
    const RunPlan* plan = planned.plan < 0 ? nullptr : plans_[static_cast<size_t>(planned.plan)];
    std::vector<std::string> notes = run.notes;
    if (plan == nullptr && run.config) notes.push_back("its step cannot be planned: " + planned.problem);
    const bool heat = run.heat && !run.heat->step.empty() && room_for(*run.heat);
    if (run.heat && !run.heat->step.empty() && !heat)
      notes.emplace_back("its ranges are left out: the report has too many runs, name a folder with fewer");
    // A run that has ended an epoch says itself what its metric is.
    const Score score = run.epochs.count() > 0 || plan == nullptr ? run.score : plan->score;
    w_.object([&] {
      w_.field("id", run.id);
      w_.field("state", run_state_name(run.state));
      w_.column("notes", notes);
      w_.key("settings").object([&] {
        for (const auto& [name, value] : run.settings) w_.field(name, value);
      });
      w_.field("group", run.group);
      w_.field("label", run.label);
      w_.field("seed", run.config ? fmt::format("{}", run.config->seed) : "");
      w_.field("metric", score.name);
      w_.field("higherIsBetter", score.higher_is_better);
      w_.field("steps", run.steps);
      write_length(run, plan);
      w_.field("changed", utc(run.changed));
      write_summary(run, plan);
      write_epochs(run);
      write_curve(run.curve);
      write_promotions(run);
      w_.key("heat");
      if (heat) {
        write_heat(run);
      } else {
        w_.null();
      }
      w_.key("histograms").each(run.histograms, [&](const HistogramRecord& one) { write_histogram(one); });
      w_.key("shifted").each(run.shifted, [&](const ShiftedRecord& one) { write_shifted(one); });
      w_.key("doctor");
      if (run.doctor) {
        w_.object([&] {
          w_.field("sentence", run.doctor->sentence);
          w_.field("text", run.doctor->text);
        });
      } else {
        w_.null();
      }
      w_.field("plan", planned.plan);
    });
  }

  void write_length(const RunRecord& run, const RunPlan* plan) {
    uint64_t steps = 0, epochs = 0;
    if (run.config) {
      const EpochColumns& done = run.epochs;
      // What an epoch took is certain; what its data is published to be is not.
      const uint64_t each = done.count() > 0 && done.epoch[0] == 1 ? done.step[0]
                            : plan != nullptr                      ? plan->steps_per_epoch
                                                                   : 0;
      const auto wanted_steps = static_cast<uint64_t>(std::max<int64_t>(run.config->steps, 0)),
                 wanted_epochs = static_cast<uint64_t>(std::max<int64_t>(run.config->epochs, 0));
      steps = wanted_steps > 0 ? wanted_steps : wanted_epochs * each;
      epochs = wanted_steps == 0 ? wanted_epochs : each == 0 ? 0 : (wanted_steps + each - 1) / each;
    }
    w_.field("totalSteps", steps);
    w_.field("totalEpochs", epochs);
  }

  void write_summary(const RunRecord& run, const RunPlan* plan) {
    const auto planned = [&](auto figure) { return plan == nullptr ? Number() : Number(figure(*plan)); };
    const Number planned_peak =
        run.planned_peak_bytes
            ? run.planned_peak_bytes
            : planned([](const RunPlan& of) { return static_cast<double>(of.peak_bytes()); });
    w_.key("summary").object([&] {
      w_.field("best", run.best);
      w_.field("bestFp32", run.best_fp32);
      w_.field("last", last(run.epochs.test));
      w_.field("trainLoss", last(run.epochs.train_loss));
      w_.field("aggregateBits",
               planned([](const RunPlan& of) { return static_cast<double>(of.aggregate_bits); }));
      w_.field("aggregateBitsEnd", planned([&](const RunPlan& of) {
                 return static_cast<double>(of.aggregate_bits_after(run.promotions));
               }));
      w_.field("peakBytes", run.peak_bytes ? run.peak_bytes : planned_peak);
      w_.field("plannedPeakBytes", planned_peak);
      w_.field("lowPlanned", planned([](const RunPlan& of) { return of.low_ratio; }));
      w_.field("lowLast", last(run.epochs.low_ratio));
      w_.field("lowMean", mean(run.epochs.low_ratio));
      w_.field("promotions", run.promotions.size());
      w_.field("skipped", run.skipped);
      w_.field("seconds", run.seconds);
    });
  }

  void write_epochs(const RunRecord& run) {
    const EpochColumns& epochs = run.epochs;
    const bool wide = run.config && run.config->policy == "fp32" && run.config->formats.empty() &&
                      run.config->accumulator == "fp32" && epochs.test == epochs.test_fp32;
    w_.key("epochs").object([&] {
      w_.column("epoch", epochs.epoch);
      w_.column("step", epochs.step);
      w_.column("trainLoss", epochs.train_loss);
      w_.column("testLoss", epochs.test_loss);
      w_.column("train", epochs.train);
      w_.column("test", epochs.test);
      w_.column("testFp32", wide ? std::vector<Number>() : epochs.test_fp32);
      w_.column("lowRatio", epochs.low_ratio);
      w_.column("peakBytes", epochs.peak_bytes);
      w_.column("seconds", epochs.seconds);
      w_.column("examplesPerSecond", epochs.examples_per_second);
      w_.key("others").each(epochs.others, [&](const OtherMetric& one) {
        w_.object([&] {
          w_.field("name", one.name);
          w_.column("train", one.train);
          w_.column("test", one.test);
          w_.column("testFp32", wide ? std::vector<Number>() : one.test_fp32);
        });
      });
      w_.field("best", epochs.best ? static_cast<int64_t>(*epochs.best) : int64_t{-1});
    });
  }

  // Of means nobody needs more digits than fp32 has; single steps are as in the log.
  void write_numbers(std::string_view name, const std::vector<double>& all, bool exact) {
    w_.key(name).each(all, [&](double one) {
      if (exact || !(std::abs(one) < 3e38) || (one != 0 && std::abs(one) < 1e-37)) {
        w_.value(one);
      } else {
        w_.value(static_cast<float>(one));
      }
    });
  }

  void write_curve(const Curve& curve) {
    const bool exact = curve.stride == 1;
    w_.key("curve").object([&] {
      w_.field("stride", curve.stride);
      w_.column("step", curve.step);
      write_numbers("loss", curve.loss, exact);
      write_numbers("lossLow", curve.low, exact);
      write_numbers("lossHigh", curve.high, exact);
      write_numbers("lr", curve.lr, exact);
      write_numbers("scale", curve.scale, exact);
      write_numbers("cancelled", curve.cancelled, exact);
      w_.column("skipped", curve.skipped);
    });
  }

  void write_promotions(const RunRecord& run) {
    const auto column = [&](std::string_view name, const auto& of) {
      w_.key(name).each(run.promotions, [&](const PromoteEvent& event) { w_.value(of(event)); });
    };
    w_.key("promotions").object([&] {
      column("step", [](const PromoteEvent& event) { return event.step; });
      column("tensor", [](const PromoteEvent& event) { return event.tensor; });
      column("from", [](const PromoteEvent& event) { return event.from; });
      column("to", [](const PromoteEvent& event) { return event.to; });
      column("ratio", [](const PromoteEvent& event) { return event.overflow_ratio; });
    });
  }

  bool room_for(const HeatMap& heat) {
    const size_t cells = heat.tensors.size() * heat.step.size();
    if (cells_ + cells > kMostCells) return false;
    cells_ += cells;
    return true;
  }

  void write_heat(const RunRecord& run) {
    const HeatMap& heat = *run.heat;
    std::set<std::string> formats;
    for (const RangedTensor& tensor : heat.tensors) formats.insert({tensor.format, tensor.high});
    for (const PromoteEvent& event : run.promotions) formats.insert({event.from, event.to});
    const auto rows = [&](std::string_view name, const std::vector<float>& cells) {
      w_.key(name).array([&] {
        for (size_t t = 0; t < heat.tensors.size(); ++t) {
          const auto row = cells.begin() + static_cast<std::ptrdiff_t>(t * heat.step.size());
          w_.values(std::vector<float>(row, row + static_cast<std::ptrdiff_t>(heat.step.size())));
        }
      });
    };
    w_.object([&] {
      w_.key("tensors").each(heat.tensors, [&](const RangedTensor& tensor) {
        w_.object([&] {
          w_.field("name", tensor.name);
          w_.field("kind", kind_text(tensor.kind));
          w_.field("elements", tensor.elements);
          w_.field("format", tensor.format);
          w_.field("high", tensor.high);
        });
      });
      w_.column("step", heat.step);
      rows("overflow", heat.overflow);
      rows("underflow", heat.underflow);
      rows("amax", heat.amax);
      w_.key("formats").object([&] {
        for (const std::string& format : formats) {
          w_.key(format).object([&] {
            w_.field("high", log2_of(largest_of(format)));
            w_.field("low", log2_of(smallest_of(format)));
          });
        }
      });
      w_.key("words").object([&] {
        for (const auto& [tensor, words] : heat.words) w_.field(tensor, words);
      });
    });
  }

  void write_histogram(const HistogramRecord& one) {
    w_.object([&] {
      w_.field("tensor", one.tensor);
      w_.field("kind", kind_text(one.kind));
      w_.field("format", one.format);
      w_.field("of", one.of);
      w_.field("step", one.step);
      w_.field("lowest", one.lowest);
      w_.column("counts", one.counts);
      w_.field("zero", one.zero);
      w_.field("infinite", one.infinite);
      w_.field("nan", one.nan);
    });
  }

  void write_shifted(const ShiftedRecord& one) {
    w_.object([&] {
      w_.field("tensor", one.tensor);
      w_.field("kind", kind_text(one.kind));
      w_.column("step", one.step);
      w_.column("mu", one.mu);
      w_.column("m", one.m);
      w_.column("alpha", one.alpha);
      w_.column("beta", one.beta);
    });
  }

  void write_plan(const RunPlan& plan) {
    const PlanBytes& use = plan.use;
    w_.object([&] {
      w_.field("model", plan.model);
      w_.field("device", plan.device);
      w_.field("note", plan.note);
      w_.field("stateBytes", plan.state_bytes);
      w_.field("arenaBytes", plan.arena_bytes);
      w_.field("peakBytes", plan.peak_bytes());
      w_.field("peakStep", plan.peak_step);
      w_.field("aggregateBits", plan.aggregate_bits);
      w_.field("lowRatio", plan.low_ratio);
      w_.key("use").object([&] {
        w_.field("weights", use.weights);
        w_.field("optimizer", use.optimizer);
        w_.field("activations", use.activations);
        w_.field("gradients", use.gradients);
        w_.field("workspace", use.workspace);
        w_.field("snapshot", use.snapshot);
      });
      w_.key("tensors").each(plan.tensors, [&](const PlannedTensor& tensor) {
        w_.object([&] {
          w_.field("name", tensor.name);
          w_.field("op", tensor.op);
          w_.field("kind", kind_text(tensor.kind));
          w_.field("elements", tensor.elements);
          w_.field("bits", tensor.bits);
          w_.field("format", tensor.format);
          w_.field("group", tensor.group);
          w_.field("low", tensor.low);
        });
      });
      w_.key("detail");
      if (plan.detail) {
        write_detail(*plan.detail);
      } else {
        w_.null();
      }
    });
  }

  void write_detail(const PlanDetail& detail) {
    w_.object([&] {
      w_.key("steps").each(detail.steps, [&](const PlannedStep& step) {
        w_.object([&] {
          w_.field("node", step.node);
          w_.field("op", step.op);
          w_.field("kernel", step.kernel);
          w_.field("phase", step.phase);
          w_.field("more", step.more);
        });
      });
      w_.key("blocks").each(detail.blocks, [&](const PlannedBlock& block) {
        w_.object([&] {
          w_.field("name", block.name);
          w_.field("use", block.use);
          w_.field("format", block.format);
          w_.field("offset", block.offset);
          w_.field("bytes", block.bytes);
          w_.field("first", block.first);
          w_.field("last", block.last);
        });
      });
      w_.key("nodes").each(detail.nodes, [&](const PlannedNode& node) {
        w_.object([&] {
          w_.field("name", node.name);
          w_.field("op", node.op);
          w_.column("out", node.out);
          w_.column("in", node.in);
          w_.column("weights", node.weights);
        });
      });
    });
  }

  void write_bench(const BenchRecord& bench) {
    w_.object([&] {
      w_.field("id", bench.id);
      w_.field("model", bench.model);
      w_.field("policy", bench.policy);
      w_.field("label", bench.label);
      w_.field("device", bench.device);
      w_.field("batch", bench.batch);
      w_.field("seconds", bench.seconds);
      w_.field("plannedBytes", bench.planned_bytes);
      w_.field("aggregateBits", book_.aggregate_bits_of(bench));
      w_.key("kernels").each(bench.kernels, [&](const BenchRecord::Kernel& kernel) {
        w_.object([&] {
          w_.field("op", kernel.op);
          w_.field("kernel", kernel.kernel);
          w_.field("operands", kernel.operands);
          w_.field("seconds", kernel.seconds);
          w_.field("calls", kernel.calls);
        });
      });
    });
  }

  void write_least_squares(const LeastSquaresRecord& one) {
    w_.object([&] {
      w_.field("id", one.id);
      w_.field("title", one.title);
      w_.key("variants").each(one.variants, [&](const LeastSquaresRecord::Variant& variant) {
        w_.object([&] {
          w_.field("name", variant.name);
          w_.column("step", variant.step);
          w_.column("loss", variant.loss);
          w_.column("excess", variant.excess);
          w_.column("cancelled", variant.cancelled);
        });
      });
    });
  }

  const Report& report_;
  PlanBook& book_;
  JsonWriter w_;
  std::vector<Planned> planned_;  // by run
  std::vector<const RunPlan*> plans_;
  size_t cells_ = 0;
};

}  // namespace

std::string document_of(const Report& report, PlanBook& book, const ReportProgress& progress) {
  return DocumentMaker(report, book).make(progress);
}

}  // namespace ulp
