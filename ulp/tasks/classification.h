// Image classification: a labelled set of images, a network of ulp/models, accuracy.
#pragma once

#include <memory>

#include "ulp/data/dataset.h"
#include "ulp/data/loader.h"
#include "ulp/models/model.h"
#include "ulp/tasks/task.h"

namespace ulp {

// Builds a network of the table from images and labels that are fed, for any batch.
BuildFunction classifier_build(const ModelRequest& request, bool scores = false);

class ClassificationTask : public LearningTask {
 public:
  // Of a set that is in memory already.
  ClassificationTask(const TaskOptions& options, ImageSet set);
  // Of a set without examples: so many of noise, made when they are first asked for.
  static std::unique_ptr<ClassificationTask> of_noise(const TaskOptions& options, ImageSet shape,
                                                      size_t train, size_t test);

  std::span<const Metric> metrics() const override;
  BuildFunction build() const override;
  BatchShape batch() const override { return {options_.batch}; }
  std::vector<BatchShape> training_shapes() const override;
  std::vector<BatchShape> evaluation_shapes() const override;
  std::unique_ptr<BatchStream> stream(Part part) const override;
  std::unique_ptr<Meter> meter() const override;
  void keep_data(Engine& engine) const override;
  size_t examples(Part part) const override;
  std::unique_ptr<LearningTask> with_seed(uint64_t seed) const override;
  NetworkId id() const override;
  bool made_up() const override { return noise_; }
  std::string data_text() const override;
  // Also `mean` and `deviation`, `border` and `class N`.
  Facts facts() const override;
  std::string scores() const override;
  std::vector<std::string> notes() const override;

  // What the network is built for, at the batch of training.
  ModelRequest request() const;

 private:
  LoaderOptions loader_options(Part part) const;
  // In the set, and in an epoch.
  size_t stored(Part part) const { return part == Part::train ? train_examples_ : test_examples_; }
  const ImageSet& set() const;

  TaskOptions options_;
  // Shared with tasks of other seeds. Noise is made when it is first asked for.
  const std::shared_ptr<ImageSet> set_;
  size_t train_examples_ = 0, test_examples_ = 0;
  bool noise_ = false;
};

}  // namespace ulp
