#include "apps/ulp/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/text.h"

namespace ulp {
namespace {

constexpr size_t kMostShown = 200;  // letters

class OneName : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    const std::vector<std::string>& names = option->get_lnames();
    if (positional || names.empty()) return CLI::Formatter::make_option_name(option, positional);
    const std::vector<std::string>& letters = option->get_snames();
    return (letters.empty() ? "" : "-" + letters.front() + ",") + "--" + names.front();
  }
};

bool is_option(std::string_view word) { return word.size() > 1 && word.front() == '-'; }

// "ulp data check".
std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return (parent == nullptr ? "" : full_name(*parent) + " ") + command.get_name();
}

std::vector<std::string> commands_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* one : command.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(one->get_name());
  return names;
}

// The name in --name=value or -name.
std::string_view bare(std::string_view option) {
  option = option.substr(0, option.find('='));
  option.remove_prefix(std::min(option.find_first_not_of('-'), option.size()));
  return option;
}

// "--batch" for "--bacth=3"; "" where no option is near.
std::string nearest_option(const CLI::App& command, std::string_view word) {
  std::vector<std::string_view> names;
  for (const CLI::Option* option : command.get_options())
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  const std::string_view name = nearest_name(bare(word), names);
  return name.empty() ? "" : fmt::format("--{}", name);
}

void check_commands(const CLI::App& command) {
  const std::vector<std::string> left = command.remaining(), known = commands_of(command);
  if (left.empty() || is_option(left.front()) || known.empty()) return;
  const std::vector<std::string_view> names(known.begin(), known.end());
  const std::string_view nearest = nearest_name(left.front(), names);
  fail("command", "unknown command '{} {}'{} (see {} --help)", full_name(command), shown_text(left.front()),
       nearest.empty() ? "" : fmt::format("; the nearest is {}", nearest), full_name(command));
}

// What the parser left over, in its order. It may have taken the value of an option that it does
// not know for one of the files that a command takes: that value belongs here too.
std::vector<std::string> not_understood(const CLI::App& command, const std::vector<std::string>& words) {
  const std::vector<std::string> left = command.remaining();
  std::vector<std::string> all;
  auto at = words.begin();
  for (size_t i = 0; i < left.size(); ++i) {
    all.push_back(left[i]);
    at = std::find(at, words.end(), left[i]);
    if (at == words.end() || ++at == words.end()) continue;
    const bool alone = !is_option(left[i]) || left[i].find('=') != std::string::npos;
    if (alone || is_option(*at) || (i + 1 < left.size() && left[i + 1] == *at)) continue;
    const std::string meant = nearest_option(command, left[i]);
    if (meant.empty() || command.get_option(meant)->get_expected_max() > 0) all.push_back(*at);
  }
  return all;
}

// Of the commands from the program to the one that was chosen, in this order.
void check_words(const CLI::App& command, const std::vector<std::string>& words) {
  check_commands(command);
  if (const std::vector<std::string> left = not_understood(command, words); !left.empty()) {
    const auto unknown = std::find_if(left.begin(), left.end(), is_option);
    const std::string meant = unknown == left.end() ? "" : nearest_option(command, *unknown);
    fail("command", "not understood: '{}'{} (see {} --help)",
         shown_text(fmt::format("{}", fmt::join(left, " ")), kMostShown),
         meant.empty() ? ""
                       : fmt::format("; the nearest to {} is {}",
                                     shown_text(unknown->substr(0, unknown->find('='))), meant),
         full_name(command));
  }
  for (const CLI::App* chosen : command.get_subcommands()) check_words(*chosen, words);
}

// The parser would take any number for a switch.
void check_switches(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    if (option->get_expected_max() > 0 || option->get_lnames().empty()) continue;
    option->check([](const std::string& text) {
      constexpr std::string_view kWords[] = {"true", "false", "on", "off", "yes", "no", "1", "0"};
      const bool known = std::find(std::begin(kWords), std::end(kWords), text) != std::end(kWords);
      return known ? std::string() : fmt::format("'{}' is neither true nor false", shown_text(text));
    });
  }
  for (CLI::App* one : command.get_subcommands([](const CLI::App*) { return true; })) check_switches(*one);
}

const CLI::App& chosen(const CLI::App& command) {
  const std::vector<CLI::App*> next = command.get_subcommands();
  return next.empty() ? command : chosen(*next.front());
}

}  // namespace

void set_reading(CLI::App& program) {
  program.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  program.formatter(std::make_shared<OneName>());
}

void parse_program(CLI::App& program, int argc, const char* const* argv) {
  check_switches(program);
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success&) {
    // `ulp trian --help` is no question about the program.
    check_commands(program);
    throw;
  } catch (const CLI::RuntimeError&) {
    throw;
  } catch (const CLI::ParseError& error) {
    check_words(program, {argv + 1, argv + argc});
    const CLI::App& command = chosen(program);
    const std::string page = full_name(command);
    if (const std::vector<std::string> known = commands_of(command); !known.empty())
      fail("command", "{} needs a subcommand: {} (see {} --help)", page, fmt::join(known, ", "), page);
    fail("command", "{} (see {} --help)", error.what(), page);
  }
}

}  // namespace ulp
