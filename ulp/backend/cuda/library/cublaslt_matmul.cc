#include "ulp/backend/cuda/library/cublaslt_matmul.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "ulp/backend/cuda/runtime/current.h"
#include "ulp/backend/cuda/runtime/runtime.h"
#include "ulp/base/error.h"

namespace ulp::cuda {
namespace {

void check_blas(cublasStatus_t status, std::string_view doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  if (status == CUBLAS_STATUS_ALLOC_FAILED)
    fail("cuda", "cuBLASLt: {}: no memory left on the GPU, {}", doing, memory_left());
  fail("cuda", "cuBLASLt: {}: {}", doing, cublasLtGetStatusString(status));
}

// One handle per device, shared by all threads. Never destroyed, like the plans.
cublasLtHandle_t lt_handle(int device) {
  static std::mutex mutex;
  static auto* const handles = new std::map<int, cublasLtHandle_t>;
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = (*handles)[device];
  if (handle == nullptr) check_blas(cublasLtCreate(&handle), "making a handle");
  return handle;
}

cudaDataType_t data_type(Unit unit) {
  switch (unit) {
    case Unit::fp32:
    case Unit::tf32:
      return CUDA_R_32F;
    case Unit::fp16:
      return CUDA_R_16F;
    case Unit::bf16:
      return CUDA_R_16BF;
    case Unit::e4m3:
      return CUDA_R_8F_E4M3;
  }
  fail("cuda", "no such unit: {}", static_cast<int>(unit));
}

std::string matmul_name(const MatmulShape& s, Unit unit, Written written) {
  return fmt::format("({},{}){} by ({},{}){}, rows of {}, {} and {}, batch {}{}, in {}{}",
                     s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, s.transpose_a ? "^T" : "",
                     s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.transpose_b ? "^T" : "", s.lda,
                     s.ldb, s.ldc, s.batch, s.accumulate ? ", added" : "", unit_name(unit),
                     written == Written::half ? " and written so" : "");
}

void check_shape(const MatmulShape& s, Unit unit, Written written) {
  if (s.m <= 0 || s.n <= 0 || s.k <= 0 || s.batch <= 0 || s.lda < (s.transpose_a ? s.m : s.k) ||
      s.ldb < (s.transpose_b ? s.k : s.n) || s.ldc < s.n || s.stride_a < 0 || s.stride_b < 0 ||
      (s.batch > 1 && s.stride_c < (s.m - 1) * s.ldc + s.n)) {
    fail("cuda", "not a matrix product: {}", matmul_name(s, unit, written));
  }
  if (written == Written::half && (operand_bytes(unit) != 2 || s.accumulate)) {
    fail("cuda", "no unit of 16 bits, or a sum that would be rounded more than once: {}",
         matmul_name(s, unit, written));
  }
}

template <typename T, cublasStatus_t (*Destroy)(T)>
class Owned {
 public:
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (raw != nullptr) Destroy(raw);
  }
  T raw = nullptr;
};

using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

template <typename T>
void set(const Operation& to, cublasLtMatmulDescAttributes_t name, const T& value) {
  check_blas(cublasLtMatmulDescSetAttribute(to.raw, name, &value, sizeof value), "describing a product");
}
template <typename T>
void set(const Layout& to, cublasLtMatrixLayoutAttribute_t name, const T& value) {
  check_blas(cublasLtMatrixLayoutSetAttribute(to.raw, name, &value, sizeof value), "describing a matrix");
}
template <typename T>
void set(const Preference& to, cublasLtMatmulPreferenceAttributes_t name, const T& value) {
  check_blas(cublasLtMatmulPreferenceSetAttribute(to.raw, name, &value, sizeof value),
             "stating a preference");
}

void make_layout(Layout& layout, cudaDataType_t type, int64_t rows, int64_t columns, int64_t ld,
                 int64_t batch, int64_t stride) {
  check_blas(cublasLtMatrixLayoutCreate(&layout.raw, type, static_cast<uint64_t>(rows),
                                        static_cast<uint64_t>(columns), ld),
             "describing a matrix");
  set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch));
  set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
}

// Numerical flags of an algorithm; none if cuBLASLt does not tell.
std::optional<uint64_t> flags_of(const cublasLtMatmulAlgo_t& algorithm) {
  uint64_t flags = 0;
  size_t written = 0;
  if (cublasLtMatmulAlgoCapGetAttribute(&algorithm, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &flags,
                                        sizeof flags, &written) != CUBLAS_STATUS_SUCCESS) {
    return std::nullopt;
  }
  return flags;
}

template <typename T>
std::optional<T> config_of(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t name) {
  T value{};
  size_t written = 0;
  if (cublasLtMatmulAlgoConfigGetAttribute(&algorithm, name, &value, sizeof value, &written) !=
      CUBLAS_STATUS_SUCCESS) {
    return std::nullopt;
  }
  return value;
}

// Why an algorithm does not qualify, or empty. `strict`: a tf32 product must run on tensor cores.
std::string_view why_declined(const cublasLtMatmulHeuristicResult_t& result, Unit unit, size_t limit,
                              bool strict) {
  if (result.state != CUBLAS_STATUS_SUCCESS) return "not supported";
  if (result.workspaceSize > limit) return "workspace too small";
  // Split-K parts meet in the workspace, in fp32, and a second kernel adds them in order.
  const auto scheme = config_of<uint32_t>(result.algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
  if (!scheme) return "does not tell how it adds";
  if (*scheme != CUBLASLT_REDUCTION_SCHEME_NONE && *scheme != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) {
    return "adds in place";
  }
  const std::optional<uint64_t> flags = flags_of(result.algo);
  if (!flags) return "says nothing of itself";
  if ((*flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F) != 0) return "sums in fewer bits";
  const bool tensor_core = (*flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_TENSOR_OP_MASK) != 0;
  if (unit == Unit::fp32 && tensor_core) return "rounds to tf32";
  if (unit == Unit::tf32 && strict && !tensor_core) return "not on tensor cores";
  return "";
}

}  // namespace

