#include "ulp/run/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <list>
#include <optional>
#include <stdexcept>

#include "ulp/base/error.h"
#include "ulp/base/text.h"
#include "ulp/io/metrics.h"

namespace ulp {
namespace {

constexpr std::string_view kVersion = "2";
// Keys of the file with this prefix hold what the meter keeps of the epoch that has begun. The key
// of the sum of the loss's weights dates from when there was one term for each example.
const std::string kEpoch = "epoch_";
constexpr std::string_view kWeight = "epoch_examples";
const std::string kFact = "fact ";
constexpr std::string_view kSide = "#side";  // what is stored beside codes; no tensor's name ends so

// The whole text as a number, or none.
template <typename T>
std::optional<T> parsed(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || at != end) return std::nullopt;
  return value;
}

template <typename T>
T number(const TensorMetadata& metadata, const std::string& path, const std::string& key) {
  const auto found = metadata.find(key);
  if (found != metadata.end()) {
    if (const std::optional<T> value = parsed<T>(found->second)) return *value;
  }
  fail("checkpoint", "{} has no number '{}': it is not a checkpoint of a run", path, key);
}

bool is_finished(const TensorMetadata& metadata, const std::string& path) {
  const auto finished = number<uint64_t>(metadata, path, "finished");
  if (finished > 1) fail("checkpoint", "{} has 'finished' as {}: it must be 0 or 1", path, finished);
  return finished == 1;
}

bool saved(const StateSlot& slot) { return slot.kind != Kind::grad_sum; }

// The tensors of a slot as they stand in a file, without their bytes: its codes and what is beside them.
std::vector<StoredTensor> stored(const StateSlot& slot) {
  std::vector<StoredTensor> tensors;
  StoredTensor codes;
  codes.name = slot.name;
  const StorageSize size = storage_size(slot.storage, slot.shape.elements());
  const Plain* plain = std::get_if<Plain>(&slot.storage);
  const std::string_view dtype = plain == nullptr ? "" : safetensors_dtype(plain->format);
  if (dtype.empty()) {
    codes.dtype = "U8";
    codes.shape = {size.code_bytes};
  } else {
    codes.dtype = dtype;
    for (int axis = 0; axis < slot.shape.rank(); ++axis)
      codes.shape.push_back(static_cast<uint64_t>(slot.shape[axis]));
  }
  tensors.push_back(std::move(codes));
  if (size.side_words > 0) {
    tensors.push_back({slot.name + std::string(kSide), "U32", {size.side_words}, {}});
  }
  return tensors;
}

// How many bytes each of them has.
std::vector<size_t> stored_bytes(const StateSlot& slot) {
  const StorageSize size = storage_size(slot.storage, slot.shape.elements());
  return {size.code_bytes, 4 * size.side_words};
}

std::string format_key(const StateSlot& slot) { return "storage " + slot.name; }
std::string format_text(const StateSlot& slot) {
  return storage_name(slot.storage) + " " + shape_text(slot.shape);
}

std::string metadata_text(const TensorMetadata& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? std::string() : found->second;
}

TensorFile open_checkpoint(const std::string& path) {
  TensorFile file(path);
  if (metadata_text(file.metadata(), "format") != "ulp checkpoint") {
    fail("checkpoint", "{} is not a checkpoint of a run", path);
  }
  if (const std::string version = metadata_text(file.metadata(), "version"); version != kVersion) {
    fail("checkpoint", "{} has version '{}', this program reads version {}", path, shown_text(version),
         kVersion);
  }
  return file;
}

size_t occurrences(std::string_view text, std::string_view what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size())) ++count;
  return count;
}

// Whether the second item has more epochs than the first.
bool is_longer(std::string_view saved, std::string_view run) {
  constexpr std::string_view kKey = "epochs ";
  if (!saved.starts_with(kKey) || !run.starts_with(kKey)) return false;
  const auto before = parsed<uint64_t>(saved.substr(kKey.size()));
  const auto now = parsed<uint64_t>(run.substr(kKey.size()));
  return before && now && *now > *before;
}

