// Weights to begin with, as --init reads them. The first byte says whether the rest is a whole file, or
// changes a sound one by lines: "name=dtype" gives a tensor another type, "name" takes it away, and "+name"
// adds it again under the name with a mark.
#include <map>
#include <memory>

#include "fuzz/fuzz.h"
#include "ulp/io/safetensors.h"
#include "ulp/run/export.h"
#include "ulp/run/setup.h"
#include "ulp/run/torch_layout.h"

namespace ulp::fuzz {
namespace {

// An engine, and the tensors of a file that fits it.
class Network {
 public:
  Network() {
    RunConfig config;
    config.model = "mlp";
    config.width = 0.01;
    config.batch = 2;
    task_ = sketch_task(task_options(config), {.input = "1x2x2", .classes = 2});
    engine_ = std::make_unique<Engine>(engine_options(config, *task_));
    engine_->allocate();
    for (const auto& [name, layout] : torch_layouts(engine_->graph())) {
      const size_t elements = layout.rows * layout.pixels * layout.channels;
      tensors_[name] = {"F32", layout.shape, std::vector<uint8_t>(elements * sizeof(float))};
    }
  }

  struct Tensor {
    std::string dtype;
    std::vector<uint64_t> shape;
    std::vector<uint8_t> bytes;
  };

  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  Engine& engine() { return *engine_; }
  std::map<std::string, std::vector<uint8_t>> bytes() const {
    std::map<std::string, std::vector<uint8_t>> all;
    for (const auto& [name, slot] : engine_->state().slots()) all[name] = bytes_of(slot);
    return all;
  }

 private:
  static std::vector<uint8_t> bytes_of(const StateSlot& slot) {
    const SlotView view(slot);
    return {view.codes().begin(), view.codes().end()};
  }

  std::unique_ptr<LearningTask> task_;
  std::unique_ptr<Engine> engine_;
  std::map<std::string, Tensor> tensors_;
};

std::string changed_file(const Network& network, Cutter cutter) {
  std::map<std::string, Network::Tensor> tensors = network.tensors();
  while (!cutter.empty()) {
    const std::string_view line = cutter.until('\n');
    Cutter parts(line);
    const std::string key(parts.until('='));
    const std::string name = key.substr(key.starts_with('+') ? 1 : 0);
    const auto found = tensors.find(name);
    if (found == tensors.end()) continue;
    if (key.starts_with('+')) {
      tensors[name + std::string(parts.rest())] = found->second;
    } else if (line.find('=') == std::string_view::npos) {
      tensors.erase(found);
    } else {
      found->second.dtype = parts.rest();
    }
  }
  std::vector<StoredTensor> stored;
  for (const auto& [name, tensor] : tensors)
    stored.push_back({name, tensor.dtype, tensor.shape, tensor.bytes});
  std::string path = folder() + "/init.safetensors";
  save_tensors(path, stored, {{"format", "pt"}});
  return path;
}

}  // namespace

void try_input(std::string_view input) {
  static Network network;
  Cutter cutter(input);
  const bool whole = cutter.byte() % 2 == 0;
  const std::string path = whole ? file("init.safetensors", cutter.rest()) : changed_file(network, cutter);
  const auto before = network.bytes();
  if (!tried([&] { init_weights(network.engine(), path, 1); }))
    expect(network.bytes() == before, "a file that is refused has changed weights");
}

}  // namespace ulp::fuzz
