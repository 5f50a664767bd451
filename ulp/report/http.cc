#include "ulp/report/http.h"

#include <fmt/format.h>

#include <algorithm>

namespace ulp {
namespace {

constexpr std::string_view kLineEnd = "\r\n";

bool is_token_letter(char c) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         kMarks.find(c) != kMarks.npos;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_letter);
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string lowered(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Takes the first line off.
std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find(kLineEnd), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(text.size(), end + kLineEnd.size()));
  return line;
}

// Calls `each` with every part between commas.
template <typename Each>
void for_parts(std::string_view text, const Each& each) {
  while (true) {
    const size_t comma = text.find(',');
    each(trimmed(text.substr(0, comma)));
    if (comma == text.npos) return;
    text.remove_prefix(comma + 1);
  }
}

bool parse_first_line(HttpRequest& request, std::string_view line) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == line.npos || first == last) return false;
  const std::string_view method = line.substr(0, first), version = line.substr(last + 1);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  if (!is_token(method) || target.empty()) return false;
  if (std::any_of(target.begin(), target.end(), [](char c) { return c <= ' ' || c > '~'; })) return false;
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    request.refused = version.starts_with("HTTP/") ? 505 : 400;
    return true;
  }
  request.method = method;
  request.target = target;
  request.keep = version == "HTTP/1.1";
  return true;
}

struct Seen {
  int hosts = 0, matches = 0;
  bool body = false;
};

bool parse_field(HttpRequest& request, std::string_view line, Seen& seen) {
  const size_t colon = line.find(':');
  if (colon == line.npos || !is_token(line.substr(0, colon))) return false;
  const std::string name = lowered(line.substr(0, colon));
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (std::any_of(value.begin(), value.end(),
                  [](char c) { return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == 0x7F; }))
    return false;
  if (name == "host") {
    request.host = value;
    ++seen.hosts;
  } else if (name == "if-none-match") {
    request.if_none_match += (seen.matches++ > 0 ? ", " : "") + std::string(value);
  } else if (name == "transfer-encoding" || (name == "content-length" && value != "0")) {
    seen.body = true;
  } else if (name == "connection") {
    for_parts(value, [&](std::string_view part) {
      if (lowered(part) == "close") request.keep = false;
    });
  }
  return true;
}

}  // namespace

size_t head_bytes(std::string_view text) {
  const size_t end = text.find("\r\n\r\n");
  return end == text.npos ? 0 : end + 4;
}

HttpRequest parse_head(std::string_view head) {
  HttpRequest request;
  const auto refuse = [&](int status) {
    request.refused = status;
    request.keep = false;
    return request;
  };
  if (!parse_first_line(request, take_line(head))) return refuse(400);
  if (request.refused != 0) return refuse(request.refused);
  Seen seen;
  while (!head.empty()) {
    const std::string_view line = take_line(head);
    if (line.empty()) break;
    if (!parse_field(request, line, seen)) return refuse(400);
  }
  // Before the rest: what is wrong with it is not that it has a body.
  if (request.method != "GET") return refuse(405);
  if (seen.hosts != 1 || seen.body) return refuse(400);
  return request;
}

std::optional<std::string> host_name(std::string_view field) {
  std::string_view name = field, port;
  if (field.starts_with('[')) {
    const size_t end = field.find(']');
    if (end == field.npos) return std::nullopt;
    name = field.substr(1, end - 1);
    port = field.substr(end + 1);
  } else if (const size_t colon = field.find(':'); colon != field.npos) {
    name = field.substr(0, colon);
    port = field.substr(colon);
  }
  if (!port.empty() && port.front() != ':') return std::nullopt;
  if (!port.empty()) port.remove_prefix(1);
  if (!std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  if (name.empty()) return std::nullopt;
  return lowered(name);
}

bool names_tag(std::string_view field, std::string_view tag) {
  bool found = false;
  if (field.empty()) return false;
  for_parts(field, [&](std::string_view part) {
    if (part.starts_with("W/")) part.remove_prefix(2);
    found = found || part == "*" || part == tag;
  });
  return found;
}

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Error";
  }
}

std::string answer_head(const HttpAnswer& answer) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", answer.status, reason_of(answer.status));
  if (answer.status != 304) head += fmt::format("Content-Length: {}\r\n", answer.length);
  if (!answer.type.empty()) head += fmt::format("Content-Type: {}\r\n", answer.type);
  head += answer.fields;
  head +=
      "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
      "Cross-Origin-Resource-Policy: same-origin\r\n";
  return head + (answer.keep ? "\r\n" : "Connection: close\r\n\r\n");
}

}  // namespace ulp
