// Every operator on every backend against the reference. Another backend is one more entry of
// tested_backends, another operator a rule in conformance_bounds.cc and a case in
// conformance_cases.cc; what is forgotten fails.
#include "tests/conformance/conformance.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <vector>

#include "ulp/backend/ref/reference.h"
#include "ulp/base/error.h"
#include "ulp/base/parallel.h"

namespace ulp::conformance {
namespace {

constexpr int kMostFailures = 20;

// ULP_EVERY=7 in the environment takes every seventh case, others in each scheme, and says so:
// under a sanitizer all of them take long.
size_t every() {
  const char* text = std::getenv("ULP_EVERY");
  if (text == nullptr) return 1;
  size_t number = 0;
  const std::string_view digits = text;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size() || number == 0)
    fail("conformance", "ULP_EVERY is '{}'; it must be a number from 1", text);
  fmt::print("ULP_EVERY: one case of {} is checked\n", number);
  return number;
}

// Leaves the number of threads as it was.
class ConformanceTest : public testing::TestWithParam<std::tuple<BackendOf, size_t>> {
 protected:
  void SetUp() override { threads_ = thread_count(); }
  void TearDown() override { set_thread_count(threads_); }
  int threads_ = 1;
};

TEST_P(ConformanceTest, KernelsKeepToTheReference) {
  const auto [backend, scheme] = GetParam();
  const testing::TestResult* result = testing::UnitTest::GetInstance()->current_test_info()->result();
  const std::vector<Case>& all = cases();
  const size_t step = every();
  for (size_t i = scheme % step; i < all.size(); i += step) {
    if (all[i].large && !schemes()[scheme].required) continue;
    check(all[i], schemes()[scheme], backend());
    if (result->total_part_count() > kMostFailures) FAIL() << "no more cases are tried";
  }
}

std::string test_name(const testing::TestParamInfo<std::tuple<BackendOf, size_t>>& tested) {
  const auto [backend, scheme] = tested.param;
  std::string name = std::string(backend().name) + "_" + std::string(schemes()[scheme].name);
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Backends, ConformanceTest,
                         testing::Combine(testing::ValuesIn(tested_backends().begin(),
                                                            tested_backends().end()),
                                          testing::Range(size_t{0}, schemes().size())),
                         test_name);

// A kernel that no case reaches would be held to nothing.
TEST(Conformance, EveryKernelIsReachedInEveryRequiredScheme) {
  for (const BackendOf backend : tested_backends()) {
    for (const Scheme& scheme : schemes()) {
      if (!scheme.required) continue;
      std::set<Checked> seen;
      for (const Case& one : cases()) {
        for (const Checked& checked : reached(one, scheme, backend())) seen.insert(checked);
      }
      for (const KernelDef& kernel : backend().kernels) {
        const bool points = kernel.name == "pointwise", codes = kernel.name == "conv_igemm" || points;
        const bool wide = kernel.name == "onednn" || kernel.name == "cudnn" || kernel.name == "cublaslt" ||
                          kernel.name == "depthwise" || kernel.name == "skinny_gemm" ||
                          kernel.name == "conv_simt" || kernel.name == "pairs" || codes;
        if (kernel.name == "reference" || (scheme.compute.accumulator ? wide : kernel.name == "narrow"))
          continue;
        const bool fp32 = scheme.storages == std::vector<std::string_view>{"fp32"};
        if (fp32 ? codes : kernel.name == "conv_simt") continue;
        // Of weights' gradients the conv_igemm takes bf16 and 8 bits, as pointwise does of
        // everything.
        if (codes && (points || kernel.op == "conv2d_grad_weight") &&
            scheme.storages == std::vector<std::string_view>{"fp(6,9,0)"})
          continue;
        EXPECT_TRUE(seen.contains({kernel.op, kernel.name}))
            << "no case reaches " << kernel.op << "/" << kernel.name << " of " << backend().name << " in "
            << scheme.name;
      }
      for (const KernelDef& kernel : reference_kernels()) {
        const bool found =
            std::any_of(seen.begin(), seen.end(), [&](const Checked& c) { return c.op == kernel.op; });
        EXPECT_TRUE(found) << "no case has a " << kernel.op << " in " << scheme.name;
      }
    }
  }
}

// A rule for something that is no operator, or an operator without one, is a mistake in a name.
TEST(Conformance, EveryOperatorHasARule) {
  for (const KernelDef& kernel : reference_kernels()) EXPECT_TRUE(rule_of(kernel.op)) << kernel.op;
}

}  // namespace
}  // namespace ulp::conformance
