// The subcommands. Each registers itself on the program and runs when chosen. Bad input throws ulp::Error.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <string>

namespace ulp {

void add_formats_command(CLI::App& program);
void add_format_command(CLI::App& program);
void add_quantize_command(CLI::App& program);
void add_demo_command(CLI::App& program);

// JSON keeps the order in which keys were written.
using Json = nlohmann::ordered_json;

// A number for JSON, which has no infinity and no NaN: those become the strings "inf", "-inf" and "nan",
// which Python's float() and strtod read.
Json json_number(double value);

// The same for people: shortest digits that read back to the same fp32 number.
std::string number_text(float value);

// Bytes with a unit: 512 B, 1.5 KiB, 3.2 MiB.
std::string bytes_text(double bytes);

}  // namespace ulp
