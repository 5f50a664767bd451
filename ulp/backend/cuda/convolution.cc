#include "ulp/backend/cuda/convolution.h"

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

#include "ulp/backend/cuda/current.h"
#include "ulp/backend/cuda/descriptor.h"
#include "ulp/backend/cuda/search.h"
#include "ulp/base/error.h"

namespace ulp::cuda {

struct ConvPlan::Impl {
  Impl(ConvKind kind, const ConvShape& shape, Unit unit)
      : search(kind, shape, unit), title(conv_name(kind, shape, unit)) {}

  mutable std::mutex mutex;  // guards candidate and ready until ready is true
  ConvSearch search;         // owns the graphs, which a compiled plan may refer to
  std::string title;
  Candidate candidate;
  size_t workspace = 0;
  std::atomic<bool> ready = false;
};

ConvPlan::ConvPlan(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ConvPlan::~ConvPlan() = default;

namespace {

void check_shape(ConvKind kind, const ConvShape& s, Unit unit) {
  const bool positive = s.n > 0 && s.h > 0 && s.w > 0 && s.c > 0 && s.k > 0 && s.kernel_h > 0 &&
                        s.kernel_w > 0 && s.stride_h > 0 && s.stride_w > 0 && s.groups > 0 &&
                        s.padding_h >= 0 && s.padding_w >= 0;
  if (!positive || s.h + 2 * s.padding_h < s.kernel_h || s.w + 2 * s.padding_w < s.kernel_w ||
      s.c % s.groups != 0 || s.k % s.groups != 0) {
    fail("cuda", "not a convolution: {}", conv_name(kind, s, unit));
  }
}

// A place in the cache: made by the first who asks, while others wait for that one alone.
struct Slot {
  std::once_flag once;
  std::shared_ptr<ConvPlan> plan;
  std::string why_not;
};

using Key = std::tuple<int, ConvKind, ConvShape, Unit, size_t>;

struct Cache {
  std::mutex mutex;
  std::map<Key, std::unique_ptr<Slot>> slots;
};

// Never destroyed: at exit the driver may end before static objects do.
Slot& slot(const Key& key) {
  static Cache* const cache = new Cache;
  const std::lock_guard lock(cache->mutex);
  std::unique_ptr<Slot>& entry = cache->slots[key];
  if (!entry) entry = std::make_unique<Slot>();
  return *entry;
}

}  // namespace

std::shared_ptr<ConvPlan> ConvPlan::find(ConvKind kind, const ConvShape& shape, Unit unit,
                                         size_t workspace_limit, std::string* why_not) {
  check_shape(kind, shape, unit);
  Slot& place = slot({current_device(), kind, shape, unit, workspace_limit});
  std::call_once(place.once, [&] {
    auto impl = std::make_unique<Impl>(kind, shape, unit);
    std::optional<Candidate> found = impl->search.next(workspace_limit);
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

std::vector<std::string> ConvPlan::engines(ConvKind kind, const ConvShape& shape, Unit unit,
                                           size_t workspace_limit) {
  check_shape(kind, shape, unit);
  return ConvSearch(kind, shape, unit).describe(workspace_limit);
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
  for (;;) {
    Candidate& candidate = impl_->candidate;
    if (!candidate.plan) candidate.plan = compile_config(*candidate.config);
    if (candidate.plan && plan_workspace(*candidate.plan) <= impl_->workspace) break;
    std::optional<Candidate> other = impl_->search.next(impl_->workspace);
    if (!other) {
      fail("cuda", "cuDNN: no engine compiles for {} within {} bytes: {}", impl_->title, impl_->workspace,
           impl_->search.summary());
    }
    candidate = std::move(*other);
  }
  impl_->ready.store(true, std::memory_order_release);
}

void ConvPlan::run(Stream stream, const void* a, const void* b, float* out, void* workspace) {
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
    try {
      cudaSetDevice(device);
      for (size_t i = next++; i < plans.size(); i = next++) plans[i]->prepare();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < workers; ++i) threads.emplace_back(work);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace ulp::cuda
