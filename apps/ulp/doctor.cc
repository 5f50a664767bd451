// `ulp doctor`: which tensor of a run left its format's range first, and what would help.
#include <fmt/format.h>

#include <memory>

#include "apps/ulp/commands.h"
#include "apps/ulp/text.h"
#include "ulp/doctor/checkup.h"

namespace ulp {
namespace {

struct DoctorOptions {
  std::string folder;
  int64_t step = INT64_MAX;
  bool json = false;
};

template <typename Number>
Json number_or_null(const std::optional<Number>& number) {
  return number ? json_number(static_cast<double>(*number)) : Json();
}

Json point_json(const RangePoint& point) {
  return {{"step", point.step},
          {"amax", json_number(point.amax)},
          {"log2_amax_over_largest", number_or_null(point.exponent)},
          {"overflow", point.overflow},
          {"underflow", point.underflow}};
}

Json trouble_json(const std::optional<Trouble>& trouble) {
  if (!trouble) return {};
  constexpr const char* kinds[] = {"overflow", "flush", "nan"};
  Json json = {{"tensor", trouble->name},
               {"what", kinds[static_cast<size_t>(trouble->what)]},
               {"kind", kind_name(trouble->kind)},
               {"elements", trouble->elements},
               {"step", trouble->since},
               {"last_step", trouble->last},
               {"ended", trouble->ended},
               {"format", trouble->format},
               {"largest", number_or_null(trouble->largest)},
               {"smallest", number_or_null(trouble->smallest)},
               {"amax", json_number(trouble->first.amax)},
               {"worst", trouble->worst},
               {"worst_step", trouble->worst_step},
               {"promoted", nullptr},
               {"before", Json::array()}};
  if (trouble->promoted)
    json["promoted"] = {{"step", trouble->promoted->step}, {"to", trouble->promoted->to}};
  for (const RangePoint& point : trouble->before) json["before"].push_back(point_json(point));
  return json;
}

Json ranking_json(const std::vector<Ranked>& ranked) {
  Json json = Json::array();
  for (const Ranked& one : ranked) {
    Json over_time = Json::array();
    for (const double share : one.over_time) over_time.push_back(share < 0 ? Json() : Json(share));
    json.push_back({{"tensor", one.name},
                    {"format", one.format},
                    {"mean", one.mean},
                    {"worst", one.worst},
                    {"worst_step", one.worst_step},
                    {"over_time", over_time}});
  }
  return json;
}

Json treatment_json(const Treatment& treatment) {
  Json json = {{"tensor", treatment.tensor},
               {"against", treatment.overflow ? "overflow" : "flush"},
               {"remedies", Json::array()},
               {"ruled_out", Json::array()}};
  for (const Remedy& remedy : treatment.remedies) {
    json["remedies"].push_back({{"kind", remedy.kind},
                                {"text", remedy.text},
                                {"flags", {remedy.option, remedy.value}},
                                {"aggregate_bits", remedy.aggregate_bits},
                                {"peak_bytes", remedy.peak_bytes}});
  }
  for (const RuledOut& not_this : treatment.ruled_out) {
    json["ruled_out"].push_back({{"kind", not_this.kind}, {"why", not_this.why}});
  }
  return json;
}

Json check_up_json(const CheckUp& check_up) {
  const Diagnosis& found = check_up.diagnosis;
  Json json = {{"folder", check_up.folder},
               {"narrow", check_up.narrow},
               {"condition", check_up.narrow                  ? condition_name(found.condition)
                             : check_up.losses.not_finite > 0 ? condition_name(Condition::not_finite)
                                                              : "fp32"},
               {"diagnosis", check_up.narrow ? found.sentence : wide_sentence(check_up.losses)},
               {"first_step", found.first_step},
               {"last_step", found.last_step},
               {"records", found.records},
               {"tensors", found.tensors},
               {"promoted", found.promoted},
               {"skipped", found.skipped},
               {"skipped_at_end", found.skipped_at_end},
               {"scale", {json_number(found.first_scale), json_number(found.last_scale)}},
               {"loss_not_finite", nullptr},
               {"diverged", check_up.losses.diverged.empty() ? Json() : Json(check_up.losses.diverged)},
               {"subject", trouble_json(found.subject)},
               {"first_overflow", trouble_json(found.overflow)},
               {"first_flush", trouble_json(found.flush)},
               {"first_nan", trouble_json(found.nan)},
               {"shown", check_up.shown.empty() ? Json() : Json(check_up.shown)},
               {"moved", Json::array()},
               {"overflows", ranking_json(found.overflows)},
               {"flushes", ranking_json(found.flushes)},
               {"nearest", Json::array()},
               {"peak_bytes", check_up.step.peak_bytes},
               {"treatments", Json::array()},
               {"no_remedies", check_up.no_remedies}};
  if (found.loss_not_finite) json["loss_not_finite"] = *found.loss_not_finite;
  if (!check_up.narrow && check_up.losses.not_finite > 0) json["loss_not_finite"] = check_up.losses.first;
  for (const Near& near : found.nearest) {
    json["nearest"].push_back({{"tensor", near.name}, {"format", near.format}});
    json["nearest"].back().update(point_json(near.at));
  }
  for (const RangePoint& point : check_up.moved) json["moved"].push_back(point_json(point));
  for (const Treatment& treatment : check_up.treatments)
    json["treatments"].push_back(treatment_json(treatment));
  return json;
}

void doctor_command(const DoctorOptions& options) {
  const CheckUp found =
      check_up(options.folder, options.step == INT64_MAX ? UINT64_MAX : static_cast<uint64_t>(options.step));
  fmt::print("{}", options.json ? check_up_json(found).dump() + "\n" : check_up_text(found));
}

}  // namespace

void add_doctor_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "doctor", "Which tensor of a run overflowed or was flushed to zero first, and what helps");
  auto options = std::make_shared<DoctorOptions>();
  command->add_option("DIR", options->folder, "The run's folder")->required();
  command->add_option("--step", options->step, "Look at the run as it stood after this step")
      ->check(CLI::Range(int64_t{1}, INT64_MAX).description(""))
      ->option_text("STEP");
  command->add_flag("--json", options->json, "Print JSON");
  command->footer("Examples:\n  ulp doctor runs/lenet\n  ulp doctor runs/lenet --step 100 --json");
  command->callback([options] { doctor_command(*options); });
}

}  // namespace ulp
