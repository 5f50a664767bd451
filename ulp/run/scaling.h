// The loss scale of a run: which one its formats need, what its steps say to it, and what `auto` measures.
#pragma once

#include <cstdint>
#include <span>

#include "ulp/precision/loss_scale.h"
#include "ulp/run/config.h"
#include "ulp/session/engine.h"
#include "ulp/tasks/task.h"

namespace ulp {

// The loss scale that the configuration names. If it names none, gradients with less range than fp32
// get a dynamic scale.
LossScale choose_loss_scale(const RunConfig& config, std::span<const CountedTensor> tensors,
                            const Assignment& assignment);
LossScale choose_loss_scale(const RunConfig& config, const Engine& engine);

// Whether the default loss scale is none although some gradients have less range than fp32: S2FP8
// moves the range of every tensor into that of its codes.
bool leaves_s2fp8_unscaled(const RunConfig& config, std::span<const CountedTensor> tensors,
                           const Assignment& assignment);

// What the engine may take for granted of a verdict that asks the scaler to accept steps by
// gradients_overflowed.
Engine::Known known_of(const LossScaler& scaler);

// The factor of `auto`: the gradients of the first batches are computed, at several scales, and
// thrown away. The stream must be sought afterwards; of the engine nothing has changed.
double measure_loss_scale(Engine& engine, BatchStream& batches, uint64_t seed);

}  // namespace ulp
