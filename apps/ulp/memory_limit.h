// Libraries write to address 0 where a limit on addresses (ulimit -v) has let an allocation of
// theirs fail.
#pragma once

namespace ulp {

// From now on a crash near such a limit is reported as out of memory, on one line, with exit code 1.
// Any other crash stays what it was.
void explain_memory_limit();

}  // namespace ulp
