// The subcommands. Each registers itself on the program and runs when chosen. Bad input throws ulp::Error.
#pragma once

#include <CLI/CLI.hpp>

namespace ulp {

void add_formats_command(CLI::App& program);
void add_format_command(CLI::App& program);
void add_quantize_command(CLI::App& program);
void add_datasets_command(CLI::App& program);
void add_data_command(CLI::App& program);
void add_models_command(CLI::App& program);
void add_plan_command(CLI::App& program);
void add_train_command(CLI::App& program);
void add_eval_command(CLI::App& program);
void add_export_command(CLI::App& program);
void add_predict_command(CLI::App& program);
void add_doctor_command(CLI::App& program);
void add_sensitivity_command(CLI::App& program);
void add_lab_command(CLI::App& program);
void add_least_squares_command(CLI::App& lab);   // of lab
void add_memory_profile_command(CLI::App& lab);  // of lab
void add_update_costs_command(CLI::App& lab);    // of lab
void add_bench_command(CLI::App& program);
void add_demo_command(CLI::App& program);
void add_report_command(CLI::App& program);
void add_watch_command(CLI::App& program);
void add_runs_command(CLI::App& program);
void add_compare_command(CLI::App& program);
void add_sweep_command(CLI::App& program);
void add_tune_command(CLI::App& program);

}  // namespace ulp
