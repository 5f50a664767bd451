// What the doctor says of single tensors.
#pragma once

#include <map>
#include <string>

#include "ulp/doctor/doctor.h"

namespace ulp {

// By tensor, for those that a diagnosis speaks of: what it is about, what came first, what was worst,
// and what came near to overflow where nothing did.
std::map<std::string, std::string> words_of(const Diagnosis& diagnosis);

}  // namespace ulp
