// The libraries' plans (cudnn_conv.h, cublaslt_matmul.h) as plain loops on the host, so that tests
// without a GPU run all code around them. They enforce the libraries' alignment and padding, and
// overwrite their workspace.
#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "ulp/backend/cuda/library/cublaslt_matmul.h"
#include "ulp/backend/cuda/library/cudnn_conv.h"
#include "ulp/base/error.h"
#include "ulp/numeric/scalar.h"

namespace ulp::cuda {
namespace {

// Not a round number, and larger for more items.
size_t wanted(int64_t items) { return 1001 + 16 * static_cast<size_t>(items); }

void check_call(const void* a, const void* b, const void* out, void* workspace, size_t bytes) {
  const auto bits = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
  if (((bits(a) | bits(b) | bits(out)) & 15) != 0) fail("fake", "an operand is not aligned to 16 bytes");
  if ((bits(workspace) & 255) != 0) fail("fake", "the workspace is not aligned to 256 bytes");
  std::memset(workspace, 0xFF, bytes);
}

// An fp32 sum as the libraries write it.
void write(Unit unit, Written written, double sum, void* out, int64_t i) {
  const auto x = static_cast<float>(sum);
  if (written == Written::fp32) {
    static_cast<float*>(out)[i] = x;
    return;
  }
  const CodecSpec spec = make_spec(operand_format(unit), Overflow::infinity);
  const Encoded made = encode_scalar(spec, Round::nearest_even, float_bits(x), 0);
  static_cast<uint16_t*>(out)[i] = static_cast<uint16_t>(made.code);
}

std::vector<float> values(Unit unit, const void* data, int64_t count) {
  std::vector<float> made(static_cast<size_t>(count));
  const CodecSpec spec = make_spec(operand_format(unit), Overflow::saturate);
  for (size_t i = 0; i < made.size(); ++i) {
    uint32_t code = 0;
    std::memcpy(&code, static_cast<const uint8_t*>(data) + i * operand_bytes(unit), operand_bytes(unit));
    made[i] = operand_bytes(unit) == sizeof(float) ? bits_float(unit == Unit::tf32 ? code & ~0x1FFFu : code)
                                                   : bits_float(decode_scalar(spec, code));
  }
  return made;
}

}  // namespace

struct ConvPlan::Impl {
  ConvKind kind;
  ConvExtents shape;
  Unit unit;
  Written written;
  bool prepared = false;
};

ConvPlan::ConvPlan(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ConvPlan::~ConvPlan() = default;

std::shared_ptr<ConvPlan> ConvPlan::find(ConvKind kind, const ConvExtents& shape, Unit unit,
                                         const ConvEnding& ending, size_t workspace_limit,
                                         std::string* why_not) {
  const auto granule = static_cast<int64_t>(16 / operand_bytes(unit));
  std::string why;
  if (shape.c % granule != 0 || shape.out_c % granule != 0) why = "channels are not padded";
  if (wanted(shape.n) > workspace_limit) why = "the workspace is too small";
  if (!why.empty()) {
    if (why_not != nullptr) *why_not = why;
    return nullptr;
  }
  return std::shared_ptr<ConvPlan>(
      new ConvPlan(std::make_unique<Impl>(Impl{kind, shape, unit, ending.written})));
}

std::vector<std::string> ConvPlan::engines(ConvKind, const ConvExtents&, Unit, const ConvEnding&, size_t) {
  return {"loops"};
}
size_t ConvPlan::workspace() const { return wanted(impl_->shape.n); }
std::string ConvPlan::name() const { return "loops"; }
std::string ConvPlan::note() const { return "by loops"; }
void ConvPlan::prepare() { impl_->prepared = true; }

void ConvPlan::run(Stream, const void* a, const void* b, void* out, void* workspace) {
  prepare();
  check_call(a, b, out, workspace, this->workspace());
  const GroupedConv s(impl_->shape);
  const ConvKind kind = impl_->kind;
  const uint64_t x_count = s.x_elements(), out_count = s.out_elements(), weight_count = s.weight_elements();
  const bool forward = kind == ConvKind::forward, grad_input = kind == ConvKind::grad_input;
  const std::vector<float> first = values(impl_->unit, a, grad_input ? out_count : x_count),
                           second = values(impl_->unit, b, forward || grad_input ? weight_count : out_count);
  std::vector<double> sums(forward ? out_count : grad_input ? x_count : weight_count);
  for (int64_t row = 0; row < s.n * s.out_h * s.out_w; ++row) {
    const int64_t ox = row % s.out_w, oy = row / s.out_w % s.out_h, image = row / s.out_w / s.out_h;
    for (int64_t tap = 0; tap < s.taps(); ++tap) {
      const int64_t ky = tap / s.kernel_w, kx = tap % s.kernel_w, y = s.row(oy, ky), x = s.column(ox, kx);
      if (!s.inside(y, x)) continue;
      for (int64_t o = 0; o < s.out_c; ++o) {
        for (int64_t i = 0; i < s.group_c; ++i) {
          const auto x_at = static_cast<size_t>(s.x_at(image, y, x, s.first_channel(o) + i));
          const auto out_at = static_cast<size_t>(row * s.out_c + o);
          const auto weight_at = static_cast<size_t>(s.weight_at(o, ky, kx, i));
          if (forward) {
            sums[out_at] += static_cast<double>(first[x_at]) * second[weight_at];
          } else if (grad_input) {
            sums[x_at] += static_cast<double>(first[out_at]) * second[weight_at];
          } else {
            sums[weight_at] += static_cast<double>(first[x_at]) * second[out_at];
          }
        }
      }
    }
  }
  for (size_t i = 0; i < sums.size(); ++i)
    write(impl_->unit, impl_->written, sums[i], out, static_cast<int64_t>(i));
}

void prepare_all(std::span<const std::shared_ptr<ConvPlan>> plans) {
  for (const auto& plan : plans) plan->prepare();
}

struct MatmulPlan::Impl {
  MatmulShape shape;
  Unit unit;
  Written written;
  size_t workspace;
  std::string name = "loops", note = "by loops";
};

MatmulPlan::MatmulPlan(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MatmulPlan::~MatmulPlan() = default;

std::shared_ptr<MatmulPlan> MatmulPlan::find(const MatmulShape& s, Unit unit, Written written,
                                             size_t workspace_limit, std::string* why_not) {
  const auto granule = static_cast<int64_t>(16 / operand_bytes(unit));
  const size_t workspace = wanted(s.m + s.batch);
  std::string why;
  if (s.lda < (s.transpose_a ? s.m : s.k) || s.ldb < (s.transpose_b ? s.k : s.n) || s.ldc < s.n)
    why = "rows overlap";
  const auto out_granule = static_cast<int64_t>(16 / written_bytes(written));
  if (s.lda % granule != 0 || s.ldb % granule != 0 || s.ldc % out_granule != 0) why = "rows are not padded";
  if (workspace > workspace_limit) why = "the workspace is too small";
  if (!why.empty()) {
    if (why_not != nullptr) *why_not = why;
    return nullptr;
  }
  return std::shared_ptr<MatmulPlan>(
      new MatmulPlan(std::make_unique<Impl>(Impl{s, unit, written, workspace})));
}

size_t MatmulPlan::workspace() const { return impl_->workspace; }
const std::string& MatmulPlan::name() const { return impl_->name; }
const std::string& MatmulPlan::note() const { return impl_->note; }

void MatmulPlan::run(Stream, const void* a, const void* b, void* c, void* workspace) const {
  check_call(a, b, c, workspace, impl_->workspace);
  const MatmulShape& s = impl_->shape;
  // From the first element to the last that is touched.
  const auto extent = [&](int64_t rows, int64_t columns, int64_t ld, int64_t stride) {
    return (s.batch - 1) * stride + (rows - 1) * ld + columns;
  };
  const std::vector<float> first = values(impl_->unit, a,
                                          s.transpose_a ? extent(s.k, s.m, s.lda, s.stride_a)
                                                        : extent(s.m, s.k, s.lda, s.stride_a)),
                           second = values(impl_->unit, b,
                                           s.transpose_b ? extent(s.n, s.k, s.ldb, s.stride_b)
                                                         : extent(s.k, s.n, s.ldb, s.stride_b));
  for (int64_t i = 0; i < s.batch * s.m * s.n; ++i) {
    const int64_t column = i % s.n, row = i / s.n % s.m, matrix = i / s.n / s.m;
    double sum = 0;
    for (int64_t l = 0; l < s.k; ++l) {
      const int64_t at_a = s.transpose_a ? l * s.lda + row : row * s.lda + l;
      const int64_t at_b = s.transpose_b ? column * s.ldb + l : l * s.ldb + column;
      sum += static_cast<double>(first[static_cast<size_t>(matrix * s.stride_a + at_a)]) *
             second[static_cast<size_t>(matrix * s.stride_b + at_b)];
    }
    const int64_t at = matrix * s.stride_c + row * s.ldc + column;
    if (s.accumulate) sum += static_cast<const float*>(c)[at];
    write(impl_->unit, impl_->written, sum, c, at);
  }
}

}  // namespace ulp::cuda
