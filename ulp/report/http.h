// What little of HTTP/1.1 a report needs: the head of a request read strictly, the head of an answer
// written. Pure functions of text; ulp/report/server.h has the sockets.
//
// A request is a head and nothing else: who sends a body is refused. A head that is not exactly what
// RFC 9112 allows (a line end without \r, a space before a colon, a second Host) is refused too.
// Guessing what was meant is how two programs come to read one request differently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ulp {

// A head that is longer is refused. A browser's has less than 2 KiB.
inline constexpr size_t kMostHead = 16384;

struct HttpRequest {
  int refused = 0;  // a status: the head is none that is answered, and the connection ends. 0: it is fine
  std::string method = {}, target = {}, host = {}, if_none_match = {};
  bool keep = false;  // the connection, after the answer
};

// Bytes of the first head in the text with the empty line that ends it; 0 where that is still missing.
size_t head_bytes(std::string_view text);
HttpRequest parse_head(std::string_view head);

// The host of a Host field without its port, in lower case and without the brackets of an IPv6
// address. Nothing where the text is no host.
std::optional<std::string> host_name(std::string_view field);

// Whether an If-None-Match field names this tag. Weak tags count, as RFC 9110 has it.
bool names_tag(std::string_view field, std::string_view tag);

struct HttpAnswer {
  int status = 200;
  std::string_view type = {};    // of the content
  std::string_view fields = {};  // more fields, each with its line end
  size_t length = 0;
  bool keep = true;
};
// With the fields that every answer has: no guessing of types, no address of this page in requests to
// others, no use by pages of other sites.
std::string answer_head(const HttpAnswer& answer);
std::string_view reason_of(int status);

}  // namespace ulp
