// Policies that store every tensor in one format.
#include "ulp/numeric/nearest.h"
#include "ulp/precision/policies.h"

namespace ulp {
namespace {

struct AllFp32 : Policy {
  Assignment assign(const Graph&) const override { return {}; }
};

// Nothing is low: there is no higher format to go to.
class OneFormat : public Policy {
 public:
  explicit OneFormat(const FloatFormat& format) : format_(format) {}
  Assignment assign(const Graph& graph) const override {
    Assignment assignment;
    for (const CountedTensor& tensor : counted_tensors(graph))
      assignment.storage.emplace(tensor.name, Plain{format_});
    return assignment;
  }

 private:
  const FloatFormat format_;
};

}  // namespace

std::optional<FloatFormat> fpu_format(std::string_view policy) {
  constexpr std::string_view kName = "fpu16:";
  if (!policy.starts_with(kName)) return {};
  const FloatFormat format = parse_format(policy.substr(kName.size()));
  if (format.bits() > 16) {
    fail("precision", "policy '{}': its format must have at most 16 bits, such as bf16, fp16 or e8m5",
         policy);
  }
  make_nearest(format);
  return format;
}

// Every tensor fp32.
constinit const PolicyInfo fp32_policy = {
    "fp32", "fp32", "fp32",
    [](const PolicyRequest&) -> std::unique_ptr<Policy> { return std::make_unique<AllFp32>(); }, true};

// A machine that has one narrow format and no other: every tensor is in it.
constinit const PolicyInfo fpu16_policy = {"fpu16", "fpu16:FORMAT", "fpu16:bf16",
                                           [](const PolicyRequest& request) -> std::unique_ptr<Policy> {
                                             request.needed("a format");
                                             return std::make_unique<OneFormat>(*fpu_format(request.text));
                                           },
                                           true};

}  // namespace ulp
