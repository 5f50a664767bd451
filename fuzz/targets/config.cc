// A configuration file: what is read and makes sense is written and read back the same.
#include "ulp/run/config.h"
#include "fuzz/fuzz.h"

namespace ulp::fuzz {

void try_input(std::string_view input) {
  RunConfig config = parse_config(input, "config.toml");
  check(config);
  const std::string text = config_text(config);
  if (config.steps > 0) config.epochs = 0;  // overruled, and written so
  expect(parse_config(text, "config.toml") == config, "read back it is another configuration");
}

}  // namespace ulp::fuzz
