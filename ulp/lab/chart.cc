#include "ulp/lab/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace ulp {
namespace {

constexpr double kPanelWidth = 480, kPanelHeight = 400;
constexpr double kLeft = 72, kRight = 16, kTop = 36, kBottom = 56;
constexpr double kLegendRow = 22, kLegendColumn = 160;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

// The shortest text of a coordinate that is exact enough on a screen.
std::string coordinate(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

struct Axis {
  double low = 0, high = 1;  // logarithms of ten where `log`
  bool log = false;

  double place(double value) const { return ((log ? std::log10(value) : value) - low) / (high - low); }
};

bool shown(const Panel& panel, const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second) && (!panel.log_x || point.first > 0) &&
         (!panel.log_y || point.second > 0);
}

Axis axis_of(const Panel& panel, bool x) {
  Axis axis;
  axis.log = x ? panel.log_x : panel.log_y;
  axis.low = std::numeric_limits<double>::infinity();
  axis.high = -axis.low;
  const bool from_zero =
      !x && !axis.log &&
      std::any_of(panel.series.begin(), panel.series.end(), [](const Series& series) { return series.fill; });
  for (const Series& series : panel.series) {
    for (const auto& point : series.points) {
      if (!shown(panel, point)) continue;
      const double plain = x ? point.first : point.second;
      const double value = axis.log ? std::log10(plain) : plain;
      axis.low = std::min(axis.low, value);
      axis.high = std::max(axis.high, value);
    }
  }
  if (axis.low > axis.high) axis.low = 0, axis.high = 1;
  // Room around the points, and a range where all are one.
  const double room =
      axis.high > axis.low ? 0.04 * (axis.high - axis.low) : std::max(0.5, 0.01 * std::abs(axis.low));
  axis.low = from_zero ? std::min(axis.low, 0.0) : axis.low - room;
  axis.high += room;
  return axis;
}

std::vector<std::pair<double, std::string>> ticks_of(const Axis& axis) {
  std::vector<std::pair<double, std::string>> ticks;
  if (!axis.log) {
    for (const double value : axis_ticks(axis.low, axis.high, 6))
      ticks.emplace_back(value, fmt::format("{:.6g}", value));
    return ticks;
  }
  // 1, 2 and 5 of each decade, or the decades alone where there are many.
  const bool few = axis.high - axis.low < 2.5;
  for (int decade = static_cast<int>(std::floor(axis.low)); decade <= static_cast<int>(axis.high); ++decade) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double value = digit * std::pow(10.0, decade);
      if (std::log10(value) < axis.low || std::log10(value) > axis.high || (digit > 1 && !few)) continue;
      ticks.emplace_back(value, fmt::format("{:.6g}", value));
    }
  }
  return ticks;
}

class Drawing {
 public:
  void text(double x, double y, const std::string& words, const char* anchor, const char* more = "") {
    out_ += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\"{}>{}</text>\n", coordinate(x),
                        coordinate(y), anchor, more, escaped(words));
  }
  void line(double x1, double y1, double x2, double y2, const char* color) {
    out_ += fmt::format("<path d=\"M{} {}L{} {}\" stroke=\"{}\"/>\n", coordinate(x1), coordinate(y1),
                        coordinate(x2), coordinate(y2), color);
  }
  // `floor` is where areas end.
  void series(const Series& series, std::span<const std::pair<double, double>> places, double floor = 0) {
    if (places.empty()) return;
    std::string line, dots, last_x, last_y;
    for (const auto& [at_x, at_y] : places) {
      const std::string x = coordinate(at_x), y = coordinate(at_y);
      // Stairs have half the numbers of other lines.
      if (line.empty()) {
        line = fmt::format("M{} {}", x, y);
      } else if (x != last_x || y != last_y) {
        line += x == last_x   ? fmt::format("V{}", y)
                : y == last_y ? fmt::format("H{}", x)
                              : fmt::format("L{} {}", x, y);
      }
      dots += fmt::format("M{} {}h0", x, y);
      last_x = x;
      last_y = y;
    }
    if (series.fill) {
      out_ +=
          fmt::format("<path d=\"{}L{} {}L{} {}Z\" fill=\"{}\"/>\n", line, coordinate(places.back().first),
                      coordinate(floor), coordinate(places.front().first), coordinate(floor), series.color);
    }
    if (series.line) {
      out_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"/>\n", line,
                          series.color);
    }
    if (series.dot > 0) {
      out_ += fmt::format("<path d=\"{}\" stroke=\"{}\" stroke-width=\"{}\" stroke-linecap=\"round\"/>\n",
                          dots, series.color, coordinate(series.dot));
    }
  }

  std::string take(double width, double height) {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"{0}\" height=\"{1}\" "
        "fill=\"#fff\"/>\n{2}</svg>\n",
        coordinate(width), coordinate(height), out_);
  }

 private:
  std::string out_;
};

