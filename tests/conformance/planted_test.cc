// Errors planted on purpose, one element of every node of a step: whoever holds kernels to the
// reference must find each.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/first_step.h"
#include "ulp/backend/ref/reference.h"
#include "ulp/numeric/codec.h"
#include "ulp/numeric/storage.h"
#include "ulp/run/setup.h"

namespace ulp::conformance {
namespace {

uint32_t planted_codes = 0;  // by how many codes a narrow result is off; 0: nothing is planted
std::set<std::string> planted, planted_wide;  // tensors

// The largest number of a tensor moves towards zero. In fp32 one code is wrong where bits are
// demanded; a sum must be off by more than its bound, which a hundredth is.
void plant(const TensorInfo& tensor, const FloatFormat& format, bool exact, uint8_t* data) {
  std::vector<float> values(tensor.elements());
  const StorageSize size = storage_size(Plain{format}, values.size());
  decode(format, {data, size.code_bytes}, values);
  float& largest = *std::max_element(values.begin(), values.end(),
                                     [](float a, float b) { return std::abs(a) < std::abs(b); });
  const bool wide = format == parse_format("fp32");
  const CodecSpec spec = make_spec(format, Overflow::saturate);
  const uint32_t by = !wide ? planted_codes : exact ? 1 : 1u << 17;
  const uint32_t code =
      wide ? float_bits(largest) : encode_scalar(spec, Round::nearest_even, float_bits(largest), 0).code;
  if ((code & ((1u << spec.sign_shift) - 1)) <= by) return;  // nothing there
  largest = wide ? bits_float(code - by) : bits_float(decode_scalar(spec, code - by));
  encode(Plain{format}, {}, values, {data, size.code_bytes}, {});
  (wide ? planted_wide : planted).insert(tensor.name);
}

// The reference, and then the error.
class PlantedTask : public Task {
 public:
  PlantedTask(const Problem& problem, std::unique_ptr<Task> task)
      : Task(task->workspace()), graph_(problem.graph()), node_(problem.root()), task_(std::move(task)) {
    for (const TensorId out : node_.out) formats_.push_back(problem.format(out));
  }
  void run(const RunContext& context) override {
    task_->run(context);
    for (size_t k = 0; planted_codes > 0 && k < node_.out.size(); ++k) {
      const TensorInfo& tensor = graph_[node_.out[k]];
      const Plain* plain = std::get_if<Plain>(&formats_[k].storage);
      if (tensor.element == Element::real && plain != nullptr)
        plant(tensor, plain->format, rule_of(node_.op->name)->allowed == nullptr,
              context.bytes(node_.out[k]));
    }
  }

 private:
  const Graph& graph_;
  const Node& node_;
  std::vector<TensorFormat> formats_;
  std::unique_ptr<Task> task_;
};

std::unique_ptr<Task> make_planted(const Problem& problem) {
  const KernelDef* kernel = KernelChoice().pick(reference_backend(), problem);
  return std::make_unique<PlantedTask>(problem, kernel->make(problem));
}

const Backend& planted_backend() {
  static const Backend backend = [] {
    Backend made{"planted", {}};
    for (const KernelDef& kernel : reference_kernels())
      made.kernels.push_back({kernel.op, "planted", kernel.why_not, make_planted});
    return made;
  }();
  return backend;
}

struct Found {
  StepReport report;
  std::set<std::string> tensors;
  int failures = 0;
};

// The tensors that were reported, by how a message begins.
Found check_planted(const std::string& policy, uint32_t codes) {
  planted_codes = codes;
  planted.clear();
  planted_wide.clear();
  RunConfig config;
  config.model = "resnet8";
  config.width = 0.25;
  config.batch = 2;
  config.data = "synthetic";
  config.image_shape = "1x8x8";
  config.subset = 16;
  config.policy = policy;
  config.loss_scale = "auto";
  config.threads = 1;
  Found found;
  testing::TestPartResultArray failures;
  {
    testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
    found.report = check_first_step(config, planted_backend());
  }
  found.failures = failures.size();
  for (int i = 0; i < failures.size(); ++i) {
    std::string text = failures.GetTestPartResult(i).message();
    for (const std::string before : {"Failed\n", "the reference and the kernel differ in "}) {
      if (text.starts_with(before)) text.erase(0, before.size());
    }
    found.tensors.insert(text.substr(0, text.find(", ")));
  }
  return found;
}

TEST(Planted, NothingIsFoundWhereNothingIs) {
  for (const char* policy : {"fp32", "size:0.5"}) {
    const Found found = check_planted(policy, 0);
    EXPECT_EQ(found.failures, 0);
    const Tally total = found.report.total();
    EXPECT_GT(total.elements, 10000u);
    EXPECT_EQ(total.identical, total.elements);
    EXPECT_EQ(total.worst, 0);
  }
}

std::vector<std::string> missed(const Found& found) {
  std::vector<std::string> tensors;
  for (const auto* all : {&planted, &planted_wide}) {
    std::set_difference(all->begin(), all->end(), found.tensors.begin(), found.tensors.end(),
                        std::back_inserter(tensors));
  }
  return tensors;
}

TEST(Planted, OneElementOfEveryTensorIsFoundInFp32) {
  const Found found = check_planted("fp32", 1);
  EXPECT_EQ(missed(found), std::vector<std::string>());
  EXPECT_GT(planted_wide.size(), 100u);
  EXPECT_GT(found.report.total().worst, 1);
}

TEST(Planted, TwoCodesInOneElementOfEveryTensorAreFound) {
  const Found found = check_planted("size:0.5", 2);
  EXPECT_EQ(missed(found), std::vector<std::string>());
  EXPECT_GT(planted.size(), 50u);
  EXPECT_GE(found.report.total().further, planted.size());
}

// Of a sum that lies within its bound of the middle between two codes either is right.
TEST(Planted, OneCodeIsFoundUnlessTheSumIsNearAMidpoint) {
  const Found found = check_planted("size:0.5", 1);
  EXPECT_LE(missed(found).size(), planted.size() / 20);
  EXPECT_GE(found.report.total().next, planted.size());
  EXPECT_GT(found.report.total().worst, 1);
}

}  // namespace
}  // namespace ulp::conformance
