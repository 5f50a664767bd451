#include "tests/support/fake_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "ulp/backend/cpu/cpu.h"
#include "ulp/backend/found_inf.h"
#include "ulp/base/error.h"
#include "ulp/runtime/registry.h"
#include "ulp/session/engine.h"

namespace ulp::fake_device {
namespace {

using Pieces = std::map<const uint8_t*, size_t>;

void demand(bool right, const char* what) {
  if (!right) throw std::logic_error(what);
}

bool within(const Pieces& pieces, const void* data, size_t bytes) {
  const auto* begin = static_cast<const uint8_t*>(data);
  auto piece = pieces.upper_bound(begin);
  if (piece == pieces.begin()) return false;
  --piece;
  return begin + bytes <= piece->first + piece->second;
}

class FakeDevice : public Device {
 public:
  using Work = std::vector<std::function<void()>>;

  std::string_view name() const override { return "fake"; }
  bool on_host() const override { return false; }

  uint8_t* allocate(size_t bytes) override {
    wait();
    if (bytes > left()) fail("fake", "{} bytes more are needed, {} are free", bytes, left());
    void* data = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) fail("fake", "no {} bytes", bytes);
    memory_[static_cast<uint8_t*>(data)] = bytes;
    return static_cast<uint8_t*>(data);
  }
  void release(uint8_t* data, size_t bytes) override {
    demand(queue_.empty(), "memory is given back while work waits");
    demand(memory_.at(data) == bytes, "memory is given back with another size");
    memory_.erase(data);
    munmap(data, bytes);
  }
  size_t free_bytes() const override { return told_ ? left() : SIZE_MAX; }
  void limit(std::optional<size_t> bytes, bool told) {
    limit_ = bytes ? used() + *bytes : SIZE_MAX;
    told_ = told;
  }
  uint8_t* allocate_staging(size_t bytes) override {
    auto* data = new uint8_t[bytes];
    std::memset(data, 0xCD, bytes);
    staging_[data] = bytes;
    return data;
  }
  void release_staging(uint8_t* data, size_t bytes) override {
    demand(queue_.empty(), "staging is given back while work waits");
    demand(staging_.at(data) == bytes, "staging is given back with another size");
    staging_.erase(data);
    delete[] data;
  }

  void upload(uint8_t* to, const void* from, size_t bytes) override {
    demand(within(memory_, to, bytes) && !within(memory_, from, 1), "an upload that is none");
    move(to, from, bytes);
  }
  void download(void* to, const uint8_t* from, size_t bytes) override {
    demand(within(memory_, from, bytes) && !within(memory_, to, 1), "a download that is none");
    move(to, from, bytes);
  }
  void copy(uint8_t* to, const uint8_t* from, size_t bytes) override {
    demand(within(memory_, from, bytes) && within(memory_, to, bytes), "a copy of foreign memory");
    move(to, from, bytes);
  }
  void copy_async(void* to, const void* from, size_t bytes, Stream stream) override {
    for (const void* data : {static_cast<const void*>(to), from}) {
      demand(within(memory_, data, bytes) || within(staging_, data, bytes), "a copy of pageable memory");
    }
    note(stream, [=] { std::memcpy(to, from, bytes); });
  }
  void clear_async(uint8_t* to, size_t bytes, Stream stream) override {
    demand(within(memory_, to, bytes), "foreign memory is cleared");
    note(stream, [=] { std::memset(to, 0, bytes); });
  }

  std::unique_ptr<Recording> record(const std::function<void(Stream)>& work) override;
  void wait() override {
    if (queue_.empty()) return;
    const Open open(*this);
    for (const Work* work : std::exchange(queue_, {})) {
      for (const auto& one : *work) one();
    }
  }

  void note(Stream stream, std::function<void()> one) {
    demand(recorded_ != nullptr && stream == stream_of(*recorded_), "work outside of what is recorded");
    recorded_->push_back(std::move(one));
  }
  void launch(const Work& work) {
    queue_.push_back(&work);
    ++launches_;
  }
  size_t launches() const { return launches_; }

 private:
  // Lets the memory be touched.
  class Open {
   public:
    explicit Open(FakeDevice& device) : device_(device) { allow(PROT_READ | PROT_WRITE); }
    ~Open() { allow(PROT_NONE); }
    Open(const Open&) = delete;

