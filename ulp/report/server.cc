#include "ulp/report/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <string_view>
#include <utility>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/report/http.h"

namespace ulp {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kPollSeconds = 0.25;
constexpr double kRestSeconds = 0.1;
// After the last answer what a client still sends is read and dropped for so long. A socket that is
// closed with unread bytes resets the connection, and the client may lose the answer.
constexpr double kLingerSeconds = 1;
constexpr size_t kMostRequests = 10000;  // of a connection

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

Clock::time_point in_seconds(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// An address as text, without brackets; one of IPv4 in the clothes of IPv6 as itself.
std::string address_text(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr);
    ::inet_ntop(mapped ? AF_INET : AF_INET6, mapped ? &v6.sin6_addr.s6_addr[12] : &v6.sin6_addr.s6_addr[0],
                text.data(), text.size());
  } else {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text.data(), text.size());
  }
  return text.data();
}

uint16_t port_of(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

sockaddr_storage local_address(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return address;
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

Descriptor listen_on(const std::string& address, uint16_t port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  // As it stands in a URL.
  const bool brackets = address.size() > 2 && address.starts_with('[') && address.ends_with(']');
  const std::string bare = brackets ? address.substr(1, address.size() - 2) : address;
  if (bare.empty() || ::getaddrinfo(bare.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    fail("watch", "'{}' is no address of this machine in figures, such as 127.0.0.1, 0.0.0.0 or ::1",
         address);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  Descriptor listener(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  // A server that ended a moment ago leaves connections which keep the port else. One that still
  // listens keeps it in any case.
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (listener.get() < 0 || ::bind(listener.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(listener.get(), 64) != 0) {
    const int why = errno;
    if (why == EADDRINUSE) fail("watch", "port {} of {} is taken: choose another with --port", port, address);
    fail("watch", "cannot listen on port {} of {}: {}", port, address, std::strerror(why));
  }
  return listener;
}

// Compares two secrets. The time it takes does not depend on what they contain.
bool same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

struct Connection {
  enum class State : uint8_t { idle, head, answer, linger };

  Descriptor socket;
  std::string address = {};  // of ours that the client has reached
  State state = State::idle;
  Clock::time_point deadline = {}, since = {};
  std::string in = {}, head = {};
  std::shared_ptr<const std::string> body = {};
  size_t sent = 0;  // of head and body
  size_t requests = 0;
  bool keep = true;
};

}  // namespace

ServedDocument::ServedDocument(std::string text) : bytes(std::move(text)) {
  // FNV-1a: it tells documents apart, and nobody gains by two that look the same.
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  tag = fmt::format("\"{:016x}-{:x}\"", hash, bytes.size());
}

std::string random_token() {
  std::array<unsigned char, 16> bits{};
  if (::getrandom(bits.data(), bits.size(), 0) != static_cast<ssize_t>(bits.size()))
    fail("watch", "the kernel gives no random bytes: {}", std::strerror(errno));
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::string token;
  unsigned pending = 0, count = 0;
  for (const unsigned char byte : bits) {
    pending = (pending << 8) | byte;
    for (count += 8; count >= 6; count -= 6) token += kLetters[(pending >> (count - 6)) & 63];
  }
  return token + kLetters[(pending << (6 - count)) & 63];
}

class ReportServer::Impl {
 public:
  Impl(const ServerOptions& options, DocumentSource page, DocumentSource document)
      : options_(options),
        listener_(listen_on(options.address, options.port)),
        page_(std::move(page)),
        document_(std::move(document)) {
    const sockaddr_storage bound = local_address(listener_.get());
    port_ = port_of(bound);
    const std::string address = address_text(bound);
    root_ = is_loopback(address) ? "/" : fmt::format("/{}/", random_token());
    const std::string host = address.find(':') == address.npos ? address : fmt::format("[{}]", address);
    url_ = fmt::format("http://{}:{}{}", host, port_, root_);
  }

  void serve(const std::atomic<bool>& stop);

  std::string url_;
  uint16_t port_ = 0;

 private:
  void accept_all();
  void make_room();
  bool step(Connection& one, short events);  // false: it is over
  bool read_more(Connection& one);
  bool write_more(Connection& one);
  void answer(Connection& one, std::string_view head);
  void send(Connection& one, HttpAnswer what, std::shared_ptr<const std::string> body, bool with_body);
  void enter(Connection& one, Connection::State state);
  bool known_host(const Connection& one, const std::string& field) const;

  ServerOptions options_;
  Descriptor listener_;
  DocumentSource page_, document_;
  std::string root_;
  std::list<Connection> connections_;
  Clock::time_point accept_again_ = {};
};

void ReportServer::Impl::enter(Connection& one, Connection::State state) {
  const double seconds = state == Connection::State::idle     ? options_.idle_seconds
                         : state == Connection::State::head   ? options_.head_seconds
                         : state == Connection::State::answer ? options_.answer_seconds
                                                              : kLingerSeconds;
  one.state = state;
  one.since = Clock::now();
  one.deadline = in_seconds(seconds);
}

bool ReportServer::Impl::known_host(const Connection& one, const std::string& field) const {
  const auto name = host_name(field);
  return name && (*name == "localhost" || *name == "127.0.0.1" || *name == "::1" || *name == one.address);
}

void ReportServer::Impl::send(Connection& one, HttpAnswer what, std::shared_ptr<const std::string> body,
                              bool with_body) {
  what.length = body->size();
  what.keep = one.keep;
  one.head = answer_head(what);
  one.body = with_body ? std::move(body) : nullptr;
  one.sent = 0;
  enter(one, Connection::State::answer);
}

void ReportServer::Impl::answer(Connection& one, std::string_view head) {
  const HttpRequest request = parse_head(head);
  one.keep = request.keep && ++one.requests < kMostRequests;
  // Refused as all others are, but no answer to it may have content.
  const bool with_body = request.method != "HEAD";
  const auto refuse = [&](int status, std::string_view fields = {}) {
    send(one, {status, "text/plain; charset=utf-8", fields},
         std::make_shared<const std::string>(std::string(reason_of(status)) + "\n"), with_body);
  };
  if (request.refused == 405) return refuse(405, "Allow: GET\r\n");
  if (request.refused != 0) return refuse(request.refused);
  if (!known_host(one, request.host)) return refuse(403);
  std::string_view path = request.target;
  if (path.size() < root_.size() || !same_secret(path.substr(0, root_.size()), root_)) return refuse(404);
  path.remove_prefix(root_.size());
  if (path.empty()) {
    std::string fields = "Cache-Control: no-store\r\n";
    if (!options_.policy.empty()) fields += "Content-Security-Policy: " + options_.policy + "\r\n";
    const std::shared_ptr<const ServedDocument> page = page_();
    return send(one, {200, "text/html; charset=utf-8", fields},
                std::shared_ptr<const std::string>(page, &page->bytes), true);
  }
  if (path != "document.json") return refuse(404);
  const std::shared_ptr<const ServedDocument> document = document_();
  const std::string fields = "Cache-Control: no-cache\r\nETag: " + document->tag + "\r\n";
  const bool same = names_tag(request.if_none_match, document->tag);
  send(one, {same ? 304 : 200, same ? "" : "application/json", fields},
       std::shared_ptr<const std::string>(document, &document->bytes), !same);
}

bool ReportServer::Impl::read_more(Connection& one) {
  std::array<char, 4096> buffer;
  const ssize_t count = ::recv(one.socket.get(), buffer.data(), buffer.size(), 0);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (count == 0) return false;
  if (one.state == Connection::State::linger) return true;
  one.in.append(buffer.data(), static_cast<size_t>(count));
  return true;
}

bool ReportServer::Impl::write_more(Connection& one) {
  while (true) {
    const std::string_view head = one.head, body = one.body ? *one.body : std::string_view();
    if (one.sent == head.size() + body.size()) break;
    const bool in_head = one.sent < head.size();
    const std::string_view rest = in_head ? head.substr(one.sent) : body.substr(one.sent - head.size());
    // The head waits for the body, so that a small answer is one packet.
    const int more = in_head && !body.empty() ? MSG_MORE : 0;
    const ssize_t count = ::send(one.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL | more);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    one.sent += static_cast<size_t>(count);
  }
  one.body.reset();
  if (one.keep) {
    enter(one, Connection::State::idle);
  } else {
    ::shutdown(one.socket.get(), SHUT_WR);
    one.in = {};
    enter(one, Connection::State::linger);
  }
  return true;
}

bool ReportServer::Impl::step(Connection& one, short events) {
  using State = Connection::State;
  if ((events & POLLIN) != 0 && one.state != State::answer && !read_more(one)) return false;
  if ((events & (POLLERR | POLLHUP | POLLNVAL)) != 0 && (events & POLLIN) == 0) return false;
  // Requests may have come several at a time. They are answered one by one; each waits until the
  // answer before is written.
  while (true) {
    if (one.state == State::answer && !write_more(one)) return false;
    if (one.state == State::answer || one.state == State::linger) return true;
    if (one.in.empty()) return true;
    if (one.state == State::idle) enter(one, State::head);
    const size_t bytes = head_bytes(one.in);
    if (bytes == 0 && one.in.size() <= kMostHead) return true;
    if (bytes == 0 || bytes > kMostHead) {
      one.keep = false;
      send(one, {431, "text/plain; charset=utf-8"},
           std::make_shared<const std::string>("the head is too long\n"), true);
      continue;
    }
    const std::string head = one.in.substr(0, bytes);
    one.in.erase(0, bytes);
    answer(one, head);
  }
}

// The connection that has waited longest gives way: of an idle one since its last answer.
void ReportServer::Impl::make_room() {
  const auto oldest = std::min_element(connections_.begin(), connections_.end(),
                                       [](const auto& a, const auto& b) { return a.since < b.since; });
  if (oldest != connections_.end()) connections_.erase(oldest);
}

void ReportServer::Impl::accept_all() {
  // A call accepts at most kMostConnections: a crowd of new clients must not starve those that are
  // already connected.
  for (size_t i = 0; i < kMostConnections; ++i) {
    const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      // A client reset its connection before it was accepted; the next one may be fine.
      if (errno == ECONNABORTED || errno == EINTR) continue;
      if (errno == EAGAIN) return;
      // No descriptor is left: somebody has to go, and the next look has to wait or it would not end.
      make_room();
      accept_again_ = in_seconds(kRestSeconds);
      return;
    }
    Connection one{Descriptor(fd)};
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    one.address = address_text(local_address(fd));
    if (connections_.size() >= kMostConnections) make_room();
    enter(one, Connection::State::head);  // it has come to ask for something
    connections_.push_back(std::move(one));
  }
}

void ReportServer::Impl::serve(const std::atomic<bool>& stop) {
  std::vector<pollfd> polled;
  while (!stop) {
    const auto now = Clock::now();
    const bool rests = now < accept_again_;
    double wait = rests ? kRestSeconds : kPollSeconds;
    polled.assign(1, {rests ? -1 : listener_.get(), POLLIN, 0});
    for (const Connection& one : connections_) {
      const short events = one.state == Connection::State::answer ? POLLOUT : POLLIN;
      polled.push_back({one.socket.get(), events, 0});
      wait = std::min(wait, std::chrono::duration<double>(one.deadline - now).count());
    }
    const int milliseconds = static_cast<int>(std::max(wait, 0.0) * 1000) + 1;
    if (::poll(polled.data(), polled.size(), milliseconds) < 0 && errno != EINTR)
      fail("watch", "cannot wait for connections: {}", std::strerror(errno));
    size_t i = 1;
    for (auto one = connections_.begin(); one != connections_.end(); ++i) {
      const bool open =
          (polled[i].revents == 0 || step(*one, polled[i].revents)) && one->deadline > Clock::now();
      one = open ? std::next(one) : connections_.erase(one);
    }
    if (polled[0].revents != 0) accept_all();
  }
  connections_.clear();
}

ReportServer::ReportServer(const ServerOptions& options, DocumentSource page, DocumentSource document)
    : impl_(std::make_unique<Impl>(options, std::move(page), std::move(document))) {}
ReportServer::~ReportServer() = default;
const std::string& ReportServer::url() const { return impl_->url_; }
uint16_t ReportServer::port() const { return impl_->port_; }
void ReportServer::serve(const std::atomic<bool>& stop) { impl_->serve(stop); }

}  // namespace ulp
