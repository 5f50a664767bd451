// A text to learn from. The first byte is the length of sequences.
#include "fuzz/fuzz.h"
#include "ulp/tasks/task.h"

namespace ulp::fuzz {

void try_input(std::string_view input) {
  Cutter cutter(input);
  TaskOptions options;
  options.task = "characters";
  options.model = "charmlp";
  options.length = 1 + cutter.byte();
  options.batch = 4;
  options.data = file("text", cutter.rest());
  const auto task = make_task(options);
  for (const Part part : {Part::train, Part::test}) {
    const auto stream = task->stream(part);
    for (int i = 0; i < 3; ++i) stream->next();
  }
}

}  // namespace ulp::fuzz
