// Options that were given and change nothing. Silence would look as if they had been used.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/run/config.h"
#include "ulp/session/engine.h"

namespace ulp {

// Throws an Error for an option that has no effect with the optimizer or on the device of the
// configuration. Not part of check(): a run that was begun with such an option can still be
// resumed. Of the options in `given`, which the user has named, the default is refused too;
// files of earlier runs have all defaults written out.
void refuse_idle_options(const RunConfig& config, std::span<const std::string_view> given = {});

// Warnings about options without effect because of the formats that tensors got or the length of the
// run. They are no Errors, because a sweep may give one value to all of its runs.
std::vector<std::string> idle_notes(const RunConfig& config, const Engine& engine, uint64_t steps_per_epoch,
                                    uint64_t total_steps);

}  // namespace ulp