// The first item in which the two differ is what the user must know. A finished run may be made
// longer; returns whether it is.
bool check_same_run(const std::string& path, std::string_view saved, std::string_view run, bool finished) {
  bool longer = false;
  while (saved != run) {
    const std::string_view a = saved.substr(0, saved.find("; ")), b = run.substr(0, run.find("; "));
    if (a.empty()) fail("checkpoint", "{} is of a run without '{}', which this one has", path, shown_text(b));
    if (b.empty()) fail("checkpoint", "{} is of a run with '{}', which this one lacks", path, shown_text(a));
    if (a != b && !is_longer(a, b))
      fail("checkpoint", "{} is of a run with {}, this one has {}", path, shown_text(a), shown_text(b));
    if (a != b && !finished) {
      fail("checkpoint", "{} is of a run with {}, this one has {}: finish it first, then make it longer",
           path, shown_text(a), shown_text(b));
    }
    longer = longer || a != b;
    saved.remove_prefix(std::min(saved.size(), a.size() + 2));
    run.remove_prefix(std::min(run.size(), b.size() + 2));
  }
  return longer;
}

void save_state(const std::string& path, const std::string& run, const State& state, const StepProgress& p,
                TensorMetadata metadata) {
  std::vector<StoredTensor> tensors;
  std::list<SlotView> views;  // what the tensors' bytes belong to
  metadata.merge(TensorMetadata{{"format", "ulp checkpoint"},
                                {"version", std::string(kVersion)},
                                {"run", run},
                                {"step", std::to_string(p.step)},
                                {"updates", std::to_string(p.updates)},
                                {"loss_scale", fmt::format("{}", p.loss_scale.scale)},
                                {"loss_scale_good", std::to_string(p.loss_scale.good)},
                                {"loss_scale_skipped", std::to_string(p.loss_scale.skipped)},
                                {"promoted", fmt::format("{}", fmt::join(p.promoted, " "))}});
  for (const auto& [name, slot] : state.slots()) {
    if (!saved(slot)) continue;
    metadata[format_key(slot)] = format_text(slot);
    const SlotView& view = views.emplace_back(slot);
    std::vector<StoredTensor> parts = stored(slot);
    parts[0].bytes = view.codes();
    if (parts.size() > 1) {
      parts[1].bytes = {reinterpret_cast<const uint8_t*>(view.side().data()), view.side().size_bytes()};
    }
    for (StoredTensor& tensor : parts) tensors.push_back(std::move(tensor));
  }
  save_tensors(path, tensors, metadata);
}

StepProgress step_progress(const TensorMetadata& metadata, const std::string& path) {
  StepProgress p;
  p.step = number<uint64_t>(metadata, path, "step");
  p.updates = number<uint64_t>(metadata, path, "updates");
  p.loss_scale.scale = number<double>(metadata, path, "loss_scale");
  if (!(p.loss_scale.scale > 0) || !std::isfinite(p.loss_scale.scale)) {
    fail("checkpoint", "{} has a loss scale of {}: it must be finite and above 0", path, p.loss_scale.scale);
  }
  p.loss_scale.good = number<uint64_t>(metadata, path, "loss_scale_good");
  p.loss_scale.skipped = number<uint64_t>(metadata, path, "loss_scale_skipped");
  const std::string promoted = metadata_text(metadata, "promoted");
  for (std::string_view left = promoted; !left.empty();) {
    const std::string_view name = left.substr(0, left.find(' '));
    p.promoted.emplace_back(name);
    left.remove_prefix(std::min(left.size(), name.size() + 1));
  }
  return p;
}

