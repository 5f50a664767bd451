// Replays a plan as an abstract machine, without any task: every byte of the step arena knows what
// lies in it (which version of which tensor, whose workspace, what was prepared for whom), and
// every step must find what the graph says that it reads. What runs beside other steps reads and
// writes at any moment until it is waited for, so whatever it meets until then is a fault.
#pragma once

#include <string>
#include <vector>

#include "tests/support/plan_image.h"

namespace ulp::harness {

// Runs the steps up to this phase, and says all that is wrong.
std::vector<PlanFinding> simulate(const PlanImage& image, Phase last = Phase::update);
std::vector<PlanFinding> simulate(const Plan& plan, Phase last = Phase::update);

// What is wrong with a whole step; "" where nothing is.
std::string faults_of(const Plan& plan);

}  // namespace ulp::harness
