// Options that were given and change nothing. Silence would look as if they had been used.
#pragma once

#include <string>
#include <vector>

#include "ulp/run/config.h"
#include "ulp/session/engine.h"

namespace ulp {

// Throws an Error for an option that has no effect with the optimizer or on the device of the
// configuration. Not part of check(): a run that was begun with such an option can still be
// resumed.
void refuse_idle_options(const RunConfig& config);

// The same for what depends on the formats that tensors came to have, and on how long the run is:
// warnings, since a sweep may give one value to all of its runs.
std::vector<std::string> idle_notes(const RunConfig& config, const Engine& engine, uint64_t steps_per_epoch,
                                    uint64_t total_steps);

}  // namespace ulp
