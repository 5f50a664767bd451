#include "ulp/run/export.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "ulp/base/error.h"
#include "ulp/base/text.h"
#include "ulp/io/safetensors.h"
#include "ulp/run/setup.h"
#include "ulp/run/torch_layout.h"

namespace ulp {
namespace {

constexpr std::string_view kMean = ".running_mean", kCount = ".num_batches_tracked";

// A tensor as it will stand in the file, with its bytes.
struct Portable {
  std::string name, dtype;
  std::vector<uint64_t> shape;
  std::vector<uint8_t> bytes;
};

// Elements of so many bytes in another order.
std::vector<uint8_t> reordered(std::span<const uint8_t> bytes, size_t element,
                               const std::vector<size_t>& places) {
  std::vector<uint8_t> out(bytes.size());
  for (size_t i = 0; i < places.size(); ++i)
    std::memcpy(&out[i * element], &bytes[places[i] * element], element);
  return out;
}

Portable portable(const std::string& name, const SavedTensor& saved, const TorchLayout& layout,
                  const ExportOptions& options) {
  const std::vector<size_t> places = layout.places();
  Storage storage = saved.storage;
  // The high part's codes stand alone; the extra bits are beside them.
  const Split* split = std::get_if<Split>(&storage);
  if (split != nullptr && !options.whole) storage = Plain{split->high};
  const Plain* plain = std::get_if<Plain>(&storage);
  const std::string_view dtype = plain == nullptr || options.fp32 ? "" : safetensors_dtype(plain->format);
  if (!dtype.empty())
    return {name, std::string(dtype), layout.shape,
            reordered(saved.codes, saved.codes.size() / places.size(), places)};
  std::vector<float> values(places.size());
  decode(storage, saved.codes, plain == nullptr ? saved.side : std::span<const uint32_t>(), values);
  const std::span bytes(reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float));
  return {name, "F32", layout.shape, reordered(bytes, sizeof(float), places)};
}

// A checkpoint would be lost, and with it the run.
void check_target(const SavedRun& run, const std::string& path) {
  if (path.empty()) fail("export", "--out is empty: name a file, or leave it out");
  std::error_code error;
  for (const char* name : {"best.safetensors", "last.safetensors"}) {
    const std::string checkpoint = run.config.out + "/" + name;
    if (std::filesystem::equivalent(checkpoint, path, error)) {
      fail("export", "{} is a checkpoint of the run: name another file with --out", path);
    }
  }
}

std::string shown_shape(const std::vector<uint64_t>& shape) {
  return shape.empty() ? "one number" : fmt::format("{}", fmt::join(shape, "x"));
}

float float_of_double(const uint8_t* bytes) {
  double value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return static_cast<float>(value);
}

// The format whose codes a dtype holds; none: fp64.
std::optional<FloatFormat> format_of(std::string_view dtype) {
  for (const Preset& preset : presets()) {
    if (safetensors_dtype(preset.format) == dtype) return preset.format;
  }
  return {};
}

std::vector<float> values_of(const std::string& path, const StoredTensor& tensor, const TorchLayout& layout) {
  const std::vector<size_t> places = layout.places();
  std::vector<float> there(places.size()), here(places.size());
  if (const std::optional<FloatFormat> format = format_of(tensor.dtype)) {
    decode(Plain{*format}, tensor.bytes, {}, there);
  } else if (tensor.dtype == "F64") {
    for (size_t i = 0; i < there.size(); ++i) there[i] = float_of_double(&tensor.bytes[i * sizeof(double)]);
  } else {
    fail("init", "{}: '{}' is {}: weights are F64, F32, F16, BF16, F8_E4M3 or F8_E5M2", path, tensor.name,
         tensor.dtype);
  }
  for (size_t i = 0; i < places.size(); ++i) {
    if (!std::isfinite(there[i]))
      fail("init", "{}: '{}' holds {}: weights must be finite", path, tensor.name, there[i]);
    here[places[i]] = there[i];
  }
  return here;
}

}  // namespace

ExportReport export_weights(const SavedRun& run, const std::string& path, const ExportOptions& options) {
  check_target(run, path);
  const CheckpointFile file(run.checkpoint);
  const Facts facts = facts_of(run, file);
  const auto task = task_without_data(task_options(run.config), facts);
  const BuiltNetwork built = build_network(task->build(), task->batch().of(1), Mode::inference);
  ExportReport report;
  report.step = file.step();
  std::vector<Portable> tensors;
  for (const auto& [name, layout] : torch_layouts(built.graph)) {
    const SavedTensor saved = file.find(name, built.graph[built.graph.find(name)].shape);
    tensors.push_back(portable(name, saved, layout, options));
    report.elements += layout.rows * layout.pixels * layout.channels;
    if (name.ends_with(kMean)) {
      const std::string norm = name.substr(0, name.size() - kMean.size());
      tensors.push_back({norm + std::string(kCount), "I64", {}, std::vector<uint8_t>(sizeof(int64_t))});
    }
  }
  report.tensors = tensors.size();
  std::vector<StoredTensor> stored;
  for (const Portable& tensor : tensors)
    stored.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
  TensorMetadata metadata = {{"format", "pt"}, {"model", run.config.model}};
  for (const auto& [name, text] : facts) metadata.emplace(name, text);
  save_tensors(path, stored, metadata);
  return report;
}

void init_weights(Engine& engine, const std::string& path, uint64_t seed) {
  const TensorFile file(path, TensorSource::anywhere);
  const auto layouts = torch_layouts(engine.graph());
  std::map<std::string, const StoredTensor*> tensors;
  for (const StoredTensor& tensor : file.tensors()) {
    tensors[tensor.name] = &tensor;
    if (layouts.contains(tensor.name) || tensor.name.ends_with(kCount)) continue;
    fail("init", "{} has '{}', which the network does not: it must be of the same --model", path,
         shown_text(tensor.name));
  }
  std::map<std::string, std::vector<float>> values;
  for (const auto& [name, layout] : layouts) {
    const auto entry = tensors.find(name);
    if (entry == tensors.end()) fail("init", "{} has no '{}': it must be of the same --model", path, name);
    const StoredTensor* found = entry->second;
    if (found->shape != layout.shape) {
      fail("init", "{}: '{}' is {}, the network has {}: --width, classes and images must be the same", path,
           name, shown_shape(found->shape), shown_shape(layout.shape));
    }
    values[name] = values_of(path, *found, layout);
  }
  for (const auto& [name, of] : values) engine.state().assign(name, of, seed, 0);
}

}  // namespace ulp