void draw(Drawing& drawing, const Panel& panel, double offset) {
  const Axis x = axis_of(panel, true), y = axis_of(panel, false);
  const double left = offset + kLeft, right = offset + kPanelWidth - kRight;
  const double top = kTop, bottom = kPanelHeight - kBottom;
  const auto across = [&](double value) { return left + x.place(value) * (right - left); };
  const auto down = [&](double value) { return bottom - y.place(value) * (bottom - top); };
  drawing.text((left + right) / 2, top - 14, panel.title, "middle", " font-weight=\"bold\"");
  for (const auto& [value, label] : ticks_of(x)) {
    drawing.line(across(value), top, across(value), bottom, "#e5e5e5");
    drawing.text(across(value), bottom + 18, label, "middle");
  }
  for (const auto& [value, label] : ticks_of(y)) {
    drawing.line(left, down(value), right, down(value), "#e5e5e5");
    drawing.text(left - 6, down(value) + 4.5, label, "end");
  }
  drawing.line(left, bottom, right, bottom, "#333");
  drawing.line(left, top, left, bottom, "#333");
  drawing.text((left + right) / 2, bottom + 40, panel.x_label, "middle");
  const double middle = (top + bottom) / 2;
  drawing.text(
      offset + 16, middle, panel.y_label, "middle",
      fmt::format(" transform=\"rotate(-90 {} {})\"", coordinate(offset + 16), coordinate(middle)).c_str());
  for (const Series& series : panel.series) {
    std::vector<std::pair<double, double>> places;
    for (const auto& point : series.points) {
      if (shown(panel, point)) places.emplace_back(across(point.first), down(point.second));
    }
    drawing.series(series, places, y.log ? bottom : down(0));
  }
}

}  // namespace

std::vector<double> axis_ticks(double low, double high, int count) {
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double digit = rough / power < 1.5 ? 1 : rough / power < 3.5 ? 2 : rough / power < 7.5 ? 5 : 10;
  const double step = digit * power;
  std::vector<double> ticks;
  const auto last = static_cast<int64_t>(std::floor(high / step));
  for (auto i = static_cast<int64_t>(std::ceil(low / step)); i <= last; ++i) {
    ticks.push_back(static_cast<double>(i) * step);
  }
  return ticks;
}

std::string svg_chart(std::span<const Panel> panels) {
  Drawing drawing;
  const double width = kPanelWidth * static_cast<double>(panels.size());
  double offset = 0;
  for (const Panel& panel : panels) {
    draw(drawing, panel, offset);
    offset += kPanelWidth;
  }
  std::vector<std::pair<std::string, std::string>> named;
  double x = kLeft, y = kPanelHeight + kLegendRow / 2;
  for (const Series& series : panels.empty() ? std::vector<Series>() : panels[0].series) {
    const std::pair key(series.name, series.color);
    if (series.name.empty() || std::find(named.begin(), named.end(), key) != named.end()) continue;
    named.push_back(key);
    if (x + kLegendColumn > width) {
      x = kLeft;
      y += kLegendRow;
    }
    const std::pair<double, double> from(x, y), to(x + 24, y), middle(x + 12, y);
    Series mark = series;
    mark.fill = false;
    mark.dot = 0;
    drawing.series(mark, std::vector{from, to});
    mark.dot = series.fill ? 14 : series.dot;
    mark.line = false;
    drawing.series(mark, std::vector{middle});
    drawing.text(x + 32, y + 4.5, series.name, "start");
    x += kLegendColumn;
  }
  return drawing.take(width, y + kLegendRow);
}

}  // namespace ulp
