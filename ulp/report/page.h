// The page that shows a document: one file of HTML which needs no other.
#pragma once

#include <string>
#include <string_view>

namespace ulp {

// The page of this build, without a document. "": it was built without one (ULP_WEB).
std::string_view page_template();

// Why it has none and what would help, for a sentence that goes on. "": it has one.
std::string_view why_no_page();

// The page with its document, in place of `__DOCUMENT__`. No text in the document can end the script
// that it lies in. Throws an Error for a page that has no such place, or two.
std::string make_page(std::string_view page, std::string_view document);

}  // namespace ulp
