#include "ulp/backend/cuda/runtime/measure.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "ulp/backend/cuda/library/cublaslt_matmul.h"
#include "ulp/backend/cuda/runtime/runtime.h"
#include "ulp/base/error.h"
#include "ulp/base/philox.h"

namespace ulp {
namespace {

using cuda::check;

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "making an event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Stream stream, unsigned flags = cudaEventRecordDefault) {
    check(cudaEventRecordWithFlags(event_, stream, flags), "recording an event");
  }
  void wait() { check(cudaEventSynchronize(event_), "waiting for an event"); }
  double seconds_until(const Event& end) const {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, event_, end.event_), "reading a clock");
    return 1e-3 * ms;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

double median_seconds(const std::function<void()>& work) {
  constexpr int kRuns = 13, kWarm = 3;
  Event begin, end;
  std::vector<double> times;
  for (int i = 0; i < kRuns; ++i) {
    begin.record(nullptr);
    work();
    end.record(nullptr);
    end.wait();
    if (i >= kWarm) times.push_back(begin.seconds_until(end));
  }
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

class Piece {
 public:
  explicit Piece(size_t bytes) : bytes_(bytes), data_(cuda::gpu().allocate(bytes)) {}
  ~Piece() { cuda::gpu().release(data_, bytes_); }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;
  uint8_t* data() const { return data_; }

 private:
  size_t bytes_;
  uint8_t* data_;
};

double copy_rate() {
  constexpr size_t kBytes = size_t{1} << 30;
  const Piece from(kBytes), to(kBytes);
  const double seconds = median_seconds([&] {
    check(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, nullptr), "copying");
  });
  return 2e-9 * static_cast<double>(kBytes) / seconds;
}

// Random numbers: a product of zeros draws less power and runs faster than any real one.
double product_rate() {
  constexpr int64_t kSize = 8192;
  const cuda::MatmulShape shape = cuda::matmul_shape(kSize, kSize, kSize, false, true);
  constexpr size_t kWorkspace = size_t{32} << 20;
  std::string why;
  const auto plan = cuda::MatmulPlan::find(shape, cuda::Unit::bf16, cuda::Written::fp32, kWorkspace, &why);
  if (plan == nullptr) fail("cuda", "{}", why);
  std::vector<uint16_t> numbers(size_t{kSize} * kSize);
  for (size_t i = 0; i < numbers.size(); i += 4) {
    const PhiloxWords words = philox({{static_cast<uint32_t>(i), 0, 0, 0}}, {{1, 2}});
    // Between -4 and 4.
    for (size_t k = 0; k < 4; ++k) {
      const uint32_t word = words.word[k];
      numbers[i + k] = static_cast<uint16_t>((word & 0x807Fu) | (124u + (word >> 16 & 3u)) << 7);
    }
  }
  const Piece a(2 * numbers.size()), b(2 * numbers.size()), c(4 * numbers.size()), space(kWorkspace);
  cuda::gpu().upload(a.data(), numbers.data(), 2 * numbers.size());
  cuda::gpu().upload(b.data(), numbers.data(), 2 * numbers.size());
  const double seconds = median_seconds(
      [&] { plan->run(nullptr, a.data(), b.data(), reinterpret_cast<float*>(c.data()), space.data()); });
  return 2e-12 * kSize * kSize * kSize / seconds;
}

// Events around each step, in a recording: those of the last launch are read.
class GpuClock : public PlanClock {
 public:
  void begin(size_t step, Stream stream) override {
    spans_.push_back({step, std::make_unique<Event>(), std::make_unique<Event>()});
    spans_.back().begin->record(stream, flags(stream));
  }
  void end(size_t, Stream stream) override { spans_.back().end->record(stream, flags(stream)); }

  std::vector<PlanStepTime> take() override {
    cuda::gpu().wait();
    std::vector<PlanStepTime> times;
    for (const Span& span : spans_) {
      if (span.step >= times.size()) times.resize(span.step + 1);
      times[span.step].seconds += span.begin->seconds_until(*span.end);
      ++times[span.step].runs;
    }
    spans_.clear();
    return times;
  }

 private:
  struct Span {
    size_t step;
    std::unique_ptr<Event> begin, end;
  };

  // Within a recording an event is a graph node that anyone may read.
  static unsigned flags(Stream stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream, &status), "asking a stream");
    return status == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault;
  }

  std::vector<Span> spans_;
};

}  // namespace

Ceilings cuda_ceilings() {
  return {copy_rate(), product_rate(),
          fmt::format("copy of 1 GiB within the GPU, product of 8192x8192 matrices in bf16 by cuBLASLt; {}",
                      cuda::gpu_text())};
}

std::unique_ptr<PlanClock> cuda_clock() { return std::make_unique<GpuClock>(); }

size_t cuda_used_bytes() {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for the GPU's memory");
  return total - free;
}

}  // namespace ulp