void compare_state(const TensorFile& file, const std::string& path, const State& state) {
  size_t expected = 0;
  for (const auto& [name, slot] : state.slots()) {
    if (!saved(slot)) continue;
    if (const std::string text = metadata_text(file.metadata(), format_key(slot)); text != format_text(slot))
      fail("checkpoint", "{} has '{}' as '{}', the run has it as '{}'", path, name, text, format_text(slot));
    const std::vector<StoredTensor> parts = stored(slot);
    const std::vector<size_t> bytes = stored_bytes(slot);
    for (size_t i = 0; i < parts.size(); ++i) {
      const StoredTensor& found = file.find(parts[i].name);
      if (found.dtype != parts[i].dtype || found.shape != parts[i].shape || found.bytes.size() != bytes[i]) {
        fail("checkpoint", "{}: '{}' does not have the shape that the run has", path, parts[i].name);
      }
      ++expected;
    }
  }
  if (file.tensors().size() != expected) {
    fail("checkpoint", "{} has {} tensors, the run has {}", path, file.tensors().size(), expected);
  }
}

// Compares everything before it fills anything.
void fill_state(const TensorFile& file, const std::string& path, State& state) {
  compare_state(file, path, state);
  for (const auto& [name, slot] : state.slots()) {
    if (!saved(slot)) continue;
    // The side arrays of a storage come after its codes, aligned.
    uint8_t* to = slot.block.data();
    for (const StoredTensor& tensor : stored(slot)) {
      const StoredTensor& found = file.find(tensor.name);
      slot.block.device().upload(to, found.bytes.data(), found.bytes.size());
      to += aligned_bytes(found.bytes.size());
    }
  }
}

}  // namespace

void save_checkpoint(const std::string& path, const std::string& run, const State& state,
                     const StepProgress& p) {
  save_state(path, run, state, p, {});
}

void save_run_checkpoint(const std::string& path, const std::string& run, const State& state,
                         const RunProgress& p, const Facts& facts) {
  TensorMetadata metadata = {{"epochs_done", std::to_string(p.epochs_done)},
                             {"epoch_loss", fmt::format("{}", p.epoch_loss)},
                             {std::string(kWeight), fmt::format("{}", p.epoch_weight)},
                             {"best_test_" + p.metric, fmt::format("{}", p.best)},
                             {"final_test_" + p.metric, fmt::format("{}", p.last)},
                             {"finished", p.finished ? "1" : "0"}};
  // Where they say something: files of other runs stay as they were.
  if (p.metric != kUnnamedMetric) {
    metadata["metric"] = p.metric;
    metadata["higher_is_better"] = p.higher_is_better ? "1" : "0";
  }
  if (p.not_finite > 0) {
    metadata["not_finite"] = std::to_string(p.not_finite);
    metadata["not_finite_first"] = p.first_not_finite;
  }
  if (!p.diverged.empty()) metadata["diverged"] = p.diverged;
  for (const auto& [key, value] : p.epoch_metrics) {
    // A meter may count what weighs the loss; then both must agree.
    if (const auto [entry, fresh] = metadata.emplace(kEpoch + key, value); !fresh && entry->second != value)
      throw std::logic_error("the meter's '" + key + "' is another number than the run's");
  }
  // Names of folders may be no UTF-8, which metadata must be.
  for (const auto& [name, text] : facts) {
    const std::string json = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
    metadata[kFact + name] = Json::parse(json).get<std::string>();
  }
  save_state(path, run, state, p, std::move(metadata));
}

StepProgress load_checkpoint(const std::string& path, const std::string& run, const PrepareState& prepare) {
  const TensorFile file = open_checkpoint(path);
  check_same_run(path, metadata_text(file.metadata(), "run"), run, false);
  const StepProgress p = step_progress(file.metadata(), path);
  fill_state(file, path, prepare(p));
  return p;
}

