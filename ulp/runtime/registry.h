// The backends of this program, by device name.
#pragma once

#include <string>
#include <string_view>

#include "ulp/backend/kernel.h"

namespace ulp {

// The backend of a device: cpu, cuda, reference, or one that was added. Throws an Error for another
// name.
const Backend& find_backend(std::string_view device);

// Adds a backend. Call it once, before anything asks for the name.
void add_backend(std::string name, const Backend& (*get)());

}  // namespace ulp
