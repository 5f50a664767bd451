// Formats that a user gives to single tensors, over whatever the policy chose: "NAME=FORMAT
// NAME=FORMAT ...", separated by spaces, as --formats takes them and as the doctor proposes them. A
// name may end in '*' and then stands for all that begin so, or begin with it and stand for all
// that end so.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/numeric/storage.h"
#include "ulp/precision/assignment.h"
#include "ulp/precision/candidates.h"

namespace ulp {

struct FormatOverride {
  std::string name;
  Storage storage;
};

// Names alone, separated by spaces, with the same stars. Throws an Error for one that has a star
// elsewhere.
std::vector<std::string> parse_names(std::string_view text);
// The numbers of the tensors that such a name stands for. Throws an Error if there are none, which
// gives the nearest ones.
std::vector<size_t> tensors_named(std::string_view name, std::span<const CountedTensor> tensors);

// Throws an Error for text that is no such list.
std::vector<FormatOverride> parse_overrides(std::string_view text);

// Later ones win. A tensor is then low where its format has fewer bits than the candidates' high
// one, and promotion gives it that. Throws an Error for a name that no counted tensor has, which
// gives the nearest ones.
void apply_overrides(std::span<const FormatOverride> overrides, std::span<const CountedTensor> tensors,
                     const Candidates& candidates, Assignment& assignment);

}  // namespace ulp
