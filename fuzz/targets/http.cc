// What a browser sends. The first line is the tag of a page; the rest is a request, a host and a list
// of tags.
#include "ulp/report/http.h"

#include <algorithm>

#include "fuzz/fuzz.h"

namespace ulp::fuzz {

void try_input(std::string_view input) {
  Cutter cutter(input);
  const std::string_view tag = cutter.until('\n'), text = cutter.rest();
  const size_t bytes = head_bytes(text);
  expect(bytes <= text.size(), "a head is longer than the text");
  expect(bytes == 0 || head_bytes(text.substr(0, bytes)) == bytes, "a head is not one by itself");
  expect(bytes == 0 || head_bytes(text.substr(0, bytes - 1)) == 0, "a head without its end is one");
  const HttpRequest request = parse_head(text.substr(0, bytes));
  expect(request.refused == 0 || (request.refused >= 400 && request.refused < 600), "no status of an error");
  expect(request.refused != 0 || (!request.method.empty() && !request.target.empty()),
         "a request of nothing");
  expect(!reason_of(request.refused == 0 ? 200 : request.refused).empty(), "a status without a name");
  for (const std::string_view field : {text, std::string_view(request.host)}) {
    const std::optional<std::string> host = host_name(field);
    if (!host) continue;
    const bool lower = std::none_of(host->begin(), host->end(), [](char c) { return c >= 'A' && c <= 'Z'; });
    expect(lower && host->size() <= field.size(), "a host that the field does not have");
  }
  names_tag(text, tag);
  names_tag(request.if_none_match, tag);
}

}  // namespace ulp::fuzz
