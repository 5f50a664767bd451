// `ulp datasets` and `ulp data check`: which data sets there are, and whether they are here.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "apps/ulp/commands.h"
#include "apps/ulp/text.h"
#include "ulp/base/error.h"
#include "ulp/data/dataset.h"

namespace ulp {
namespace {

constexpr size_t kClassesInARow = 10;

// 3x32x32, or ? where the files decide.
std::string shape_text(size_t channels, size_t height, size_t width) {
  return height == 0 ? "?" : fmt::format("{}x{}x{}", channels, height, width);
}

std::string count_text(size_t count) { return count == 0 ? "?" : std::to_string(count); }

// A number that the files decide is null.
Json count_json(size_t count) { return count == 0 ? Json() : Json(count); }

// Names of files may be no UTF-8, which JSON must be.
void print_json(const Json& json) {
  fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void print_datasets(bool json) {
  Json list = Json::array();
  if (!json) {
    fmt::print("{:<15}{:>9}{:>9}{:>9}{:>9}  {:<46}{}\n", "name", "shape", "classes", "train", "test", "what",
               "where");
  }
  for (const DatasetInfo& info : datasets()) {
    const DatasetPlace place = locate(info, "");
    if (json) {
      list.push_back({{"name", info.name},
                      {"about", info.about},
                      {"height", count_json(info.height)},
                      {"width", count_json(info.width)},
                      {"channels", count_json(info.channels)},
                      {"classes", count_json(info.classes)},
                      {"train", count_json(info.train)},
                      {"test", count_json(info.test)},
                      {"there", place.path.has_value()},
                      {"path", place.path ? Json(*place.path) : Json()},
                      {"looked", place.looked},
                      {"get", info.get}});
      continue;
    }
    const std::string where = !place.path ? "not found" : place.path->empty() ? "generated" : *place.path;
    fmt::print("{:<15}{:>9}{:>9}{:>9}{:>9}  {:<46}{}\n", info.name,
               shape_text(info.channels, info.height, info.width), count_text(info.classes),
               count_text(info.train), count_text(info.test), info.about, where);
  }
  if (json) {
    print_json(list);
  } else {
    fmt::print(
        "\nULP_DATA or --data-dir names the folder that holds them; `ulp data check NAME` says more.\n");
  }
}

struct CheckOptions {
  std::string name, data_dir, shape;
  const CLI::Option *data_dir_option = nullptr, *shape_option = nullptr;  // which tell "" from nothing
  bool json = false;
};

// "6000 each", or the number of each class.
void print_class_counts(std::string_view part, const std::vector<size_t>& counts) {
  if (std::all_of(counts.begin(), counts.end(), [&](size_t count) { return count == counts[0]; })) {
    fmt::print("  {:<22}{} each\n", part, counts[0]);
    return;
  }
  for (size_t i = 0; i < counts.size(); i += kClassesInARow) {
    const auto row = std::span(counts).subspan(i, std::min(kClassesInARow, counts.size() - i));
    fmt::print("  {:<22}{}\n", i == 0 ? part : "", fmt::join(row, " "));
  }
}

// Where mean and deviation are from.
std::string_view normalise_text(const DatasetInfo& info) { return info.mean.empty() ? "measured" : "recipe"; }

void print_set(const ImageSet& set, const DatasetInfo& info, const std::string& path) {
  fmt::print("{}: {}\n", set.name, info.about);
  const auto line = [](std::string_view name, const std::string& value) {
    fmt::print("  {:<22}{}\n", name, value);
  };
  // Other counts than the published ones are allowed where the files hold their own, but not passed over.
  const auto counted = [&](size_t count, size_t published) {
    const bool differs = !info.marker.empty() && published != 0 && count != published;
    return fmt::format("{}{}", count, differs ? fmt::format(" (published with {})", published) : "");
  };
  line("where", path.empty() ? "generated" : path);
  line("shape", shape_text(set.channels, set.height, set.width));
  line("train", counted(set.train.count(), info.train));
  line("test", counted(set.test.count(), info.test));
  line("classes", std::to_string(set.classes));
  const std::vector<std::string> names = class_names_of(set);
  for (size_t i = 0; i < names.size(); ++i) line("", fmt::format("{} {}", i, printable(names[i])));
  for (const std::string& name : set.skipped) line("skipped, no picture", printable(name));
  print_class_counts("train a class", class_counts(set, set.train));
  print_class_counts("test a class", class_counts(set, set.test));
  line(fmt::format("mean ({})", normalise_text(info)), fmt::format("{}", fmt::join(set.mean, " ")));
  line(fmt::format("deviation ({})", normalise_text(info)), fmt::format("{}", fmt::join(set.deviation, " ")));
}

void check(const CheckOptions& options) {
  const DatasetInfo& info = find_dataset(options.name);
  if (options.data_dir_option->count() > 0 && options.data_dir.empty()) {
    fail("data", "--data-dir is empty: name a folder, or leave it out");
  }
  DataRequest request;
  request.dir = options.data_dir;
  if (options.shape_option->count() > 0) parse_image_shape(options.shape, request);
  const DatasetPlace place = locate(info, options.data_dir);
  if (!place.path) {
    if (options.json) {
      print_json({{"name", info.name}, {"there", false}, {"looked", place.looked}, {"get", info.get}});
    }
    fail("data", "{}", absence(info, place));
  }
  const ImageSet set = load_dataset(options.name, request);
  if (!options.json) return print_set(set, info, *place.path);
  print_json({{"name", set.name},
              {"there", true},
              {"path", *place.path},
              {"height", set.height},
              {"width", set.width},
              {"channels", set.channels},
              {"classes", set.classes},
              {"class_names", class_names_of(set)},
              {"skipped", set.skipped},
              {"train", set.train.count()},
              {"test", set.test.count()},
              {"train_per_class", class_counts(set, set.train)},
              {"test_per_class", class_counts(set, set.test)},
              {"normalise", normalise_text(info)},
              {"mean", set.mean},
              {"deviation", set.deviation}});
}

}  // namespace

void add_datasets_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("datasets", "The known data sets, and which of them are here");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print JSON");
  command->footer("Example:\n  ulp datasets");
  command->callback([json] { print_datasets(*json); });
}

void add_data_command(CLI::App& program) {
  CLI::App* data = program.add_subcommand("data", "Look at data sets");
  data->require_subcommand(1);
  data->footer("Example:\n  ulp data check fashion-mnist");
  CLI::App* command = data->add_subcommand(
      "check",
      "Read a data set and say what it holds, or where it was looked for and how to get it (exit 2)");
  auto options = std::make_shared<CheckOptions>();
  command->add_option("NAME", options->name, "See ulp datasets")->required();
  options->data_dir_option =
      command->add_option("--data-dir", options->data_dir,
                          "Look in this folder alone, not where ULP_DATA says or where Debian puts it");
  options->shape_option =
      command->add_option("--image-shape", options->shape,
                          "HxW: folder scales its pictures to it; HxW or CxHxW: synthetic makes such images");
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "Examples:\n"
      "  ulp data check fashion-mnist\n"
      "  ulp data check cifar10 --data-dir ~/data\n"
      "  ulp data check folder --data-dir pictures --image-shape 64x64");
  command->callback([options] { check(*options); });
}

}  // namespace ulp
