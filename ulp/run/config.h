// Everything that is chosen about a training run, as a value, and the table of its fields. The
// configuration file and the command line are both read through that table: a new option is a
// member and a row, and nothing else.
//
// Three levels lie over one another: the defaults, a file, the flags. Text is checked when it is
// set, so that an error names the line or the flag that holds it; what concerns several fields is
// checked by check().
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "ulp/backend/options.h"
#include "ulp/optim/optimizer.h"
#include "ulp/optim/schedule.h"
#include "ulp/precision/loss_scale.h"
#include "ulp/session/precision.h"

namespace ulp {

// Sizes are signed so that a negative one can be refused by its value. An empty optional is "auto".
struct RunConfig {
  std::string task = "classification";
  std::string model = "resnet20";
  double width = 1;
  double label_smoothing = 0;
  std::string init = "";  // "": random

  std::string data = "fashion-mnist";
  std::string data_dir = "";     // "": the usual places
  std::string image_shape = "";  // "", HxW or CxHxW
  int64_t subset = 0;            // examples; 0: all
  std::string augment = "auto";
  int64_t length = 64;  // of sequences

  // Steps win where both are above 0. Setting one from text makes the other 0, so that the later level holds.
  int64_t epochs = 10, steps = 0;
  int64_t batch = 128;
  int64_t grad_accum = 1;        // micro-batches of a batch
  int64_t stop_not_finite = 50;  // steps in a row; 0: never

  std::string optimizer = "sgd";
  std::optional<double> lr = {}, momentum = {}, weight_decay = {};
  bool nesterov = false;
  double beta1 = 0.9;
  std::optional<double> beta2 = {}, eps = {};
  std::string schedule = "cosine", warmup = "0";
  double clip_value = 0, clip_norm = 0;  // 0: none

  std::string policy = "fp32";
  // "": as the candidates have it.
  std::string candidates = "hfp8", hi = "", lo = "", lo_grad = "", weight_grad = "";
  bool keep_first_last = false;
  std::string formats = "";  // of single tensors, over the policy
  std::string promote = "default", loss_scale = "default";
  std::string accumulator = "fp32", overflow = "saturate", round = "even";

  std::string update = "default", weight = "default", state = "default", groups = "";
  bool fused_backward = false;
  std::string fused_overflow = "twice";
  std::string table_gradients = "auto";

  std::string device = "cpu";
  int64_t threads = 0;  // 0: all
  int64_t workspace = int64_t{64} << 20;
  std::string kernels = "";
  // On a GPU: the units that products may run on.
  std::string tensor_core = "on";
  bool tf32 = false, fp8_native = false;
  uint64_t seed = 0;

  std::string out = "";          // "": see out_of
  int64_t checkpoint_every = 0;  // steps; 0: after each epoch only
  bool tensorboard = false;
  std::string histograms = "";    // names of tensors; "": none
  int64_t histogram_every = 100;  // steps

  // No option: the run was begun by a build that gave S2FP8 gradients a dynamic loss scale by default
  // (with_older_defaults).
  bool scales_s2fp8 = false;
  // No option either: what `auto` means for tables was dense to the build that began the run.
  bool tables_dense = false;

  bool operator==(const RunConfig&) const = default;
};

using ConfigMember = std::variant<std::string RunConfig::*, int64_t RunConfig::*, uint64_t RunConfig::*,
                                  double RunConfig::*, std::optional<double> RunConfig::*, bool RunConfig::*>;

// The condition that a value must meet beside its type.
struct ConfigRule {
  std::string_view must = {};                 // numbers: what `ok` asks for, in words
  bool (*ok)(double) = nullptr;               // numbers: whether one makes sense
  void (*parse)(std::string_view) = nullptr;  // text: throws an Error unless it makes sense
  bool bytes = false;                         // a whole number, written as 64MB
  bool number = false;                        // text which in the file may be a number without quotes
  // Text with names of formats: the same with the shortest name of each. Throws an Error as `parse`.
  std::string (*shortest)(std::string_view) = nullptr;
};

// A row of the table of options. `name` is the key in the file, data_dir; the flag is --data-dir.
// `also` is another name, which works wherever the first does and stands in no help.
struct ConfigField {
  std::string_view name = {}, group = {};
  ConfigMember member = {};
  std::string_view value = {};  // what stands for the value in the help; "" for a switch
  std::string_view help = {};
  ConfigRule rule = {};
  std::string_view also = {};

