#include "ulp/backend/cuda/library/cudnn_conv.h"

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "ulp/backend/cuda/library/cudnn_descriptor.h"
#include "ulp/backend/cuda/library/cudnn_heuristics.h"
#include "ulp/backend/cuda/runtime/current.h"
#include "ulp/base/error.h"

namespace ulp::cuda {

struct ConvPlan::Impl {
  Impl(ConvKind kind, const ConvExtents& shape, Unit unit, const ConvEnding& ending)
      : search(kind, shape, unit, ending),
        title(conv_name(kind, shape, unit, ending)),
        native(unit == Unit::e4m3) {}

  mutable std::mutex mutex;  // guards candidate, failure and ready until ready is true
  ConvSearch search;         // owns the graphs, which a compiled plan may refer to
  std::string title;
  bool native;
  Candidate candidate;
  std::string failure;  // why nothing compiles
  size_t workspace = 0;
  std::atomic<bool> ready = false;
};

ConvPlan::ConvPlan(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ConvPlan::~ConvPlan() = default;

namespace {

void check_shape(ConvKind kind, const ConvExtents& s, Unit unit, const ConvEnding& ending) {
  const bool positive = s.n > 0 && s.h > 0 && s.w > 0 && s.c > 0 && s.out_c > 0 && s.kernel_h > 0 &&
                        s.kernel_w > 0 && s.stride_h > 0 && s.stride_w > 0 && s.groups > 0 &&
                        s.padding_h >= 0 && s.padding_w >= 0;
  if (!positive || s.h + 2 * s.padding_h < s.kernel_h || s.w + 2 * s.padding_w < s.kernel_w ||
      s.c % s.groups != 0 || s.out_c % s.groups != 0) {
    fail("cuda", "not a convolution: {}", conv_name(kind, s, unit, ending));
  }
  if (ending.written == Written::half && operand_bytes(unit) != 2)
    fail("cuda", "no unit of 16 bits: {}", conv_name(kind, s, unit, ending));
}

// A cache slot: the first caller makes the plan, and others wait for that slot only.
struct Slot {
  std::once_flag once;
  std::shared_ptr<ConvPlan> plan;
  std::string why_not;
};

using Key = std::tuple<int, ConvKind, ConvExtents, Unit, ConvEnding, size_t>;

struct Cache {
  std::mutex mutex;
  std::map<Key, std::unique_ptr<Slot>> slots;
};

// Never destroyed: at exit the driver may be gone before static objects are.
Slot& slot(const Key& key) {
  static Cache* const cache = new Cache;
  const std::lock_guard lock(cache->mutex);
  std::unique_ptr<Slot>& entry = cache->slots[key];
  if (!entry) entry = std::make_unique<Slot>();
  return *entry;
}

}  // namespace

std::shared_ptr<ConvPlan> ConvPlan::find(ConvKind kind, const ConvExtents& shape, Unit unit,
                                         const ConvEnding& ending, size_t workspace_limit,
                                         std::string* why_not) {
  check_shape(kind, shape, unit, ending);
  Slot& place = slot({current_device(), kind, shape, unit, ending, workspace_limit});
  std::call_once(place.once, [&] {
    auto impl = std::make_unique<Impl>(kind, shape, unit, ending);
    std::optional<Candidate> found =
        shape.groups > 1 ? impl->search.next_compiled(workspace_limit) : impl->search.next(workspace_limit);
    if (!found) {
      place.why_not = fmt::format("cuDNN has no engine for {}: {}", impl->title, impl->search.summary());
      return;
    }
    impl->workspace = found->workspace;
    impl->ready = found->plan.has_value();
    impl->candidate = std::move(*found);
    place.plan.reset(new ConvPlan(std::move(impl)));
  });
  if (!place.plan && why_not != nullptr) *why_not = place.why_not;
  return place.plan;
}

std::vector<std::string> ConvPlan::engines(ConvKind kind, const ConvExtents& shape, Unit unit,
                                           const ConvEnding& ending, size_t workspace_limit) {
  check_shape(kind, shape, unit, ending);
  return ConvSearch(kind, shape, unit, ending).describe(workspace_limit);
}

size_t ConvPlan::workspace() const { return impl_->workspace; }

std::string ConvPlan::name() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->candidate.name;
}

std::string ConvPlan::note() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->candidate.note;
}

void ConvPlan::prepare() {
  if (impl_->ready.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(impl_->mutex);
  if (impl_->ready.load(std::memory_order_relaxed)) return;
  if (impl_->failure.empty() && !impl_->search.compile(impl_->candidate, impl_->workspace)) {
    if (std::optional<Candidate> other = impl_->search.next_compiled(impl_->workspace)) {
      impl_->candidate = std::move(*other);
    } else {
      impl_->failure = fmt::format("cuDNN: no engine compiles for {} within {} bytes: {}{}", impl_->title,
                                   impl_->workspace, impl_->search.summary(),
                                   impl_->native ? "; without --fp8-native it is bf16" : "");
    }
  }
  if (!impl_->failure.empty()) fail("cuda", "{}", impl_->failure);
  impl_->ready.store(true, std::memory_order_release);
}

void ConvPlan::run(Stream stream, const void* a, const void* b, void* out, void* workspace) {
  check_alignment(a, b, out, workspace, impl_->workspace);
  prepare();
  const std::array<int64_t, 3> ids{kConvA, kConvB, kConvOut};
  const std::array<const void*, 3> pointers{a, b, out};
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const int64_t>(ids))
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, pointers.data())
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
      .seal();
  const cudnnHandle_t handle = cudnn_handle();
  check_cudnn(cudnnSetStream(handle, stream), "choosing a stream");
  const cudnnStatus_t status = cudnnBackendExecute(handle, impl_->candidate.plan->raw(), pack.raw());
  if (status != CUDNN_STATUS_SUCCESS) fail("cuda", "cuDNN: {}: {}", impl_->title, cudnn_message(status));
}

void prepare_all(std::span<const std::shared_ptr<ConvPlan>> plans) {
  const size_t workers = std::min<size_t>(plans.size(), std::max(1u, std::thread::hardware_concurrency()));
  const int device = current_device();
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&] {
    cudaSetDevice(device);
    for (size_t i = next++; i < plans.size(); i = next++) {
      try {
        plans[i]->prepare();
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < workers; ++i) threads.emplace_back(work);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace ulp::cuda
