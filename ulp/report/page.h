// The page that shows a document: one file of HTML which needs no other.
#pragma once

#include <string>
#include <string_view>

namespace ulp {

// The page of this build, without a document. "": it was built without one (ULP_WEB).
std::string_view page_template();

// The page with its document, in place of `__DOCUMENT__`. No text in the document can end the script
// that it lies in. Throws an Error for a page that has no such place, or two.
std::string make_page(std::string_view page, std::string_view document);

}  // namespace ulp