RunProgress load_run_checkpoint(const std::string& path, const std::string& run, std::string_view metric,
                                const PrepareState& prepare, LoadFor use) {
  const TensorFile file = open_checkpoint(path);
  const TensorMetadata& metadata = file.metadata();
  const bool finished = is_finished(metadata, path);
  const bool longer =
      check_same_run(path, metadata_text(metadata, "run"), run, finished || use == LoadFor::evaluation);
  RunProgress p;
  static_cast<StepProgress&>(p) = step_progress(metadata, path);
  p.epochs_done = number<uint64_t>(metadata, path, "epochs_done");
  p.epoch_loss = number<double>(metadata, path, "epoch_loss");
  p.epoch_weight = number<double>(metadata, path, std::string(kWeight));
  for (const auto& [key, value] : metadata) {
    if (key.starts_with(kEpoch) && key != "epoch_loss") p.epoch_metrics[key.substr(kEpoch.size())] = value;
  }
  p.metric = metric;
  p.higher_is_better = metadata_text(metadata, "higher_is_better") != "0";
  p.best = number<double>(metadata, path, "best_test_" + p.metric);
  p.last = number<double>(metadata, path, "final_test_" + p.metric);
  if (metadata.contains("not_finite")) {
    p.not_finite = number<uint64_t>(metadata, path, "not_finite");
    p.first_not_finite = metadata_text(metadata, "not_finite_first");
  }
  p.finished = finished && !longer;
  if (p.finished) p.diverged = metadata_text(metadata, "diverged");
  p.longer = longer;
  fill_state(file, path, prepare(p));
  return p;
}

bool checkpoint_finished(const std::string& path, const std::string& run) {
  const TensorFile file = open_checkpoint(path);
  const std::string saved = metadata_text(file.metadata(), "run");
  const bool finished = is_finished(file.metadata(), path);
  // Compares as many whole items of the saved text as `run` has, so that seed 12 is not taken for 1.
  std::string_view first = saved;
  for (size_t at = 0, items = 1 + occurrences(run, "; "); items > 0 && at != saved.npos; --items) {
    at = saved.find("; ", at == 0 ? 0 : at + 2);
    first = std::string_view(saved).substr(0, at);
  }
  return !check_same_run(path, first, run, finished) && finished;
}

std::string checkpoint_run(const std::string& path) {
  return metadata_text(open_checkpoint(path).metadata(), "run");
}

void check_tensors(const std::string& path, const State& state) {
  compare_state(open_checkpoint(path), path, state);
}

std::string checkpoint_divergence(const std::string& path) {
  return metadata_text(open_checkpoint(path).metadata(), "diverged");
}

CheckpointFile::CheckpointFile(const std::string& path)
    : path_(path), file_(open_checkpoint(path)), step_(number<uint64_t>(file_.metadata(), path, "step")) {}

Facts CheckpointFile::facts() const {
  Facts facts;
  for (const auto& [key, text] : file_.metadata()) {
    if (key.starts_with(kFact)) facts[key.substr(kFact.size())] = text;
  }
  return facts;
}

SavedTensor CheckpointFile::find(const std::string& name, const Shape& shape) const {
  StateSlot slot;
  slot.name = name;
  slot.shape = shape;
  const std::string text = metadata_text(file_.metadata(), format_key(slot));
  const size_t space = text.find(' ');
  const std::string extents = space == text.npos ? "" : text.substr(space + 1);
  if (extents != shape_text(shape)) {
    fail("checkpoint", "{} has '{}' as '{}', the network of its configuration has it as {}", path_, name,
         shown_text(text), shape_text(shape));
  }
  slot.storage = parse_storage(text.substr(0, space));
  SavedTensor saved{slot.storage, {}};
  const std::vector<StoredTensor> parts = stored(slot);
  const std::vector<size_t> bytes = stored_bytes(slot);
  for (size_t i = 0; i < parts.size(); ++i) {
    const StoredTensor& found = file_.find(parts[i].name);
    if (found.dtype != parts[i].dtype || found.shape != parts[i].shape || found.bytes.size() != bytes[i])
      fail("checkpoint", "{}: '{}' does not have the bytes of {}", path_, parts[i].name, shown_text(text));
    if (i == 0) {
      saved.codes = found.bytes;
    } else {
      // Aligned: wide elements stand first in what save_tensors writes.
      saved.side = {reinterpret_cast<const uint32_t*>(found.bytes.data()), bytes[i] / sizeof(uint32_t)};
    }
  }
  return saved;
}

}  // namespace ulp