  std::string flag() const;
  std::string also_flag() const;  // "" where there is no other name
  bool is_named(std::string_view text) const { return text == name || (!also.empty() && text == also); }
  bool is_switch() const { return std::holds_alternative<bool RunConfig::*>(member); }
  // The value as text which set() takes back, exactly: shortest digits, "auto", "true", "64MB".
  std::string get(const RunConfig& config) const;
  std::string default_text() const { return get(RunConfig{}); }
  // Throws an Error that begins with `label`, the flag or the place in a file, for text that is no
  // such value.
  void set(RunConfig& config, std::string_view text, std::string_view label) const;
  void set(RunConfig& config, std::string_view text) const { set(config, text, name); }
  // Throws an Error unless the field by itself makes sense.
  void check(const RunConfig& config) const;
};

// The table, in the order of the help, groups together; and one row of it, or an Error that names
// the nearest.
std::span<const ConfigField> config_fields();
const ConfigField& find_config_field(std::string_view name);
// "the nearest is batch", or where all are listed if none is near.
std::string config_field_hint(std::string_view name);

// Lays one level over a configuration. Epochs and steps both above 0 on one level are an Error, and
// so is one option under both its names; of different levels the later one holds.
struct ConfigSetting {
  const ConfigField* field = nullptr;
  std::string text = {}, label = {};
};
void apply_level(RunConfig& config, std::span<const ConfigSetting> level);

// The same with the shortest name of each format, bf16 for bfloat16: for comparing configurations.
// Files and checkpoints keep the names that were given.
RunConfig with_shortest_names(RunConfig config);
// The same with the names that `other` has, wherever both name the same formats.
RunConfig with_names_of(RunConfig config, const RunConfig& other);

// Throws an Error for what cannot be run, as far as can be told without data, a graph and a
// backend: whether they go together (widths, shapes, kernels, devices) is checked by those who make
// them.
void check(const RunConfig& config);

// The part of that which concerns training alone, whatever is trained and for how long.
void check_training(const RunConfig& config);
// The part of that which concerns formats.
void check_precision(const RunConfig& config);

// The optimizer with its values; "auto" is replaced by what the help of each field says.
OptimizerConfig optimizer_config(const RunConfig& config);
Schedule schedule_of(const RunConfig& config);

struct AugmentChoice {
  int padding = 0;
  bool mirror = false;

  bool operator==(const AugmentChoice&) const = default;
};
// "none", "crop:PAD", "flip", "crop:PAD+flip"; "auto" is what suits the data set.
AugmentChoice augment_of(const RunConfig& config);

// Optimizer steps of the whole run.
uint64_t total_steps(const RunConfig& config, uint64_t steps_per_epoch);

// How weights are updated and kept.
UpdateOptions update_options(const RunConfig& config);
// Which tensor has which format.
PrecisionOptions precision_options(const RunConfig& config);
// How kernels compute; beside the table of fields.
KernelOptions kernel_options(const RunConfig& config);
// The threshold of promotion; none: off.
std::optional<double> promotion_of(const RunConfig& config);
// The loss scale; none if the configuration leaves the choice to the formats ("default").
std::optional<LossScale> loss_scale_of(const RunConfig& config);

// Where the run writes: `out`, or runs/MODEL-DATA-POLICY-SEED, anything unfit for a file name in it
// as '_'. That may be taken: see RunFolder.
std::string out_of(const RunConfig& config);

// The file (TOML, keys at the top level). A key that is unknown, a value of another type and one
// that makes no sense are Errors with the file's name and line. Not checked as a whole: flags may
// come over it.
RunConfig load_config(const std::string& path);
RunConfig parse_config(std::string_view text, const std::string& path);

// A file with all fields, each under its help. Reads back to the same configuration, but for epochs
// that steps overrule: those are written as 0. An Error if a text is not UTF-8, as TOML must be.
std::string config_text(const RunConfig& config);

}  // namespace ulp
