// The input as each kind of text that an option, a file or a subcommand may hold. Where a value is
// printed, its text reads as the same value.
#include "fuzz/fuzz.h"
#include "ulp/base/text.h"
#include "ulp/data/dataset.h"
#include "ulp/lab/tune.h"
#include "ulp/models/model.h"
#include "ulp/numeric/format.h"
#include "ulp/numeric/rounding.h"
#include "ulp/optim/optimizer.h"
#include "ulp/optim/rule.h"
#include "ulp/optim/schedule.h"
#include "ulp/precision/candidates.h"
#include "ulp/precision/loss_scale.h"
#include "ulp/precision/overrides.h"
#include "ulp/precision/policy.h"
#include "ulp/precision/promotion.h"
#include "ulp/run/config.h"
#include "ulp/runtime/registry.h"
#include "ulp/session/parameters.h"
#include "ulp/tasks/task.h"

namespace ulp::fuzz {
namespace {

using Text = std::string_view;

template <auto parse>
void read(Text text) {
  parse(text);
}

template <auto parse, auto print>
void read_back(Text text) {
  const auto value = parse(text);
  expect(parse(print(value)) == value, "the text of a value reads as another");
}

constexpr void (*kTexts[])(Text) = {
    read_back<parse_format, format_name>,
    read_back<parse_storage, storage_name>,
    read_back<parse_schedule, schedule_text>,
    read_back<parse_warmup, warmup_text>,
    read_back<parse_update_rule, update_rule_text>,
    read_back<parse_loss_scale, loss_scale_text>,
    read_back<parse_state_format, state_format_text>,
    read_back<parse_round, round_name>,
    read<parse_overflow>,
    read<parse_weight_format>,
    read<parse_parameter_groups>,
    read<parse_overrides>,
    read<parse_promotion>,
    read<parse_optimizer>,
    read<parse_ratios>,
    read<parse_image_size>,
    read<find_model>,
    read<find_dataset>,
    read<find_task>,
    read<find_backend>,
    read<find_config_field>,
    read<fpu_format>,
    [](Text text) { parse_policy(text); },
    [](Text text) { make_candidates(text); },
    [](Text text) { make_candidates("hfp8", text, text, text, text); },
    [](Text text) {
      DataRequest request;
      parse_image_shape(text, request);
    },
    [](Text text) {
      if (const auto bytes = parse_bytes(text); bytes && *bytes >= 0)
        expect(parse_bytes(bytes_with_unit(*bytes)) == bytes, "bytes read as others");
    },
};

}  // namespace

void try_input(std::string_view input) {
  for (const auto text : kTexts) tried([&] { text(input); });
}

}  // namespace ulp::fuzz
