// A run's weights alone, as a safetensors file that PyTorch and others read, and a run that starts
// from such a file. Names and layouts are those of a state_dict (torch_layout.h).
#pragma once

#include <cstdint>
#include <string>

#include "ulp/run/saved_run.h"
#include "ulp/session/engine.h"

namespace ulp {

struct ExportOptions {
  bool fp32 = false;  // everything in fp32; else as it is stored where safetensors has that format
  // Writes weights with extra bits in fp32, as the value of the high part and the bits together; if
  // not set, only the high part, which products read.
  bool whole = false;
};

struct ExportReport {
  size_t tensors = 0, elements = 0;
  uint64_t step = 0;
};

// Weights and running statistics. Optimizer state, compensation and everything else is left out.
// Batch norms get the number of batches that PyTorch counts, and no network of Ulp does: 0. What the
// checkpoint knows of its data set stands in the metadata.
ExportReport export_weights(const SavedRun& run, const std::string& path, const ExportOptions& options);

// Replaces the weights and statistics of an engine by those of such a file, whoever wrote it, each
// rounded as it is stored. Throws an Error, and changes nothing, unless it has all of them in the
// shapes of PyTorch, as finite numbers, and no others.
void init_weights(Engine& engine, const std::string& path, uint64_t seed);

}  // namespace ulp
