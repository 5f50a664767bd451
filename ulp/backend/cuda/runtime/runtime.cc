#include "ulp/backend/cuda/runtime/runtime.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "ulp/backend/cuda/library/library.h"
#include "ulp/base/error.h"

namespace ulp::cuda {
namespace {

// The compute capability that the kernels are compiled for.
constexpr int kMajor = 9, kMinor = 0;

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string mib(size_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

// Advice for when memory is short.
constexpr const char* kLess = "take a smaller --batch, more --grad-accum or narrower formats";

// A graph captured from a stream.
class Graph : public Recording {
 public:
  Graph(cudaGraphExec_t graph, cudaStream_t stream) : graph_(graph), stream_(stream) {}
  ~Graph() override { cudaGraphExecDestroy(graph_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch() override { check(cudaGraphLaunch(graph_, stream_), "launching a step"); }

 private:
  cudaGraphExec_t graph_;
  cudaStream_t stream_;
};

class Gpu : public Device {
 public:
  Gpu() {
    int count = 0, driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (driver == 0 || status == cudaErrorNoDevice || (status == cudaSuccess && count == 0)) {
      fail("cuda", "there is no NVIDIA GPU on this machine, or its driver is not loaded: use --device cpu");
    }
    if (status == cudaErrorInsufficientDriver || driver / 1000 < runtime / 1000) {
      fail("cuda", "the GPU's driver is for CUDA {}, this ulp needs one for CUDA {} or later",
           version_text(driver), version_text(runtime));
    }
    check(status, "looking for a GPU");
    check(cudaGetDeviceProperties(&properties_, 0), "asking the GPU what it is");
    if (properties_.major < kMajor || (properties_.major == kMajor && properties_.minor < kMinor)) {
      fail("cuda", "{} has compute capability {}.{}, this ulp is built for {}.{} or later", properties_.name,
           properties_.major, properties_.minor, kMajor, kMinor);
    }
    check(cudaSetDevice(0), "choosing the GPU");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
    text_ = fmt::format("{}, {} multiprocessors, driver for CUDA {}", properties_.name,
                        properties_.multiProcessorCount, version_text(driver));
  }

  std::string_view name() const override { return "cuda"; }
  bool on_host() const override { return false; }
  const std::string& text() const { return text_; }

  uint8_t* allocate(size_t bytes) override {
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // clears the error, for the next launch
      fail("cuda", "{} more are needed on the GPU, {}: {}", mib(bytes), memory_left(), kLess);
    }
    check(status, "allocating memory");
    check(cudaMemsetAsync(data, 0, bytes, stream_), "clearing memory");
    wait();
    return static_cast<uint8_t*>(data);
  }
  size_t free_bytes() const override {
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "asking for the GPU's memory");
    return free;
  }
  // Also called while the process ends, when the driver may be gone.
  void release(uint8_t* data, size_t) override { cudaFree(data); }

  uint8_t* allocate_staging(size_t bytes) override {
    void* data = nullptr;
    const cudaError_t status = cudaHostAlloc(&data, bytes, cudaHostAllocDefault);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      fail("cuda", "{} more of the machine's memory are needed for copies to the GPU, and cannot be had",
           mib(bytes));
    }
    check(status, "allocating pinned memory");
    return static_cast<uint8_t*>(data);
  }
  void release_staging(uint8_t* data, size_t) override { cudaFreeHost(data); }

  void upload(uint8_t* to, const void* from, size_t bytes) override { move(to, from, bytes); }
  void download(void* to, const uint8_t* from, size_t bytes) override { move(to, from, bytes); }
  void copy(uint8_t* to, const uint8_t* from, size_t bytes) override { move(to, from, bytes); }

  void copy_async(void* to, const void* from, size_t bytes, Stream stream) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "copying");
  }
  void clear_async(uint8_t* to, size_t bytes, Stream stream) override {
    check(cudaMemsetAsync(to, 0, bytes, stream), "clearing");
  }

  Stream side_stream(Stream stream) override {
    if (side_stream_ == nullptr)
      check(cudaStreamCreateWithFlags(&side_stream_, cudaStreamNonBlocking), "making a stream");
    wait_for(mark(stream), side_stream_);
    return side_stream_;
  }
  std::shared_ptr<void> mark(Stream stream) override {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    const std::shared_ptr<void> made(event,
                                     [](void* old) { cudaEventDestroy(static_cast<cudaEvent_t>(old)); });
    check(cudaEventRecord(event, stream), "recording an event");
    return made;
  }
  void wait_for(const std::shared_ptr<void>& mark, Stream stream) override {
    check(cudaStreamWaitEvent(stream, static_cast<cudaEvent_t>(mark.get()), 0), "waiting for an event");
  }

  std::unique_ptr<Recording> record(const std::function<void(Stream)>& work) override {
    prepare_products();
    // Relaxed mode, because kernels are loaded lazily on first use, which other modes forbid.
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), "recording a step");
    cudaGraph_t graph = nullptr;
    try {
      work(stream_);
    } catch (...) {
      cudaStreamEndCapture(stream_, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      cudaGetLastError();  // the exception tells the error; cleared for the next launch
      throw;
    }
    check(cudaStreamEndCapture(stream_, &graph), "recording a step");
    cudaGraphExec_t exec = nullptr;
    const cudaError_t status = cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    check(status, "preparing a recorded step");
    return std::make_unique<Graph>(exec, stream_);
  }

  void wait() override { check(cudaStreamSynchronize(stream_), "waiting for the GPU"); }

 private:
  void move(void* to, const void* from, size_t bytes) {
    if (bytes == 0) return;
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "copying");
    wait();
  }

  cudaDeviceProp properties_{};
  cudaStream_t stream_ = nullptr, side_stream_ = nullptr;
  std::string text_;
};

Gpu& the_gpu() {
  // Never destroyed: blocks are released while the process ends.
  static Gpu* const gpu = new Gpu;
  return *gpu;
}

}  // namespace

void check(int status, const char* what) {
  if (status == cudaSuccess) return;
  const auto error = static_cast<cudaError_t>(status);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail("cuda", "{} failed for want of memory on the GPU, {}: {}", what, memory_left(), kLess);
  }
  fail("cuda", "{} failed: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

std::string memory_left() {
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return "which does not say how much it has";
  return fmt::format("of whose {} {} are free", mib(total), mib(free));
}

void check_launch() { check(cudaGetLastError(), "launching a kernel"); }

Device& gpu() { return the_gpu(); }

std::string gpu_text() { return the_gpu().text(); }

}  // namespace ulp::cuda