   private:
    void allow(int access) const {
      for (const auto& [data, bytes] : device_.memory_) mprotect(const_cast<uint8_t*>(data), bytes, access);
    }
    FakeDevice& device_;
  };
  void move(void* to, const void* from, size_t bytes) {
    wait();
    const Open open(*this);
    std::memcpy(to, from, bytes);
  }
  static Stream stream_of(Work& work) { return reinterpret_cast<Stream>(&work); }
  size_t used() const {
    size_t bytes = 0;
    for (const auto& piece : memory_) bytes += piece.second;
    return bytes;
  }
  size_t left() const { return limit_ - std::min(limit_, used()); }

  Pieces memory_, staging_;
  size_t limit_ = SIZE_MAX;
  bool told_ = false;
  Work* recorded_ = nullptr;
  std::vector<const Work*> queue_;
  size_t launches_ = 0;
};

FakeDevice& device() {
  static FakeDevice made;
  return made;
}

class Noted : public Recording {
 public:
  void launch() override { device().launch(work); }
  FakeDevice::Work work;
};

std::unique_ptr<Recording> FakeDevice::record(const std::function<void(Stream)>& work) {
  auto made = std::make_unique<Noted>();
  recorded_ = &made->work;
  work(stream_of(made->work));
  recorded_ = nullptr;
  return made;
}

// A task of the CPU, to be done when the recording is. It keeps addresses, as a kernel's arguments
// do.
class LaterTask : public Task {
 public:
  LaterTask(std::unique_ptr<Task> task, bool updates)
      : Task(task->workspace()), task_(std::move(task)), updates_(updates) {}

  void run(const RunContext& context) override {
    struct Arguments {
      std::vector<uint8_t*> data;
      std::vector<const void*> feeds;
      RunContext context;
    };
    auto kept = std::make_shared<Arguments>();
    kept->data.assign(context.data.begin(), context.data.end());
    kept->feeds.assign(context.feeds.begin(), context.feeds.end());
    kept->context = context;
    kept->context.data = kept->data;
    kept->context.feeds = kept->feeds;
    device().note(context.stream, [this, kept] {
      if (!updates_ || kept->context.state->skip == 0) task_->run(kept->context);
    });
  }

 private:
  std::unique_ptr<Task> task_;
  const bool updates_;
};

class FoundInfTask : public Task {
 public:
  FoundInfTask(std::span<const TensorId> gradients, TensorId sums)
      : gradients_(gradients.begin(), gradients.end()), sums_(sums) {}

  void run(const RunContext& context) override {
    const auto stats_of = [&](uint32_t i) -> const EncodeStats& {
      return context.stats[gradients_[i].index];
    };
    const bool skip = gradients_overflowed(context.as<const float>(sums_)[0], 0,
                                           static_cast<uint32_t>(gradients_.size()), 1, stats_of);
    if (skip) const_cast<StepState*>(context.state)->skip = 1;
  }

 private:
  const std::vector<TensorId> gradients_;
  const TensorId sums_;
};

std::unique_ptr<Task> make_found_inf(const PlanContext& /*plan*/, std::span<const TensorId> gradients,
                                     TensorId sums) {
  return std::make_unique<LaterTask>(std::make_unique<FoundInfTask>(gradients, sums), false);
}

using Make = std::unique_ptr<Task> (*)(const Problem&);
constexpr size_t kMostKernels = 256;

// A kernel's maker is a plain function, so there is one for each place in the CPU's list.
template <size_t kPlace>
std::unique_ptr<Task> make_later(const Problem& problem) {
  return std::make_unique<LaterTask>(cpu_backend().kernels[kPlace].make(problem),
                                     problem.root().phase == Phase::update);
}

template <size_t... kPlaces>
std::array<Make, kMostKernels> makers(std::index_sequence<kPlaces...>) {
  return {make_later<kPlaces>...};
}

}  // namespace

const Backend& backend() {
  static const Backend made = [] {
    Backend copy = cpu_backend();
    copy.name = "fake";
    copy.device = &device();
    copy.make_found_inf = make_found_inf;
    const auto make = makers(std::make_index_sequence<kMostKernels>());
    for (size_t i = 0; i < copy.kernels.size(); ++i) copy.kernels[i].make = make.at(i);
    return copy;
  }();
  return made;
}

void add() {
  static const bool added = (add_backend("fake", backend), true);
  (void)added;
}

void launch(Stream stream, std::function<void()> work) { device().note(stream, std::move(work)); }

size_t launches() { return device().launches(); }

Shortage::Shortage(size_t bytes, bool told) { device().limit(bytes, told); }
Shortage::~Shortage() { device().limit({}, false); }

}  // namespace ulp::fake_device