struct MatmulPlan::Impl {
  cublasLtHandle_t handle = nullptr;
  Operation operation;
  // cuBLASLt is column-major: it sees a row-major matrix as its transpose. So it computes C^T =
  // op(B)^T op(A)^T, and its first operand is b.
  Layout first, second, result;
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace = 0;
  float beta = 0;
  std::string title, name, note;

  // Picks the algorithm. Returns why none qualifies, or an empty text.
  std::string choose(Unit unit, size_t limit) {
    Preference preference;
    check_blas(cublasLtMatmulPreferenceCreate(&preference.raw), "stating a preference");
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(limit));
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (const auto which :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      set(preference, which, uint32_t{16});
    }
    std::array<cublasLtMatmulHeuristicResult_t, 32> results{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, operation.raw, first.raw, second.raw, result.raw, result.raw, preference.raw,
        static_cast<int>(results.size()), results.data(), &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return "the heuristic knows none";
    check_blas(status, "asking for an algorithm");
    std::map<std::string, int> declined;
    for (const bool strict : {true, false}) {
      for (int i = 0; i < count; ++i) {
        const cublasLtMatmulHeuristicResult_t& found = results[static_cast<size_t>(i)];
        const std::string_view why = why_declined(found, unit, limit, strict);
        if (!why.empty()) {
          if (strict) ++declined[std::string(why)];
          continue;
        }
        algorithm = found.algo;
        workspace = found.workspaceSize;
        name = fmt::format("cuBLASLt algorithm {}, split {}",
                           config_of<int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_ID).value_or(-1),
                           config_of<int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM).value_or(-1));
        if (!strict) note = "no tf32 algorithm, runs in fp32";
        return "";
      }
    }
    std::string text;
    for (const auto& [why, times] : declined)
      text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", why, times);
    return text.empty() ? "the heuristic knows none" : text;
  }
};

MatmulPlan::MatmulPlan(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MatmulPlan::~MatmulPlan() = default;

std::shared_ptr<MatmulPlan> MatmulPlan::find(const MatmulShape& s, Unit unit, Written written,
                                             size_t workspace_limit, std::string* why_not) {
  check_shape(s, unit, written);
  struct Entry {
    std::shared_ptr<MatmulPlan> plan;
    std::string why_not;
  };
  using Key = std::tuple<int, MatmulShape, Unit, Written, size_t>;
  static std::mutex mutex;
  static auto* const cache = new std::map<Key, Entry>;
  const int device = current_device();
  const std::lock_guard lock(mutex);
  const auto [at, fresh] = cache->try_emplace({device, s, unit, written, workspace_limit});
  Entry& entry = at->second;
  if (fresh) {
    try {
      auto impl = std::make_unique<Impl>();
      impl->handle = lt_handle(device);
      impl->title = matmul_name(s, unit, written);
      impl->beta = s.accumulate ? 1.0f : 0.0f;
      const cublasComputeType_t compute =
          unit == Unit::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
      check_blas(cublasLtMatmulDescCreate(&impl->operation.raw, compute, CUDA_R_32F), "describing a product");
      if (unit == Unit::e4m3) set(impl->operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
      set(impl->operation, CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
      set(impl->operation, CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
      make_layout(impl->first, data_type(unit), s.transpose_b ? s.k : s.n, s.transpose_b ? s.n : s.k, s.ldb,
                  s.batch, s.stride_b);
      make_layout(impl->second, data_type(unit), s.transpose_a ? s.m : s.k, s.transpose_a ? s.k : s.m, s.lda,
                  s.batch, s.stride_a);
      make_layout(impl->result, written == Written::half ? data_type(unit) : CUDA_R_32F, s.n, s.m, s.ldc,
                  s.batch, s.stride_c);
      entry.why_not = impl->choose(unit, workspace_limit);
      if (entry.why_not.empty()) {
        entry.plan.reset(new MatmulPlan(std::move(impl)));
      } else {
        entry.why_not = fmt::format("cuBLASLt has no algorithm for {}: {}", impl->title, entry.why_not);
      }
    } catch (...) {
      cache->erase(at);
      throw;
    }
  }
  if (!entry.plan && why_not != nullptr) *why_not = entry.why_not;
  return entry.plan;
}

size_t MatmulPlan::workspace() const { return impl_->workspace; }
const std::string& MatmulPlan::name() const { return impl_->name; }
const std::string& MatmulPlan::note() const { return impl_->note; }

void MatmulPlan::run(Stream stream, const void* a, const void* b, void* c, void* workspace) const {
  check_alignment(a, b, c, workspace, impl_->workspace);
  const float alpha = 1.0f;
  const cublasStatus_t status = cublasLtMatmul(
      impl_->handle, impl_->operation.raw, &alpha, b, impl_->first.raw, a, impl_->second.raw, &impl_->beta, c,
      impl_->result.raw, c, impl_->result.raw, &impl_->algorithm, workspace, impl_->workspace, stream);
  if (status != CUBLAS_STATUS_SUCCESS) {
    fail("cuda", "cuBLASLt: {}: {}", impl_->title, cublasLtGetStatusString(status));
  }
}

}  // namespace ulp::cuda
