// Scatter plots, lines and areas as SVG: panels side by side with axes, ticks and one legend. Small
// files: the dots of a series are one path.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ulp {

struct Series {
  std::string name;   // in the legend; series of one name and colour stand there once
  std::string color;  // as SVG has it
  std::vector<std::pair<double, double>> points;
  bool line = false;  // from each point to the next
  double dot = 6;     // diameter; 0: none
  bool fill = false;  // the area between the points and 0, which the axis then begins at
};

struct Panel {
  std::string title, x_label, y_label;
  std::vector<Series> series;  // later ones lie over earlier ones
  bool log_y = false;          // points at or below 0 are left out
  bool log_x = false;          // likewise
};

// The legend has the series of the first panel. Points that are not finite are left out.
std::string svg_chart(std::span<const Panel> panels);

// Round numbers, 1, 2 or 5 times a power of ten apart, that lie from low to high: about `count` of
// them. Needs low < high.
std::vector<double> axis_ticks(double low, double high, int count);

}  // namespace ulp
