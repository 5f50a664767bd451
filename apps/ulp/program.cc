// Everything below apps/ throws; this is where an error becomes one line and an exit code.
#include "apps/ulp/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <iterator>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include "apps/ulp/commands.h"
#include "apps/ulp/environment.h"
#include "apps/ulp/parse.h"
#include "apps/ulp/stop.h"
#include "ulp/base/error.h"
#include "ulp/run/trainer.h"

namespace {

constexpr int kBadInput = 2;
constexpr int kBroken = 1;
constexpr std::string_view kLists[] = {"formats", "format", "datasets", "data", "models"};

// One line of plain text, whatever the message holds. Where even that cannot be written, the code still
// tells.
int report(std::string message, int code) {
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7F) c = '?';
  }
  std::fputs(("ulp: " + message + "\n").c_str(), stderr);
  return code;
}

void check_output() {
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0) ulp::fail("output", "cannot write to standard output");
}

void run(int argc, char** argv) {
  CLI::App program("Ulp: neural networks trained in narrow floating point, tensor by tensor.", "ulp");
  ulp::set_reading(program);
  program.set_version_flag("--version", ULP_VERSION);
  program.require_subcommand(1);
  program.footer("`ulp COMMAND --help` shows a command's options and examples.");
  ulp::add_formats_command(program);
  ulp::add_format_command(program);
  ulp::add_quantize_command(program);
  ulp::add_datasets_command(program);
  ulp::add_data_command(program);
  ulp::add_models_command(program);
  ulp::add_plan_command(program);
  ulp::add_train_command(program);
  ulp::add_eval_command(program);
  ulp::add_predict_command(program);
  ulp::add_export_command(program);
  ulp::add_doctor_command(program);
  ulp::add_runs_command(program);
  ulp::add_compare_command(program);
  ulp::add_report_command(program);
  ulp::add_watch_command(program);
  ulp::add_sensitivity_command(program);
  ulp::add_lab_command(program);
  ulp::add_bench_command(program);
  ulp::add_demo_command(program);
  ulp::add_sweep_command(program);
  ulp::add_tune_command(program);
  ulp::apply_environment();
  // Before the command runs, but not for help, nor for those that only list something.
  program.parse_complete_callback([&program] {
    for (const CLI::App* command : program.get_subcommands()) {
      if (std::find(std::begin(kLists), std::end(kLists), command->get_name()) == std::end(kLists))
        ulp::apply_simd_of_environment();
    }
  });
  try {
    ulp::parse_program(program, argc, argv);
  } catch (const CLI::Success& done) {
    program.exit(done);  // prints the help or the version
  }
  check_output();
}

}  // namespace

namespace ulp {

int run_program(int argc, char** argv) {
  // A file-size limit then fails the write, which cleans up after itself, instead of killing the program.
  std::signal(SIGXFSZ, SIG_IGN);
  ulp::explain_memory_limit();
  try {
    run(argc, argv);
    return 0;
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();  // a command that has said what there is to say
  } catch (const ulp::Diverged& error) {
    return report(error.what(), ulp::kDivergedCode);
  } catch (const ulp::Error& error) {
    return report(error.what(), kBadInput);
  } catch (const std::system_error& error) {
    // What fmt throws where it cannot print.
    if (std::string_view(error.what()).starts_with("cannot write to file"))
      return report(fmt::format("[output] {}", error.what()), kBadInput);
    // As where a thread finds no memory for its stack.
    const bool memory = error.code() == std::errc::resource_unavailable_try_again ||
                        error.code() == std::errc::not_enough_memory;
    if (memory) return report(fmt::format("out of memory ({})", error.what()), kBroken);
    return report(error.what(), kBadInput);
  } catch (const std::bad_alloc&) {
    return report("out of memory", kBroken);
  } catch (const std::exception& error) {
    return report(error.what(), kBroken);
  }
}

}  // namespace ulp
