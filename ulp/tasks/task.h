// What is trained: a task joins a data set, its batches, a network and its metrics. The engine, the
// trainer and the experiments know a task by this interface alone.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulp/data/loader.h"
#include "ulp/session/engine.h"
#include "ulp/session/network.h"

namespace ulp {

// A number that tells how good a network is. In files it is `test_NAME`, `train_NAME`,
// `best_test_NAME`.
struct Metric {
  std::string_view name;
  bool higher_is_better = true;
  bool share = false;       // of examples, shown as percent
  bool in_training = true;  // the outputs of training steps tell it too

  // Any number is better than NaN.
  bool better(double a, double b) const {
    return !std::isnan(a) && (std::isnan(b) || (higher_is_better ? a > b : a < b));
  }
};

// Of the examples of one class, how many are right.
struct ClassCount {
  std::string name;
  uint64_t examples = 0, right = 0;
};

// Computes the metrics of a task from the outputs of batches, on the host.
class Meter {
 public:
  // What it has seen, as a checkpoint keeps it: numbers by name.
  using State = std::map<std::string, std::string>;

  virtual ~Meter() = default;
  // The outputs of one piece of a batch.
  virtual void add(const Outputs& outputs, const FeedBatch& batch) = 0;
  // In the order of LearningTask::metrics.
  virtual std::vector<double> values() const = 0;
  // By class, if the outputs had the scores that this needs.
  virtual std::vector<ClassCount> by_class() const { return {}; }
  virtual void reset() = 0;
  // Adds what another meter of the same task has seen, as if it had been seen here.
  virtual void merge(const Meter& other) = 0;
  virtual State save() const = 0;
  // Throws an Error for a state that save has not made.
  virtual void restore(const State& state) = 0;

 protected:
  // A number of a state, and one that counts, or an Error.
  static double number(const State& state, const std::string& key);
  static uint64_t count(const State& state, const std::string& key);
};

// The batches of one part of a data set, epoch after epoch.
class BatchStream {
 public:
  virtual ~BatchStream() = default;
  // Valid until the next call of next or seek.
  virtual const FeedBatch& next() = 0;
  // Makes the next batch the one with this place: how a run resumes.
  virtual void seek(uint32_t epoch, uint64_t batch) = 0;
  virtual size_t examples() const = 0;   // in an epoch
  virtual uint64_t batches() const = 0;  // in an epoch
};

// What a network is, for files that were measured on one.
struct NetworkId {
  std::string model = {};
  double width = 1;
  std::string input = {};
  int64_t classes = 0;

  // Names and values as JSON, as such files keep them.
  std::vector<std::pair<std::string, std::string>> items() const;
};

// What it takes to use a trained network without its data set, as checkpoints keep it: text by name.
using Facts = std::map<std::string, std::string>;

// Examples of a data set.
struct DataSize {
  size_t train = 0, test = 0;
};

class LearningTask {
 public:
  virtual ~LearningTask() = default;

  // The first is the one that decides which epoch is best.
  virtual std::span<const Metric> metrics() const = 0;
  virtual BuildFunction build() const = 0;
  // Of a training step, the largest; and every other shape that occurs.
  virtual BatchShape batch() const = 0;
  virtual std::vector<BatchShape> training_shapes() const = 0;
  virtual std::vector<BatchShape> evaluation_shapes() const = 0;
  virtual std::unique_ptr<BatchStream> stream(Part part) const = 0;
  virtual std::unique_ptr<Meter> meter() const = 0;
  // Copies the data set to the device of the engine, if batches are made there.
  virtual void keep_data(Engine& engine) const = 0;

  // In an epoch.
  virtual size_t examples(Part part) const = 0;
  // The same data in another order, and other augmentation.
  virtual std::unique_ptr<LearningTask> with_seed(uint64_t seed) const = 0;
  virtual NetworkId id() const = 0;
  // Whether its examples are made up: what outline_task and sketch_task give.
  virtual bool made_up() const { return false; }
  // What the data set decides of a run's bits, as checkpoints keep it: items that begin with "; ".
  virtual std::string data_text() const = 0;
  // At least `input` and `classes`, as the id has them.
  virtual Facts facts() const;
  // What to tell the user of the data, a line each.
  virtual std::vector<std::string> notes() const { return {}; }
  // With TaskOptions::scores, the output that has them, (examples, classes). "": the task has none.
  virtual std::string scores() const { return ""; }
  // Whether runs in other formats are evaluated in fp32 too. That takes plans of its own, and where
  // outputs are large as much time again.
  virtual bool evaluates_fp32() const { return true; }
};

// What a task is made of. Those that a task has no use for must have their defaults.
struct TaskOptions {
  std::string task = "classification";
  std::string model;
  double width = 1;
  std::string data;
  std::string data_dir = {};
  std::string image_shape = {};  // of data sets that have none of their own
  double label_smoothing = 0;
  int64_t batch = 128, micro_batches = 1;
  int64_t subset = 0;  // training examples; 0: all
  int padding = 0;     // augmentation: crops from a padded image
  bool mirror = false;
  int64_t length = 64;  // of sequences, at most
  uint64_t seed = 0;
  // The data set lies in the memory of the device, and batches are made there.
  bool resident = false;
  // In evaluation the scores of each example are an output too.
  bool scores = false;
};

struct TaskInfo {
  std::string_view name, about;
  // Names of its networks, and whether text could name a data set for it.
  std::vector<std::string_view> (*models)() = nullptr;
  bool (*takes_data)(std::string_view data) = nullptr;
  // Reads the data set. Throws an Error for options that do not go together, and for data that is
  // not there or damaged.
  std::unique_ptr<LearningTask> (*make)(const TaskOptions& options) = nullptr;
  // Without reading the data set if its sizes are published: for plans of a run. Its examples are
  // made up.
  std::unique_ptr<LearningTask> (*outline)(const TaskOptions& options) = nullptr;
  // Without a data set, for plans and benchmarks of a step: so many made-up examples, if it does not
  // say one batch. Of the id only the input ("": what is usual) and the number of classes count.
  std::unique_ptr<LearningTask> (*sketch)(const TaskOptions& options, const NetworkId& id,
                                          const DataSize& size) = nullptr;
};

// The table, and one row of it; an unknown name throws an Error that lists the known ones.
std::span<const TaskInfo> tasks();
const TaskInfo& find_task(std::string_view name);
// One row more, for tests of what knows tasks by their interface. Before the table is read.
void add_task(const TaskInfo& info);

std::unique_ptr<LearningTask> make_task(const TaskOptions& options);
std::unique_ptr<LearningTask> outline_task(const TaskOptions& options);
std::unique_ptr<LearningTask> sketch_task(const TaskOptions& options, const NetworkId& id,
                                          const DataSize& size = {});

// The shapes of an epoch's batches: full ones and, if it differs, the last.
std::vector<BatchShape> shapes_of(size_t examples, int64_t batch);

// Plans for every shape of the task.
void plan_task(Engine& engine, const LearningTask& task);

}  // namespace ulp
