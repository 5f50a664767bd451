#include "ulp/report/page.h"

#include <algorithm>

#include "ulp/base/error.h"

// The file of the page, as the build has made it.
__asm__(
    ".pushsection .rodata\n"
    "ulp_report_page_begin:\n"
    ".incbin \"" ULP_REPORT_PAGE
    "\"\n"
    "ulp_report_page_end:\n"
    ".byte 0\n"
    ".popsection\n");
extern "C" {
extern const char ulp_report_page_begin[] __attribute__((visibility("hidden")));
extern const char ulp_report_page_end[] __attribute__((visibility("hidden")));
}

namespace ulp {
namespace {

constexpr std::string_view kPlace = "__DOCUMENT__";

}  // namespace

std::string_view page_template() {
  return {ulp_report_page_begin, static_cast<size_t>(ulp_report_page_end - ulp_report_page_begin)};
}

std::string_view why_no_page() { return page_template().empty() ? ULP_REPORT_NO_PAGE : ""; }

std::string make_page(std::string_view page, std::string_view document) {
  const size_t place = page.find(kPlace);
  if (place == page.npos || page.find(kPlace, place + kPlace.size()) != page.npos)
    fail("report", "the page must have {} once, where the document goes", kPlace);
  std::string made;
  made.reserve(page.size() + document.size() + document.size() / 16);
  made += page.substr(0, place);
  // All three stand in texts of JSON alone, where a number may stand for them. `<` begins what ends a
  // script, and old readers of scripts take the two separators for ends of lines.
  while (!document.empty()) {
    const size_t plain = std::min(document.find_first_of("<\xE2"), document.size());
    made += document.substr(0, plain);
    document.remove_prefix(plain);
    if (document.starts_with('<')) {
      made += "\\u003c";
      document.remove_prefix(1);
    } else if (document.starts_with("\xE2\x80\xA8") || document.starts_with("\xE2\x80\xA9")) {
      made += document[2] == '\xA8' ? "\\u2028" : "\\u2029";
      document.remove_prefix(3);
    } else if (!document.empty()) {
      made += document.front();
      document.remove_prefix(1);
    }
  }
  made += page.substr(place + kPlace.size());
  return made;
}

}  // namespace ulp
