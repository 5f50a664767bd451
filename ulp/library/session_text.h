// What a session prints of itself.
#pragma once

#include <span>
#include <string>

#include "ulp/run/config.h"
#include "ulp/session.h"
#include "ulp/session/engine.h"

namespace ulp {

std::string plan_text(const RunConfig& config, const Engine& engine, const SessionMemory& memory,
                      std::span<const TensorReport> tensors);

}  // namespace ulp
