// A run's network on new pictures: the scores of each class. The data set is not needed.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "ulp/data/example.h"
#include "ulp/run/saved_run.h"
#include "ulp/run/stepper.h"
#include "ulp/session/engine.h"

namespace ulp {

// In the order of the classes.
struct Prediction {
  std::vector<float> scores;  // before the softmax
  std::vector<double> probabilities;

  size_t best() const;  // the first of the largest
};

class Predictor {
 public:
  // `images`, 1 or more, are computed at a time. `device` is where to compute; "": where the run was
  // trained. Throws an Error for a run that does not put images into classes.
  Predictor(const SavedRun& run, size_t images, const std::string& device);
  ~Predictor();

  // Predicts the classes of as many PNG and JPEG files, brought to the form that the training images
  // had. Computes in the run's formats, or with `fp32` in fp32 from the weights as they are stored.
  std::vector<Prediction> predict(const std::vector<std::string>& files, bool fp32);

  uint64_t step() const { return step_; }
  // The name of its folder or as published with the data set; its number where that has no names.
  std::string class_name(size_t label) const;

 private:
  void append(const std::string& file, std::vector<float>& images) const;

  const RunConfig config_;
  Facts facts_;
  ExampleForm form_;
  std::vector<float> mean_, deviation_;  // by channel
  std::unique_ptr<LearningTask> task_;
  std::string scores_;  // the output
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Stepper> stepper_;
  size_t piece_ = 0;
  uint64_t step_ = 0;
};

}  // namespace ulp
